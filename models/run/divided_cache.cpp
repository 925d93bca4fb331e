#include "models/run/divided_cache.h"

#include <algorithm>
#include <cmath>

#include "models/run/layer.h"

namespace lariat {
namespace {

Matrix room_for(int64_t rows, int64_t cols, std::vector<float>& memory) {
  memory.resize(std::max(memory.size(), static_cast<size_t>(rows * cols)));
  return {memory.data(), DType::kF32, rows, cols};
}

}  // namespace

DividedCache::KeysAndValues DividedCache::all_heads(size_t layer, const Matrix& k, const Matrix& v,
                                                    int64_t head_dim) {
  const std::vector<Share>& parts = split_.layers[layer].kv_heads;
  const int64_t cols = heads_of(parts) * head_dim;
  const KeysAndValues all{room_for(k.rows, cols, k_), room_for(k.rows, cols, v_)};
  gather_columns(ranks_, k, parts, head_dim, all.k, true);
  gather_columns(ranks_, v, parts, head_dim, all.v, true);
  return all;
}

void DividedCache::attention(size_t layer, const Step& step, const Matrix& q,
                             std::span<const KeyRange> ranges, const KvLayer& cache,
                             const AttentionParams& params, const Matrix& out) {
  const std::vector<Share>& parts = split_.layers[layer].heads;
  const Share own = split_.of(parts);
  const int64_t rows = q.rows, heads = params.n_heads, head_dim = q.cols / own.count,
                value_dim = out.cols / own.count;
  const Matrix all_q = room_for(rows, heads * head_dim, q_),
               all_out = room_for(rows, heads * value_dim, out_);
  gather_columns(ranks_, q, parts, head_dim, all_q, true);
  AttentionParams partial = params;
  partial.state = room_for(rows, 2 * heads, state_);
  if (split_.rank > 0) partial.sinks = {};  // a sink counts once
  backend_.attention(step, all_q, ranges, cache, partial, all_out);
  weigh(partial.state, all_out);
  ranks_.all_reduce({all_out.f32(), static_cast<size_t>(rows * all_out.cols)});
  const Matrix mine = all_out.column_range(own.first * value_dim, out.cols);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(mine.f32(r), out.cols, out.f32(r));
}

// Multiplies this rank's results by their share of the softmax over all ranks.
void DividedCache::weigh(const Matrix& state, const Matrix& out) const {
  const int64_t heads = state.cols / 2, value_dim = out.cols / heads, rows = state.rows;
  const auto floats = static_cast<size_t>(rows * state.cols);
  std::vector<float> memory;
  const Matrix states = room_for(split_.ranks * rows, state.cols, memory);
  const std::vector<size_t> parts(static_cast<size_t>(split_.ranks), floats * sizeof(float));
  ranks_.all_gather(state.data, parts, states.data);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto of = [&](int rank) { return states.f32(rank * rows + r) + h; };
      float largest = -INFINITY, sum = 0.0F;
      for (int i = 0; i < split_.ranks; ++i) largest = std::max(largest, of(i)[0]);
      const auto weight = [&](const float* part) {
        return part[heads] == 0.0F ? 0.0F : part[heads] * std::exp(part[0] - largest);
      };
      for (int i = 0; i < split_.ranks; ++i) sum += weight(of(i));
      const float factor = weight(of(split_.rank)) / sum;
      float* const values = out.f32(r) + h * value_dim;
      for (int64_t d = 0; d < value_dim; ++d) values[d] *= factor;
    }
  }
}

void Pass::norm_all_heads(const Layer& layer, const Matrix& x, const Norm& norm,
                          std::vector<Share> LayerSplit::*heads) const {
  if (ranks == nullptr) return backend.norm(x, norm, x);
  const std::vector<Share>& parts = split.layers[layer.index].*heads;
  const int64_t width = layer.spec.attention.head_dim;
  std::vector<float> memory;
  const Matrix all = room_for(x.rows, norm.weight.cols, memory);
  gather_columns(*ranks, x, parts, width, all, true);
  backend.norm(all, norm, all);
  const Matrix own = all.column_range(split.of(parts).first * width, x.cols);
  for (int64_t r = 0; r < x.rows; ++r) std::copy_n(own.f32(r), x.cols, x.f32(r));
}

void Pass::attention(const Layer& layer, const Step& of, const Matrix& q, std::span<const KeyRange> ranges,
                     const Matrix& out) const {
  if (cache != nullptr)
    return cache->attention(layer.index, of, q, ranges, layer.cache, layer.attention, out);
  backend.attention(of, q, ranges, layer.cache, layer.attention, out);
}

}  // namespace lariat
