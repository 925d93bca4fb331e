#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dispatch.h"

namespace lariat {
namespace {

using namespace cuda;

constexpr int kLayersPerLaunch = 64;
constexpr unsigned kThreads = 128;

struct KeyLayers {
  void* const* blocks[kLayersPerLaunch];
};

struct RotationShape {
  int n_layers, n_heads, head_dim, pairs;
  bool interleaved;
  int64_t n_positions;
};

// The elements of kPairs neighbouring pairs are two runs of kPairs: half-split, the firsts and, rotary_dim /
// 2 further, the seconds; interleaved, both in turn in the two runs side by side.
template <class T, int kPairs>
struct alignas(kPairs * sizeof(T)) Run {
  T value[kPairs];
};

template <bool kInterleaved, class T, int kPairs>
__device__ __forceinline__ void rotate(T* low_address, T* high_address, const float (&c)[kPairs],
                                       const float (&s)[kPairs]) {
  auto* low = reinterpret_cast<Run<T, kPairs>*>(low_address);
  auto* high = reinterpret_cast<Run<T, kPairs>*>(high_address);
  Run<T, kPairs> runs[2] = {*low, *high};
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int a = kInterleaved ? 2 * i : i, b = kInterleaved ? 2 * i + 1 : i + kPairs;
    T& first = runs[a / kPairs].value[a % kPairs];
    T& second = runs[b / kPairs].value[b % kPairs];
    const float x = to_float(first), y = to_float(second);
    first = to_cache<T>(x * c[i] - y * s[i]);
    second = to_cache<T>(x * s[i] + y * c[i]);
  }
  *low = runs[0];
  *high = runs[1];
}

// One thread per (position, kPairs pairs): the angle costs a sincos in double, and then serves every layer
// and head. Grid: x = positions * pairs / kPairs / 128, y = shares of the layers, when x alone is too little
// to fill the device. Bound by memory: every key is read and written once.
template <class T, int kPairs>
__global__ void rerotate_keys_kernel(const __grid_constant__ KeyLayers layers,
                                     const __grid_constant__ PairFrequencies delta, RotationShape shape) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t groups = shape.pairs / kPairs;
  const int64_t position = i / groups;
  const int pair = static_cast<int>(i % groups) * kPairs;
  if (position >= shape.n_positions) return;
  float c[kPairs], s[kPairs];
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    double sine = 0.0, cosine = 0.0;
    sincos(static_cast<double>(position) * delta.value[pair + j], &sine, &cosine);
    s[j] = static_cast<float>(sine);
    c[j] = static_cast<float>(cosine);
  }
  for (int layer = static_cast<int>(blockIdx.y); layer < shape.n_layers;
       layer += static_cast<int>(gridDim.y)) {
    T* block = static_cast<T*>(layers.blocks[layer][position / kKvPage]);
    for (int head = 0; head < shape.n_heads; ++head) {
      T* key = block + kv_index(head, position, 0, shape.head_dim);
      if (shape.interleaved) {
        rotate<true>(key + 2 * pair, key + 2 * pair + kPairs, c, s);
      } else {
        rotate<false>(key + pair, key + pair + shape.pairs, c, s);
      }
    }
  }
}

// Shares of the layers: as few as give every multiprocessor eight blocks.
unsigned layer_shares(int64_t blocks, int n_layers, int multiprocessors) {
  const int64_t wanted = ceil_div<int64_t>(int64_t{8} * multiprocessors, blocks);
  return static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, n_layers));
}

template <class T, int kPairs>
void launch_rerotate(const KeyLayers& layers, const PairFrequencies& delta, const RotationShape& shape,
                     int multiprocessors, Stream stream) {
  const int64_t blocks = ceil_div<int64_t>(shape.n_positions * (shape.pairs / kPairs), kThreads);
  launch(rerotate_keys_kernel<T, kPairs>,
         dim3(to_unsigned(blocks), layer_shares(blocks, shape.n_layers, multiprocessors)), dim3(kThreads), 0,
         stream, layers, delta, shape);
}

}  // namespace

void CudaBackend::rerotate_keys(std::span<const KvLayer> layers, int64_t n_positions,
                                std::span<const double> delta_inv_freq, bool interleaved) {
  if (n_positions == 0 || delta_inv_freq.empty()) return;
  const PairFrequencies delta = pair_frequencies(delta_inv_freq);
  const auto pairs = static_cast<int>(delta_inv_freq.size());
  for (size_t first = 0; first < layers.size();) {
    // A run of layers of one shape, as many as an argument holds: usually all of them.
    const KvLayer& model = layers[first];
    KeyLayers blocks = {};
    int count = 0;
    for (; first < layers.size() && count < kLayersPerLaunch; ++first, ++count) {
      const KvLayer& layer = layers[first];
      if (layer.k_dtype != model.k_dtype || layer.head_dim != model.head_dim ||
          layer.n_kv_heads != model.n_kv_heads) {
        break;
      }
      blocks.blocks[count] = device_blocks(layer.k_blocks, n_positions);
    }
    const RotationShape shape = {
        count,      static_cast<int>(model.n_kv_heads), static_cast<int>(model.head_dim), pairs, interleaved,
        n_positions};
    const bool aligned = pairs % 4 == 0 && model.head_dim % 8 == 0;
    with_dtype(model.k_dtype, [&]<class T>(T) {
      (aligned ? launch_rerotate<T, 4> : launch_rerotate<T, 1>)(blocks, delta, shape, device_.multiprocessors,
                                                                stream_);
    });
  }
}

}  // namespace lariat
