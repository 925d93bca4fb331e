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
  if (data == nullptr) throw Error("no memory for " + std::to_string(bytes) + " bytes; use a smaller model");
  return {this, data, bytes};
}

void ReferenceBackend::release(void* data, size_t) noexcept { std::free(data); }

void ReferenceBackend::copy_in(void* dst, const void* host_src, size_t bytes) {
  if (bytes != 0) std::memcpy(dst, host_src, bytes);
}

void ReferenceBackend::copy_out(void* host_dst, const void* src, size_t bytes) {
  if (bytes != 0) std::memcpy(host_dst, src, bytes);
}

LoadedWeight ReferenceBackend::load_weight(std::span<const HostWeight> host,
                                           std::span<const WeightFormat> formats, DType compute) {
  LoadedWeight loaded = lay_out_weight(*this, host, formats, compute, true);
  for (size_t i = 0; i < host.size(); ++i) {
    const Matrix& to = loaded.weight.blocks[i].w;
    if (to.data != host[i].m.data) lay_out(host[i], to);
  }
  return loaded;
}

}  // namespace lariat
