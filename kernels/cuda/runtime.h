#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/tensor.h"

// All uses of the CUDA runtime and cuBLAS, without their headers. Emulated on the host by
// tests/simt/runtime_simt.cpp.
struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;
struct cublasContext;

namespace lariat::cuda {

using Stream = CUstream_st*;
using Event = CUevent_st*;
using Graph = CUgraphExec_st*;
using Blas = cublasContext*;

struct DeviceInfo {
  std::string name;
  int index = 0;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t total_bytes = 0;
};

struct DeviceMemory {
  size_t free = 0, total = 0;
};

// Reason why CUDA device `index` is unusable, or empty. Never throws.
std::string unavailable_reason(int index);
// Makes device `index` current for this thread. Throws Error if it is missing or older than sm_80.
DeviceInfo open_device(int index);
// Makes an opened device current for this thread.
void use_device(int index) noexcept;

// --- memory --------------------------------------------------------------------------------------------
void* device_malloc(size_t bytes);  // null if memory runs out
void device_free(void* data) noexcept;
DeviceMemory device_memory();
void* pinned_malloc(size_t bytes);  // host memory for direct copies; null if memory runs out
void pinned_free(void* data) noexcept;

// --- streams and events ----------------------------------------------------------------------------------
Stream stream_create();
void stream_destroy(Stream stream) noexcept;
void stream_synchronize(Stream stream);
Event event_create();
void event_destroy(Event event) noexcept;
void event_record(Event event, Stream stream);
void event_synchronize(Event event);
double event_seconds(Event begin, Event end);  // both recorded and done; 0 without a clock

// --- recorded launches -----------------------------------------------------------------------------------
// Launches on the stream between begin and end are recorded, not run; other device calls are forbidden. The
// graph runs them with the recorded arguments.
void capture_begin(Stream stream);
Graph capture_end(Stream stream);
void capture_abandon(Stream stream) noexcept;
void graph_launch(Graph graph, Stream stream);
void graph_destroy(Graph graph) noexcept;

// --- copies ----------------------------------------------------------------------------------------------
// In stream order; the host memory must stay unchanged until the copy is done.
void copy_to_device(void* device_dst, const void* host_src, size_t bytes, Stream stream);
void copy_to_host(void* host_dst, const void* device_src, size_t bytes, Stream stream);

void fill_bytes(void* dst, int byte, size_t bytes, Stream stream);
void copy_on_device(void* dst, const void* src, size_t bytes, Stream stream);

// --- matrix products -------------------------------------------------------------------------------------
std::string blas_unavailable_reason();  // with a remedy; empty: available
Blas blas_create(Stream stream);
void blas_destroy(Blas blas) noexcept;
struct Scales {
  float alpha = 1.0F, beta = 0.0F;
};
// out[n][m] = alpha sum_k x[n][k] w[m][k] + beta out[n][m], f32 accumulation; x and w of the same dtype. out:
// f32, or bf16 for bf16 x and w (rounded to nearest even). beta = 0: out is not read.
void gemm(Blas blas, const Matrix& x, const Matrix& w, const Matrix& out, const Scales& scales = {});

// --- launches --------------------------------------------------------------------------------------------
// A launch starts after all earlier work, or early (programmatic dependent launch, compute capability 9.0 or
// later) with a kernel that waits for earlier work (launch.h).
enum class Start : uint8_t { kInOrder, kEarly };

#ifdef __CUDACC__
// arguments: address of each. kEarly becomes kInOrder if the kernel's code does not wait. Throws Error.
void launch_kernel(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes, Stream stream, Start start,
                   void** arguments);
#endif

}  // namespace lariat::cuda
