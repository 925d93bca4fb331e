#include "kernels/cuda/runtime.h"

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <utility>

#include "kernels/error.h"

namespace lariat::cuda {
namespace {

constexpr int kOldest = 80;           // sm_80
constexpr int kWaits = 90;            // from this version on, code has wait_for_launches() (launch.h)
constexpr size_t kShared = 48 << 10;  // dynamic shared memory without a request

void require(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::string hint;
  if (status == cudaErrorNoKernelImageForDevice) hint = " (this lariat was built for other GPUs)";
  if (status == cudaErrorIllegalAddress || status == cudaErrorLaunchFailure) {
    hint = " (a kernel failed; run compute-sanitizer to locate the error)";
  }
  throw Error("CUDA: " + std::string(what) + ": " + cudaGetErrorString(status) + hint);
}

// CUDA's version format: 12040 is 12.4.
std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// Raises the kernel's limit of dynamic shared memory if needed; returns whether its code for this device
// waits for earlier launches. Queries the device once per kernel: queries are forbidden while recording.
bool prepare(const void* kernel, size_t shared_bytes) {
  struct Known {
    int ptx_version = 0;
    size_t shared_limit = kShared;
  };
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, Known> kernels;
  int device = 0;
  require(cudaGetDevice(&device), "querying the device");
  const std::lock_guard lock(mutex);
  Known& known = kernels[{device, kernel}];
  if (known.ptx_version == 0) {
    // Compute capability is not enough: code compiled from sm_80 PTX does not wait.
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, kernel), "querying a kernel");
    known.ptx_version = attributes.ptxVersion;
  }
  if (shared_bytes > known.shared_limit) {
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes)),
            "more shared memory than this GPU has per block");
    known.shared_limit = shared_bytes;
  }
  return known.ptx_version >= kWaits;
}

}  // namespace

void launch_kernel(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes, Stream stream, Start start,
                   void** arguments) {
  const bool waits = prepare(kernel, shared_bytes);
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = waits && start == Start::kEarly ? 1 : 0;
  require(cudaLaunchKernelExC(&config, kernel, arguments), "kernel launch");
}

// --- the device ------------------------------------------------------------------------------------------

std::string unavailable_reason(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return "no NVIDIA driver is installed";
    return "the NVIDIA driver supports CUDA " + version(driver) + " but CUDA " +
           version(CUDART_VERSION / 1000 * 1000) + " is required; install a newer driver";
  }
  if (status != cudaSuccess) return cudaGetErrorString(status);
  if (count == 0) return "no NVIDIA GPU is visible";
  if (index < 0 || index >= count) {
    return "CUDA device " + std::to_string(index) + " does not exist; this machine has " +
           std::to_string(count) + ", numbered from 0";
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return "the GPU does not respond";
  if (10 * properties.major + properties.minor < kOldest) {
    return std::string(properties.name) + " is too old; lariat requires compute capability 8.0 or later";
  }
  return blas_unavailable_reason();
}

DeviceInfo open_device(int index) {
  const std::string why_not = unavailable_reason(index);
  if (!why_not.empty()) throw Error("no usable CUDA device: " + why_not);
  require(cudaSetDevice(index), "opening the device");
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, index), "querying the device");
  return {properties.name,          index, properties.major, properties.minor, properties.multiProcessorCount,
          properties.totalGlobalMem};
}

void use_device(int index) noexcept { cudaSetDevice(index); }

// --- memory --------------------------------------------------------------------------------------------

void* device_malloc(size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which is not sticky
    return nullptr;
  }
  require(status, "allocating device memory");
  return data;
}

void device_free(void* data) noexcept { cudaFree(data); }

DeviceMemory device_memory() {
  DeviceMemory memory;
  require(cudaMemGetInfo(&memory.free, &memory.total), "querying free memory");
  return memory;
}

void* pinned_malloc(size_t bytes) {
  void* data = nullptr;
  if (cudaMallocHost(&data, bytes) == cudaSuccess) return data;
  cudaGetLastError();
  return nullptr;
}

void pinned_free(void* data) noexcept { cudaFreeHost(data); }

// --- streams and events ----------------------------------------------------------------------------------

Stream stream_create() {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  return stream;
}
void stream_destroy(Stream stream) noexcept { cudaStreamDestroy(stream); }
void stream_synchronize(Stream stream) { require(cudaStreamSynchronize(stream), "waiting for the GPU"); }

Event event_create() {
  cudaEvent_t event = nullptr;
  require(cudaEventCreate(&event), "creating an event");
  return event;
}
void event_destroy(Event event) noexcept { cudaEventDestroy(event); }
void event_record(Event event, Stream stream) {
  require(cudaEventRecord(event, stream), "recording an event");
}
void event_synchronize(Event event) { require(cudaEventSynchronize(event), "waiting for the GPU"); }

double event_seconds(Event begin, Event end) {
  float milliseconds = 0.0F;
  require(cudaEventElapsedTime(&milliseconds, begin, end), "reading the GPU's clock");
  return static_cast<double>(milliseconds) * 1e-3;
}

void capture_begin(Stream stream) {
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a decode step");
}

Graph capture_end(Stream stream) {
  cudaGraph_t graph = nullptr;
  require(cudaStreamEndCapture(stream, &graph), "recording a decode step");
  cudaGraphExec_t runnable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&runnable, graph, 0);
  cudaGraphDestroy(graph);
  require(status, "preparing a decode step");
  return runnable;
}

void capture_abandon(Stream stream) noexcept {
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
}

void graph_launch(Graph graph, Stream stream) {
  require(cudaGraphLaunch(graph, stream), "running a decode step");
}
void graph_destroy(Graph graph) noexcept { cudaGraphExecDestroy(graph); }

void copy_to_device(void* device_dst, const void* host_src, size_t bytes, Stream stream) {
  require(cudaMemcpyAsync(device_dst, host_src, bytes, cudaMemcpyHostToDevice, stream), "copying to the GPU");
}
void copy_to_host(void* host_dst, const void* device_src, size_t bytes, Stream stream) {
  require(cudaMemcpyAsync(host_dst, device_src, bytes, cudaMemcpyDeviceToHost, stream),
          "copying from the GPU");
}

void fill_bytes(void* dst, int byte, size_t bytes, Stream stream) {
  require(cudaMemsetAsync(dst, byte, bytes, stream), "filling GPU memory");
}
void copy_on_device(void* dst, const void* src, size_t bytes, Stream stream) {
  require(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream), "copying on the GPU");
}

}  // namespace lariat::cuda
