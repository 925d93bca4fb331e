#include "kernels/reference/reference_backend.h"

#include <cstdlib>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/error.h"
#include "kernels/integers.h"
#include "kernels/quant.h"

namespace lariat {

Buffer ReferenceBackend::allocate(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t rounded = round_up(bytes, kAlignment);
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) throw Error("no memory for " + std::to_string(bytes) + " bytes");
  return {this, data, bytes};
}

void ReferenceBackend::release(void* data, size_t) noexcept { std::free(data); }

void ReferenceBackend::copy_in(void* dst, const void* host_src, size_t bytes) {
  if (bytes != 0) std::memcpy(dst, host_src, bytes);
}

void ReferenceBackend::copy_out(void* host_dst, const void* src, size_t bytes) {
  if (bytes != 0) std::memcpy(host_dst, src, bytes);
}

Weight ReferenceBackend::load_weight(const Matrix& host, DType dtype) {
  if (host.dtype == dtype) return {host, Buffer()};
  Matrix copy(nullptr, dtype, host.rows, host.cols);
  Buffer memory = allocate(stored_bytes(copy));
  copy.data = memory.data();
  is_quantized(dtype) ? quantize(host, copy) : convert(host, copy);
  return {copy, std::move(memory)};
}

}  // namespace lariat
