#include "kernels/cuda/attention_mma.cuh"

// Few rows: 16 of them per block, the keys shared between its four warps and between blocks.
namespace lariat::cuda {
namespace {

constexpr unsigned kMergeThreads = 128;

// Grid: one block per (token, head); 128 threads stride over the head's dimensions. Bound by latency: a few
// dozen partial results at most.
__global__ void merge_kernel(const __grid_constant__ Attention a) {
  const int64_t token = blockIdx.x / static_cast<unsigned>(a.n_heads);
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(a.n_heads));
  float top = -INFINITY;
  for (int s = 0; s < a.splits; ++s) top = fmaxf(top, a.state[state_index(a, s, token, head)].x);
  for (int d = static_cast<int>(threadIdx.x); d < a.head_dim; d += kMergeThreads) {
    float sum = 0.0F, x = 0.0F;
    for (int s = 0; s < a.splits; ++s) {
      const int64_t index = state_index(a, s, token, head);
      const float weight = exp2f(a.state[index].x - top);
      sum += weight * a.state[index].y;
      x += weight * a.partial[index * a.head_dim + d];
    }
    a.out[token * a.out_stride + int64_t{head} * a.head_dim + d] = x / sum;
  }
}

}  // namespace

int decode_splits(const Attention& a, int multiprocessors) {
  int splits = 1;
  with_tile<1, 4>(a, [&]<class Tile>(Tile) { splits = mma_splits<Tile>(a, multiprocessors); });
  return splits;
}

void launch_attention_decode(Attention a, Stream stream) {
  with_tile<1, 4>(a, [&]<class Tile>(Tile) { launch_mma<Tile>(a, stream); });
}

void launch_attention_merge(const Attention& a, Stream stream) {
  launch(merge_kernel, dim3(to_unsigned(a.n_tokens * a.n_heads)), dim3(kMergeThreads), 0, stream, a);
}

}  // namespace lariat::cuda
