#include "kernels/backend.h"

#include <cstddef>

#include "kernels/integers.h"
#include "kernels/quant.h"

namespace lariat {

LoadedWeight lay_out_weight(Backend& backend, std::span<const HostWeight> host,
                            std::span<const WeightFormat> formats, DType compute, bool in_place, bool tiled) {
  constexpr size_t kAlignment = 64;
  LoadedWeight loaded;
  loaded.weight.compute = compute;
  std::vector<size_t> offsets;
  size_t bytes = 0;
  for (size_t i = 0; i < host.size(); ++i) {
    const Matrix& from = host[i].m;
    Matrix to(nullptr, formats[i], from.rows, from.cols);
    to.tiled = tiled && to.dtype == DType::kBF16 && compute == DType::kBF16;
    const bool stays = in_place && from && to.dtype == from.dtype && !to.tiled;
    loaded.weight.blocks.push_back({stays ? from : to, {}});
    offsets.push_back(bytes);
    if (!stays) bytes += round_up(stored_bytes(to), kAlignment);
  }
  if (bytes == 0) return loaded;
  loaded.memory = backend.allocate(bytes);
  for (size_t i = 0; i < offsets.size(); ++i) {
    Matrix& block = loaded.weight.blocks[i].w;
    if (!block) block.data = static_cast<std::byte*>(loaded.memory.data()) + offsets[i];
  }
  return loaded;
}

}  // namespace lariat
