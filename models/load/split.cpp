#include "models/load/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "models/load/weights.h"

namespace lariat {
namespace {

using Shares = std::vector<Share>;

// Divides `total` into equal parts of whole units; nothing if a part would be empty.
std::optional<Shares> divide(int64_t total, int64_t unit, int64_t ranks) {
  Shares parts;
  const int64_t units = total / unit;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t first = units * r / ranks * unit,
                  end = r + 1 == ranks ? total : units * (r + 1) / ranks * unit;
    parts.push_back({first, end - first});
  }
  if (units < ranks) return {};
  return parts;
}

// Columns that a weight's format keeps together.
int64_t unit_of(const Weight& weight) {
  if (!weight) return 1;
  const WeightFormat format = weight.blocks[0].w.format();
  if (!is_quantized(format.dtype)) return 1;
  return format.grouping.unit();
}

// Divides heads of `width` columns of o. More ranks than KV heads: each KV head has several ranks.
bool divide_heads(const AttentionSpec& spec, int64_t width, int64_t unit, int64_t ranks, LayerSplit& to) {
  const int64_t kv_heads = spec.n_kv_heads, group = spec.n_heads / kv_heads;
  const auto unit_heads = [&](int64_t columns) { return unit / std::gcd(unit, columns); };
  if (ranks <= kv_heads) {
    const auto parts = divide(kv_heads, unit_heads(group * width), ranks);
    if (!parts) return false;
    to.kv_heads = *parts;
    for (const Share& part : *parts) to.heads.push_back({part.first * group, part.count * group});
    return true;
  }
  if (spec.qk_norm == QkNorm::kAllHeads || group * width % unit != 0) return false;
  for (int64_t kv = 0; kv < kv_heads; ++kv) {
    const int64_t own_ranks = ranks * (kv + 1) / kv_heads - ranks * kv / kv_heads;
    const auto parts = divide(group, unit_heads(width), own_ranks);
    if (!parts) return false;
    for (const Share& part : *parts) {
      to.heads.push_back({kv * group + part.first, part.count});
      to.kv_heads.push_back({kv, 1});
    }
  }
  return true;
}

std::optional<Shares> divide_inner(int64_t inner, int64_t unit, int64_t ranks) {
  if (inner == 0) return Shares(static_cast<size_t>(ranks));
  constexpr int64_t kVector = 32;  // whole vectors and tiles, if there are enough
  return divide(inner, unit == 1 && inner % kVector == 0 && inner / kVector >= ranks ? kVector : unit, ranks);
}

std::optional<LayerSplit> split_layer(const LayerSpec& spec, const LayerWeights& planned, int64_t ranks) {
  LayerSplit split;
  const AttentionSpec& attention = spec.attention;
  const FeedForwardSpec& ffn = spec.feed_forward;
  const int64_t width = attention.latent ? attention.latent.v_dim : attention.head_dim;
  if (!divide_heads(attention, width, unit_of(planned.o), ranks, split)) return {};
  const auto inner = divide_inner(ffn.intermediate_size, unit_of(planned.down), ranks);
  const auto experts = divide_inner(ffn.experts.n > 0 ? ffn.experts.intermediate_size : 0,
                                    unit_of(planned.experts.down), ranks);
  if (!inner || !experts) return {};
  split.inner = *inner, split.expert_inner = *experts;
  return split;
}

std::optional<Split> try_split(const ModelSpec& spec, const Weights& planned, const Place& place) {
  Split split{place, {}, {}};
  const auto vocab = divide(spec.vocab_size, 1, place.ranks);
  if (!vocab) return {};
  split.vocab = *vocab;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto layer = split_layer(spec.layers[i], planned.layers[i], place.ranks);
    if (!layer) return {};
    split.layers.push_back(*layer);
  }
  return split;
}

}  // namespace

Split split_of(const ModelSpec& spec, const Weights& planned, const Place& place) {
  if (auto split = try_split(spec, planned, place)) return *split;
  int most = place.ranks - 1;
  while (most > 1 && !try_split(spec, planned, {0, most})) --most;
  throw Error(
      fmt::format("{}: heads, inner values and groups of quantized weights cannot be divided among {} "
                  "ranks; start at most {}",
                  spec.file.string(), place.ranks, most));
}

ModelSpec part_of(const ModelSpec& spec, const Split& split) {
  ModelSpec part = spec;
  for (size_t i = 0; i < part.layers.size(); ++i) {
    const LayerSplit& own = split.layers[i];
    AttentionSpec& attention = part.layers[i].attention;
    attention.n_heads = split.of(own.heads).count;
    attention.n_kv_heads = split.of(own.kv_heads).count;
    part.layers[i].feed_forward.intermediate_size = split.of(own.inner).count;
    part.layers[i].feed_forward.experts.intermediate_size = split.of(own.expert_inner).count;
  }
  if (!spec.alibi_slopes.empty() && !split.by_sequence) {
    const auto first = spec.alibi_slopes.begin() + split.of(split.layers[0].heads).first;
    part.alibi_slopes.assign(first, first + split.of(split.layers[0].heads).count);
  }
  return part;
}

void gather_columns(Communicator& ranks, const Matrix& mine, const std::vector<Share>& parts, int64_t width,
                    const Matrix& all, bool to_every_rank) {
  const auto floats = [&](const Share& part) { return static_cast<size_t>(mine.rows * part.count * width); };
  std::vector<float> packed(static_cast<size_t>(mine.rows * mine.cols)), from;
  for (int64_t r = 0; r < mine.rows; ++r) std::copy_n(mine.f32(r), mine.cols, packed.data() + r * mine.cols);
  std::vector<size_t> bytes;
  bytes.reserve(parts.size());
  for (const Share& part : parts) bytes.push_back(floats(part) * sizeof(float));
  const bool receives = to_every_rank || ranks.rank() == 0;
  if (receives) from.resize(std::accumulate(bytes.begin(), bytes.end(), size_t{0}) / sizeof(float));
  if (to_every_rank) {
    ranks.all_gather(packed.data(), bytes, from.data());
  } else {
    ranks.gather(packed.data(), bytes, from.data());
  }
  if (!receives) return;
  const float* next = from.data();
  for (const Share& part : parts) {
    for (int64_t r = 0; r < mine.rows; ++r, next += part.count * width)
      std::copy_n(next, part.count * width, all.f32(r) + part.first * width);
  }
}

}  // namespace lariat
