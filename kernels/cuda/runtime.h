#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/tensor.h"

// Everything the backend asks of the CUDA runtime and of cuBLAS, without their headers. runtime.cu and
// blas.cpp are the real thing; tests/simt/runtime_simt.cpp does the same on the host, where device memory is
// heap memory and every call is finished when it returns.
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

// Why CUDA device `index` cannot be used (no driver, driver too old, no such GPU, no cuBLAS), or empty. Never
// throws.
std::string unavailable_reason(int index);
// Makes device `index` current for this thread. Throws Error when there is none or it is older than sm_80.
DeviceInfo open_device(int index);
// The device of what this thread asks for next, one that was opened. (One that is lost fails then.)
void use_device(int index) noexcept;

// --- memory --------------------------------------------------------------------------------------------
void* device_malloc(size_t bytes);  // null when there is not enough
void device_free(void* data) noexcept;
DeviceMemory device_memory();
void* pinned_malloc(size_t bytes);  // host memory the copy engine reads directly; null when there is none
void pinned_free(void* data) noexcept;

// --- streams and events ----------------------------------------------------------------------------------
Stream stream_create();
void stream_destroy(Stream stream) noexcept;
void stream_synchronize(Stream stream);
Event event_create();
void event_destroy(Event event) noexcept;
void event_record(Event event, Stream stream);
void event_synchronize(Event event);
double event_seconds(Event begin, Event end);  // both recorded and done; 0 where nothing keeps time

// --- recorded launches -----------------------------------------------------------------------------------
// Between begin and end, launches on the stream are recorded and not run; nothing else may be asked of the
// device. The graph then runs all of them, with the arguments they had, any number of times.
void capture_begin(Stream stream);
Graph capture_end(Stream stream);
void capture_abandon(Stream stream) noexcept;
void graph_launch(Graph graph, Stream stream);
void graph_destroy(Graph graph) noexcept;

// --- copies ----------------------------------------------------------------------------------------------
// In the stream's order; the host memory must stay as it is until the stream has come by.
void copy_to_device(void* device_dst, const void* host_src, size_t bytes, Stream stream);
void copy_to_host(void* host_dst, const void* device_src, size_t bytes, Stream stream);

void fill_bytes(void* dst, int byte, size_t bytes, Stream stream);
void copy_on_device(void* dst, const void* src, size_t bytes, Stream stream);

// --- matrix products -------------------------------------------------------------------------------------
std::string blas_unavailable_reason();  // why cuBLAS cannot be loaded, and what to do; or empty
Blas blas_create(Stream stream);
void blas_destroy(Blas blas) noexcept;
struct Scales {
  float alpha = 1.0F, beta = 0.0F;
};
// out[n][m] = alpha sum_k x[n][k] w[m][k] + beta out[n][m], f32 accumulation; x and w of the same dtype. out:
// f32, or, of bf16 x and w, bf16, to which the sum is rounded (to nearest, ties to even). beta = 0: out is
// not read.
void gemm(Blas blas, const Matrix& x, const Matrix& w, const Matrix& out, const Scales& scales = {});

// --- launches --------------------------------------------------------------------------------------------
// When a launch starts: when all before it on the stream are done, or before they are (programmatic dependent
// launch, from compute capability 9.0 on), its kernel waiting for them by itself (launch.h).
enum class Start : uint8_t { kInOrder, kEarly };

#ifdef __CUDACC__
// arguments: the address of each. kEarly is kInOrder where the device runs code of the kernel that does not
// wait. Throws Error.
void launch_kernel(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes, Stream stream, Start start,
                   void** arguments);
#endif

}  // namespace lariat::cuda
