#include "kernels/cuda/attention_mma.cuh"

// Many rows: 64 of them per block, four warps.
namespace lariat::cuda {

int prefill_splits(const Attention& a, int multiprocessors) {
  int splits = 1;
  with_tile<4, 1>(a, [&]<class Tile>(Tile) { splits = mma_splits<Tile>(a, multiprocessors); });
  return splits;
}

void launch_attention_prefill(Attention a, Stream stream) {
  with_tile<4, 1>(a, [&]<class Tile>(Tile) { launch_mma<Tile>(a, stream); });
}

}  // namespace lariat::cuda
