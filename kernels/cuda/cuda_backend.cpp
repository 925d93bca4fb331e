#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernels/cpu/lay_out_rows.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "kernels/error.h"
#include "kernels/quant.h"
#include "kernels/team.h"

namespace lariat {
namespace {

constexpr size_t kPinnedBytes = size_t{16} << 20;

// LARIAT_PDL=0 disables early starts of launches.
cuda::Start start_of_launches() {
  const char* text = std::getenv("LARIAT_PDL");
  return text != nullptr && std::string_view(text) == "0" ? cuda::Start::kInOrder : cuda::Start::kEarly;
}

std::string gib(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / (1U << 30));
  return text;
}

}  // namespace

std::string cuda_unavailable_reason(int index) { return cuda::unavailable_reason(index); }

std::unique_ptr<Backend> make_cuda_backend(int index, std::function<void(const std::string&)> warn) {
  return std::make_unique<CudaBackend>(index, std::move(warn));
}

CudaBackend::CudaBackend(int device, cuda::LaunchQueue::Warn warn)
    : device_(cuda::open_device(device)),
      queue_(device, std::move(warn), start_of_launches()),
      blas_(cuda::blas_create(queue_.flushed())) {
  // attention_splits() never splits more tiles than the number of multiprocessors.
  finished_blocks_ = allocate(static_cast<size_t>(device_.multiprocessors) * sizeof(unsigned));
  cuda::fill_bytes(finished_blocks_.data(), 0, finished_blocks_.bytes(), stream());
  saturated_ = allocate(sizeof(Saturation));
  cuda::fill_bytes(saturated_.data(), 0, saturated_.bytes(), stream());
}

CudaBackend::~CudaBackend() {
  cuda::use_device(device_.index);
  queue_.drop();
  for (Pinned& pinned : pinned_) release(pinned);
  release(drawn_ids_);
  cuda::blas_destroy(blas_);
}

std::string CudaBackend::description() const {
  return device_.name + ", sm_" + std::to_string(device_.major) + std::to_string(device_.minor) + ", " +
         std::to_string(device_.multiprocessors) + " multiprocessors, " + gib(device_.total_bytes);
}

Traits CudaBackend::traits() const {
  return {.host_memory = false,
          .asynchronous = true,
          .steady_tokens = kMmaTokens,
          .fast_attention = cuda::tensor_cores_support};
}

Buffer CudaBackend::allocate(size_t bytes) {
  if (bytes == 0) return {};
  cuda::use_device(device_.index);
  void* data = cuda::device_malloc(bytes);
  if (data == nullptr) {
    const cuda::DeviceMemory memory = cuda::device_memory();
    throw Error("out of memory on " + device_.name + ": " + gib(bytes) + " needed, " + gib(memory.free) +
                " of " + gib(memory.total) + " free; use a smaller `max_ctx` or `dtype`, or `device` cpu");
  }
  return {this, data, bytes};
}

double CudaBackend::free_bytes() const {
  cuda::use_device(device_.index);
  return static_cast<double>(cuda::device_memory().free);
}

void CudaBackend::release(void* data, size_t bytes) noexcept {
  queue_.let_go(data, bytes);
  cuda::device_free(data);  // waits for work on the stream
}

void CudaBackend::copy_in(void* dst, const void* host_src, size_t bytes) { upload(dst, host_src, bytes); }

void CudaBackend::copy_out(void* host_dst, const void* src, size_t bytes) {
  cuda::copy_to_host(host_dst, src, bytes, stream());
  cuda::stream_synchronize(stream());
}

void CudaBackend::copy(void* dst, const void* src, size_t bytes) {
  cuda::copy_on_device(dst, src, bytes, stream());
}

Saturation CudaBackend::saturated() {
  Saturation total;
  copy_out(&total, saturated_.data(), sizeof(total));
  return total;
}

void CudaBackend::synchronize() { cuda::stream_synchronize(stream()); }

void CudaBackend::reserve(Pinned& pinned, size_t bytes) {
  if (pinned.bytes >= bytes) return;
  if (pinned.data != nullptr) cuda::event_synchronize(pinned.copied);
  release(pinned);
  pinned.data = cuda::pinned_malloc(bytes);
  if (pinned.data == nullptr) throw Error("GPU copies: no page-locked host memory left; free host memory");
  pinned.bytes = bytes;
  pinned.copied = cuda::event_create();
}

void CudaBackend::release(Pinned& pinned) noexcept {
  if (pinned.data == nullptr) return;
  cuda::pinned_free(pinned.data);
  if (pinned.copied != nullptr) cuda::event_destroy(pinned.copied);
  pinned = {};
}

void CudaBackend::upload(void* dst, const void* host_src, size_t bytes) {
  auto* to = static_cast<char*>(dst);
  const auto* from = static_cast<const char*>(host_src);
  const cuda::Stream stream = queue_.flushed();
  while (bytes > 0) {
    Pinned& pinned = pinned_[next_pinned_++ % pinned_.size()];
    reserve(pinned, kPinnedBytes);
    cuda::event_synchronize(pinned.copied);  // its last chunk is copied
    const size_t chunk = std::min(bytes, kPinnedBytes);
    std::memcpy(pinned.data, from, chunk);
    cuda::copy_to_device(to, pinned.data, chunk, stream);
    cuda::event_record(pinned.copied, stream);
    to += chunk;
    from += chunk;
    bytes -= chunk;
  }
}

void CudaBackend::upload_matrix(const Matrix& dst, const Matrix& host) {
  const size_t row_bytes = static_cast<size_t>(host.cols) * size_of(host.dtype);
  if (host.stride == host.cols && dst.stride == dst.cols) {
    return upload(dst.data, host.data, row_bytes * static_cast<size_t>(host.rows));
  }
  for (int64_t r = 0; r < host.rows; ++r) {
    upload(dst.row_range(r, 1).data, host.row_range(r, 1).data, row_bytes);
  }
}

// Quantizes on the host, bitwise identical to the CPU backend. Blocks are contiguous: adjacent blocks of one
// width are one product for many tokens.
LoadedWeight CudaBackend::load_weight(std::span<const HostWeight> host, std::span<const WeightFormat> formats,
                                      DType compute) {
  LoadedWeight loaded = lay_out_weight(*this, host, formats, compute, false);
  for (size_t i = 0; i < host.size(); ++i) {
    const Matrix& to = loaded.weight.blocks[i].w;
    is_quantized(to.dtype) ? load_quantized(host[i], to) : load_floats(host[i], to);
  }
  const bool bf16 = std::all_of(formats.begin(), formats.end(),
                                [](const WeightFormat& format) { return format.dtype == DType::kBF16; });
  if (bf16 && compute == DType::kBF16) loaded.weight.input = DType::kBF16;
  return loaded;
}

void CudaBackend::load_floats(const HostWeight& host, const Matrix& to) {
  const Matrix& from = host.m;
  if (!host.read_row && from.dtype == to.dtype) return upload_matrix(to, from);
  // Panels of rows keep the copy in the host's dtype small.
  const int64_t panel = std::clamp<int64_t>((8 << 20) / from.cols, 1, from.rows);
  const DType staged_as = host.read_row ? DType::kF32 : from.dtype;
  const Buffer raw = allocate(static_cast<size_t>(panel * from.cols) * size_of(staged_as));
  std::vector<float> made(host.read_row ? static_cast<size_t>(panel * from.cols) : 0);
  for (int64_t r = 0; r < from.rows; r += panel) {
    const int64_t count = std::min(panel, from.rows - r);
    Matrix rows(made.data(), DType::kF32, count, from.cols);
    host.read_row ? cpu::lay_out_rows(host, r, rows, cores()) : void(rows = from.row_range(r, count));
    const Matrix staged(raw.data(), staged_as, count, from.cols);
    upload_matrix(staged, rows);
    convert(staged, DType::kF32, to.row_range(r, count));
  }
}

void CudaBackend::load_quantized(const HostWeight& host, const Matrix& to) {
  const QuantLayout layout(to);
  const int64_t panel = std::clamp<int64_t>((64 << 20) / layout.tile_bytes(), 1, layout.tiles());
  std::vector<uint8_t> staged(static_cast<size_t>(panel * layout.tile_bytes()));
  for (int64_t tile = 0; tile < layout.tiles(); tile += panel) {
    const int64_t tiles = std::min(panel, layout.tiles() - tile), first = tile * kQuantRows;
    const Matrix some(staged.data(), to.format(), std::min(tiles * kQuantRows, to.rows - first), to.cols);
    cpu::lay_out_rows(host, first, some, cores());
    upload(static_cast<char*>(to.data) + tile * layout.tile_bytes(), staged.data(),
           static_cast<size_t>(tiles * layout.tile_bytes()));
  }
}

void* CudaBackend::scratch(Scratch purpose, size_t bytes) {
  Buffer& buffer = scratch_[static_cast<size_t>(purpose)];
  if (buffer.bytes() < bytes) {
    buffer = Buffer();  // both may not fit; freeing waits for pending work
    buffer = allocate(bytes);
  }
  return buffer.data();
}

}  // namespace lariat
