#include "kernels/cuda/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernels/convert.h"
#include "kernels/error.h"
#include "tests/simt/blocks.h"
#include "tests/simt/memory.h"
#include "tests/simt/simt.h"

// Implements kernels/cuda/runtime.h on the heap, with synchronous operations. Copies to page-locked memory
// arrive when the host waits.
struct CUgraphExec_st {
  simt::Recording launches;
};
struct CUevent_st {
  uint32_t launches = 0;
  uint64_t copies = 0;
};

namespace simt {
namespace {
CaptureFailure g_capture_failure = CaptureFailure::kNone;
uint64_t g_idle_waits = 0;
bool g_recording = false;
Recording g_recorded;
uint64_t g_gemms = 0;
}  // namespace

uint64_t gemms() { return g_gemms; }

void start_recording() {
  g_recording = true;
  g_recorded.clear();
}
Recording stop_recording() {
  g_recording = false;
  return std::move(g_recorded);
}
Recording* recording() { return g_recording ? &g_recorded : nullptr; }
void set_capture_failure(CaptureFailure failure) { g_capture_failure = failure; }
uint64_t idle_waits() { return g_idle_waits; }
}  // namespace simt

namespace lariat::cuda {
namespace {

std::set<Graph> g_graphs;

std::map<std::byte*, size_t> g_pinned;  // page-locked memory and its sizes
struct Copy {
  void* to;
  std::vector<std::byte> bytes;
};
std::deque<Copy> g_copies;  // copies to page-locked memory in flight
uint64_t g_arrived = 0;

uint64_t copies_so_far() { return g_arrived + g_copies.size(); }

void wait_for_copies(uint64_t until) {
  for (; g_arrived < until; ++g_arrived) {
    const Copy& copy = g_copies.front();
    if (copy.to != nullptr) std::memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
    g_copies.pop_front();
  }
}

bool is_pinned(const void* data) {
  const auto* byte = static_cast<const std::byte*>(data);
  return std::any_of(g_pinned.begin(), g_pinned.end(), [&](const auto& memory) {
    return byte >= memory.first && byte < memory.first + memory.second;
  });
}

void fail_capture(simt::CaptureFailure where) {
  if (simt::g_capture_failure == where) throw Error("CUDA: recording a decode step: not supported");
}

// Stricter than a real stream: only launches are recorded.
void expect_not_recording(const char* what) {
  if (simt::recording() != nullptr) throw Error(std::string(what) + " while launches are recorded");
}

void expect_device(const void* data, size_t bytes, const char* what) {
  if (bytes > 0 && !simt::inside_device(data, bytes))
    throw Error(std::string(what) + " outside device memory");
}
void expect_host(const void* data, size_t bytes, const char* what) {
  if (bytes > 0 && simt::touches_device(data, bytes)) throw Error(std::string(what) + " is device memory");
}
void expect_device(const Matrix& m, const char* what) {
  const size_t elements = static_cast<size_t>((m.rows - 1) * m.stride + m.cols);
  expect_device(m.data, elements * size_of(m.dtype), what);
}

}  // namespace

std::string unavailable_reason(int index) {
  if (index >= 0 && index < simt::kDevices) return {};
  return "there is no CUDA device " + std::to_string(index);
}

DeviceInfo open_device(int index) {
  const std::string why_not = unavailable_reason(index);
  if (!why_not.empty()) throw Error(why_not);
  use_device(index);
  DeviceInfo info;
  info.index = index;
  info.name = "SIMT shim";
  info.major = 8;
  info.multiprocessors = simt::multiprocessors();
  info.total_bytes = simt::device_bytes();
  return info;
}

void use_device(int index) noexcept { simt::set_device(index); }

void* device_malloc(size_t bytes) {
  expect_not_recording("device_malloc");
  return simt::device_malloc(bytes);
}

// Aborts if a recorded launch uses the memory.
void device_free(void* data) noexcept {
  bool refused = data != nullptr && simt::recording() != nullptr;
  for (const Graph graph : g_graphs) {
    for (const simt::RecordedLaunch& launch : graph->launches) {
      refused = refused || std::find(launch.given.begin(), launch.given.end(), data) != launch.given.end();
    }
  }
  if (refused) {
    std::fprintf(stderr, "simt: memory is freed that a recorded launch was given\n");
    std::abort();
  }
  simt::device_free(data);
}
DeviceMemory device_memory() {
  return {simt::device_bytes() - simt::device_bytes_used(), simt::device_bytes()};
}
void* pinned_malloc(size_t bytes) {
  void* data = std::malloc(bytes);
  if (data != nullptr) g_pinned[static_cast<std::byte*>(data)] = bytes;
  return data;
}
void pinned_free(void* data) noexcept {
  const auto memory = g_pinned.find(static_cast<std::byte*>(data));
  for (Copy& copy : g_copies) {
    const auto* to = static_cast<const std::byte*>(copy.to);
    if (to >= memory->first && to < memory->first + memory->second) copy.to = nullptr;
  }
  g_pinned.erase(memory);
  std::free(data);
}

Stream stream_create() { return nullptr; }
void stream_destroy(Stream) noexcept {}
void stream_synchronize(Stream) {
  expect_not_recording("stream_synchronize");
  ++simt::g_idle_waits;
  wait_for_copies(copies_so_far());
}
Event event_create() { return new CUevent_st; }
void event_destroy(Event event) noexcept { delete event; }
void event_record(Event event, Stream) { *event = {simt::block_clock().launch, copies_so_far()}; }
void event_synchronize(Event event) {
  simt::g_idle_waits += event->launches == simt::block_clock().launch ? 1 : 0;
  wait_for_copies(event->copies);
}
double event_seconds(Event, Event) { return 0.0; }

void capture_begin(Stream) {
  expect_not_recording("capture_begin");
  fail_capture(simt::CaptureFailure::kBegin);
  simt::start_recording();
}
Graph capture_end(Stream) {
  simt::Recording launches = simt::stop_recording();
  fail_capture(simt::CaptureFailure::kEnd);
  const bool early = std::any_of(launches.begin(), launches.end(), [](const auto& l) { return l.early; });
  if (early) fail_capture(simt::CaptureFailure::kEarly);
  return *g_graphs.insert(new CUgraphExec_st{std::move(launches)}).first;
}
void capture_abandon(Stream) noexcept { simt::stop_recording(); }
void graph_launch(Graph graph, Stream) {
  expect_not_recording("graph_launch");
  for (const simt::RecordedLaunch& launch : graph->launches) launch.start();
}
void graph_destroy(Graph graph) noexcept {
  g_graphs.erase(graph);
  delete graph;
}

void copy_to_device(void* device_dst, const void* host_src, size_t bytes, Stream) {
  expect_not_recording("copy_to_device");
  expect_device(device_dst, bytes, "copy_to_device: the destination is");
  expect_host(host_src, bytes, "copy_to_device: the source");
  if (bytes > 0) std::memcpy(device_dst, host_src, bytes);
}
void copy_to_host(void* host_dst, const void* device_src, size_t bytes, Stream) {
  expect_not_recording("copy_to_host");
  expect_device(device_src, bytes, "copy_to_host: the source is");
  expect_host(host_dst, bytes, "copy_to_host: the destination");
  if (bytes > 0 && is_pinned(host_dst)) {
    const auto* from = static_cast<const std::byte*>(device_src);
    g_copies.push_back({host_dst, {from, from + bytes}});
  } else if (bytes > 0) {
    std::memcpy(host_dst, device_src, bytes);
  }
}

void fill_bytes(void* dst, int byte, size_t bytes, Stream) {
  expect_not_recording("fill_bytes");
  expect_device(dst, bytes, "fill_bytes: the destination is");
  std::memset(dst, byte, bytes);
}
void copy_on_device(void* dst, const void* src, size_t bytes, Stream) {
  expect_not_recording("copy_on_device");
  expect_device(dst, bytes, "copy_on_device: the destination is");
  expect_device(src, bytes, "copy_on_device: the source is");
  if (bytes > 0) std::memcpy(dst, src, bytes);
}

std::string blas_unavailable_reason() { return {}; }
Blas blas_create(Stream) { return nullptr; }
void blas_destroy(Blas) noexcept {}
void gemm(Blas, const Matrix& x, const Matrix& w, const Matrix& out, const Scales& scales) {
  expect_not_recording("gemm");
  const bool rounds = out.dtype == DType::kBF16 && x.dtype == DType::kBF16;
  if (x.dtype != w.dtype || (out.dtype != DType::kF32 && !rounds)) throw Error("gemm: dtypes");
  if (x.cols != w.cols || out.rows != x.rows || out.cols != w.rows) throw Error("gemm: shapes");
  expect_device(x, "gemm: x is");
  expect_device(w, "gemm: w is");
  expect_device(out, "gemm: out is");
  ++simt::g_gemms;
  for (int64_t n = 0; n < x.rows; ++n) {
    for (int64_t m = 0; m < w.rows; ++m) {
      float sum = 0.0F;
      for (int64_t k = 0; k < x.cols; ++k) {
        sum += load_f32(x.data, x.dtype, n * x.stride + k) * load_f32(w.data, w.dtype, m * w.stride + k);
      }
      const int64_t at = n * out.stride + m;
      sum *= scales.alpha;
      if (scales.beta != 0.0F) sum += scales.beta * load_f32(out.data, out.dtype, at);
      store_f32(out.data, out.dtype, at, sum);
    }
  }
}

}  // namespace lariat::cuda
