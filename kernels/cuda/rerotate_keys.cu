#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

constexpr int kLayersPerLaunch = 64;
constexpr unsigned kThreads = 128;

using KeyOffsets = ByValue<int64_t, kLayersPerLaunch>;  // of each layer, in a page

struct Rotation {
  DeviceStep step;          // n_tokens of a sequence: its cached positions
  const double *to, *from;  // [sequences][pairs]: angle per position; `from`: only with axes
  AxisPositions axes, axes_from;
  int n_layers, n_heads, head_dim, pairs;
  bool interleaved;
  unsigned long long* saturated;
};

// kPairs adjacent pairs are two runs of kPairs elements. Half-split: first elements and, rotary_dim / 2
// later, second elements. Interleaved: both in turn, in two adjacent runs.
template <class T, int kPairs>
struct alignas(kPairs * sizeof(T)) Run {
  T value[kPairs];
};

template <bool kInterleaved, class T, int kPairs>
__device__ __forceinline__ void rotate(T* low_address, T* high_address, const float (&c)[kPairs],
                                       const float (&s)[kPairs], int& saturated) {
  auto* low = reinterpret_cast<Run<T, kPairs>*>(low_address);
  auto* high = reinterpret_cast<Run<T, kPairs>*>(high_address);
  Run<T, kPairs> runs[2] = {*low, *high};
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int a = kInterleaved ? 2 * i : i, b = kInterleaved ? 2 * i + 1 : i + kPairs;
    T& first = runs[a / kPairs].value[a % kPairs];
    T& second = runs[b / kPairs].value[b % kPairs];
    const float x = to_float(first), y = to_float(second);
    const float turned_x = x * c[i] - y * s[i], turned_y = x * s[i] + y * c[i];
    saturated += static_cast<int>(saturates<T>(turned_x)) + static_cast<int>(saturates<T>(turned_y));
    first = to_cache<T>(turned_x);
    second = to_cache<T>(turned_y);
  }
  *low = runs[0];
  *high = runs[1];
}

// One thread per (sequence, position, kPairs pairs): a double sincos serves every layer and head. Grid: x =
// positions of the longest sequence * pairs / kPairs / 128, times sequences; y = shares of the layers. Bound
// by memory. kMultiAxis: explicit positions.
template <class T, int kPairs, bool kMultiAxis>
__global__ void rerotate_keys_kernel(const __grid_constant__ KeyOffsets layers, Rotation r) {
  const auto count = static_cast<unsigned>(r.step.count);
  const unsigned sequence = blockIdx.x % count;
  const int64_t i = int64_t{blockIdx.x / count} * kThreads + threadIdx.x;
  const int64_t groups = r.pairs / kPairs;
  const int64_t position = i / groups;
  const int pair = static_cast<int>(i % groups) * kPairs;
  if (position >= r.step.sequences[sequence].n_tokens) return;
  const double* to = r.to + int64_t{sequence} * r.pairs + pair;
  const double* from = r.from + int64_t{sequence} * r.pairs + pair;
  float c[kPairs], s[kPairs];
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    double sine = 0.0, cosine = 0.0, angle = static_cast<double>(position) * to[j];
    if constexpr (kMultiAxis) {
      const int64_t row = r.step.sequences[sequence].first_row + position;
      angle = r.axes.at(sequence, r.pairs, row, pair + j) * to[j] +
              r.axes_from.at(sequence, r.pairs, row, pair + j) * from[j];
    }
    sincos(angle, &sine, &cosine);
    s[j] = static_cast<float>(sine);
    c[j] = static_cast<float>(cosine);
  }
  void* page = r.step.page({sequence, position});
  if (page == nullptr) return;
  int saturated = 0;
  for (int layer = static_cast<int>(blockIdx.y); layer < r.n_layers; layer += static_cast<int>(gridDim.y)) {
    T* keys = in_page<T>(page, layers.value[layer]);
    for (int head = 0; head < r.n_heads; ++head) {
      T* key = keys + kv_index(head, position, 0, r.head_dim);
      if (r.interleaved) {
        rotate<true>(key + 2 * pair, key + 2 * pair + kPairs, c, s, saturated);
      } else {
        rotate<false>(key + pair, key + pair + r.pairs, c, s, saturated);
      }
    }
  }
  count_saturated(saturated, r.saturated);
}

// The fewest shares that give every multiprocessor eight blocks.
unsigned layer_shares(int64_t blocks, int n_layers, int multiprocessors) {
  const int64_t wanted = ceil_div<int64_t>(int64_t{8} * multiprocessors, blocks);
  return static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, n_layers));
}

template <class T, int kPairs>
void launch_rerotate(const KeyOffsets& layers, const Rotation& r, int64_t longest, int multiprocessors,
                     Stream stream) {
  const int64_t blocks = ceil_div<int64_t>(longest * (r.pairs / kPairs), kThreads) * r.step.count;
  launch(
      r.axes.axes == nullptr ? rerotate_keys_kernel<T, kPairs, false> : rerotate_keys_kernel<T, kPairs, true>,
      dim3(to_unsigned(blocks), layer_shares(blocks, r.n_layers, multiprocessors)), dim3(kThreads), 0, stream,
      layers, r);
}

}  // namespace

void CudaBackend::rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                                bool interleaved) {
  std::vector<KeyRotation> kept;
  std::vector<StepSequence> cached;
  std::vector<double> sent, from;
  bool multi_axis = false;
  for (const KeyRotation& s : sequences) {
    if (s.n_positions == 0 || s.to.inv_freq.empty()) continue;
    kept.push_back(s);
    cached.push_back({0, s.n_positions, s.pages});
    multi_axis = multi_axis || !s.new_positions().empty();
    for (size_t j = 0; j < s.to.inv_freq.size(); ++j) {
      sent.push_back(s.to.inv_freq[j] - (s.moves() ? 0.0 : s.from.inv_freq[j]));
      from.push_back(s.moves() ? -s.from.inv_freq[j] : 0.0);
    }
  }
  if (cached.empty()) return;
  const size_t n_pairs = sent.size();  // of all sequences
  const auto pairs = static_cast<int>(n_pairs / cached.size());
  sent.insert(sent.end(), from.begin(), from.end());
  append_axes(std::span<const KeyRotation>(kept), static_cast<size_t>(pairs), sent);
  const size_t positions_at = sent.size();
  for (size_t s = 0; multi_axis && s < kept.size(); ++s)
    append_positions(kept[s].new_positions(), !kept[s].axes.empty(), cached[s], sent);
  const size_t from_at = sent.size();
  for (size_t s = 0; multi_axis && s < kept.size(); ++s)
    append_positions(kept[s].from.positions, !kept[s].axes.empty(), cached[s], sent);
  send_sequences(rotations_, cached);
  reserve(rotation_words_, sent.size());
  send(rotation_words_, 0, sent.data(), sent.size());
  const auto* words = static_cast<const double*>(rotation_words_.device.data());
  const double* const axes = multi_axis ? words + 2 * n_pairs : nullptr;
  for (size_t first = 0; first < layers.size();) {
    // Layers of one shape that fit an argument.
    const KvLayer& model = layers[first];
    KeyOffsets offsets = {};
    int count = 0;
    for (; first < layers.size() && count < kLayersPerLaunch; ++first, ++count) {
      const KvLayer& layer = layers[first];
      if (layer.k_dtype != model.k_dtype || layer.head_dim != model.head_dim ||
          layer.n_kv_heads != model.n_kv_heads) {
        break;
      }
      offsets.value[count] = static_cast<int64_t>(layer.k_offset);
    }
    const Rotation rotation = {on_device(rotations_),
                               words,
                               words + n_pairs,
                               {axes, words + positions_at},
                               {axes, words + from_at},
                               count,
                               static_cast<int>(model.n_kv_heads),
                               static_cast<int>(model.head_dim),
                               pairs,
                               interleaved,
                               static_cast<unsigned long long*>(saturated_.data())};
    const bool aligned = pairs % 4 == 0 && model.head_dim % 8 == 0;
    with_dtype(model.k_dtype, [&]<class T>(T) {
      (aligned ? launch_rerotate<T, 4> : launch_rerotate<T, 1>)(offsets, rotation, rotations_.longest,
                                                                device_.multiprocessors, stream());
    });
  }
}

}  // namespace lariat
