#include "models/load/weights.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "kernels/convert.h"
#include "kernels/quant.h"
#include "models/load/tensor_names.h"
#include "models/load/weight_source.h"

namespace lariat {
namespace {

struct Counts {
  size_t bytes = 0, token_bytes = 0;
  int64_t values = 0;
  // Keys: dtype, scale type and dtype of rounded inputs.
  std::map<std::tuple<DType, ScaleType, DType>, int64_t> kinds;

  auto most() const {
    return std::ranges::max_element(kinds, {}, [](const auto& kind) { return kind.second; })->first;
  }
};

// A token reads the fraction chosen / of.
void count(const Weight& weight, Counts& counts, int64_t chosen = 1, int64_t of = 1) {
  for (const auto& [w, bias] : weight.blocks) {
    counts.bytes += stored_bytes(w);
    counts.token_bytes += stored_bytes(w) * static_cast<size_t>(chosen) / static_cast<size_t>(of);
    counts.values += w.rows * w.cols * chosen / of;
    counts.kinds[{w.dtype, w.grouping.scales, weight.compute}] += w.rows * w.cols;
  }
}

void count_layer(const LayerSpec& spec, const LayerWeights& layer, Counts& counts) {
  const LatentWeights& latent = layer.latent;
  const ExpertWeights& experts = layer.experts;
  const ExpertsSpec& e = spec.feed_forward.experts;
  for (const Weight* weight :
       {&layer.qkv, &layer.o, &layer.gate_up, &layer.down, &experts.router, &latent.q_a, &latent.kv_a_rope,
        &latent.kv_a, &latent.q_rope, &latent.q_nope, &latent.k_absorb, &latent.v_up}) {
    count(*weight, counts);
  }
  count(latent.k_up, counts, 0);  // read only by long steps
  for (const Weight* weight : {&experts.gate, &experts.up, &experts.down})
    count(*weight, counts, e.router.n_chosen, e.n);
}

float embedding_multiplier(const ModelSpec& spec, DType dtype) {
  if (!spec.round_embedding_multiplier) return spec.embedding_multiplier;
  float rounded = 0.0F;
  store_f32(&rounded, dtype, 0, spec.embedding_multiplier);
  return load_f32(&rounded, dtype, 0);
}

class PlannedWeights : public Source {
 public:
  PlannedWeights(const ModelSpec& spec, std::optional<WeightFormat> requested, const Tensors* checkpoint)
      : spec_(spec), requested_(requested), checkpoint_(checkpoint) {}
  Matrix vector(const Parameter& parameter) override { return shape_of(parameter, DType::kF32); }
  Weight weight(std::span<const Parameter> blocks) override {
    Weight weight;
    for (const Parameter& parameter : blocks) {
      const StoredTensor* tensor = checkpoint_ != nullptr ? checkpoint_->find(parameter.name) : nullptr;
      const WeightFormat own = tensor != nullptr ? tensor->format() : WeightFormat(spec_.dtype);
      if (left_out(parameter.role, stored_format(parameter, requested_, own))) continue;
      const WeightFormat stored = stored_format(parameter, requested_, own_format(parameter, own, spec_));
      weight.blocks.push_back({shape_of(parameter, stored), {}});
    }
    return weight;
  }

 private:
  const ModelSpec& spec_;
  std::optional<WeightFormat> requested_;
  const Tensors* checkpoint_;
};

}  // namespace

Weights read_weights(const ModelSpec& spec, const Tensors* checkpoint, Source& source,
                     std::optional<WeightFormat> requested, const Split& split) {
  const Layout layout = layout_of(spec, checkpoint);
  const Parameter embedding{layout.embed, spec.vocab_size, spec.hidden_size, Role::kEmbedding, {}};
  Parameter tied_head = embedding, head{layout.head, spec.vocab_size, spec.hidden_size, Role::kHead, {}};
  if (split.ranks > 1) tied_head.own_rows = head.own_rows = split.of(split.vocab);
  // A quantised head differs from its embedding table.
  const bool tied = spec.tie_word_embeddings && !(requested && is_quantized(requested->dtype));
  Weights weights;
  if (tied) weights.head = source.weight({&tied_head, 1});
  const bool shared = tied && split.ranks == 1 && !weights.head.blocks[0].w.tiled;
  weights.embed = shared ? weights.head.blocks[0].w : source.table(embedding);
  if (spec.learned_positions)
    weights.positions = source.table({layout.root + spec.names.positions + ".weight",
                                      spec.max_position_embeddings,
                                      spec.hidden_size,
                                      Role::kEmbedding,
                                      {}});
  // Rounded as in a table of floats.
  const DType rounded_as = is_quantized(weights.embed.m.dtype) ? spec.dtype : weights.embed.m.dtype;
  weights.embedding_multiplier = embedding_multiplier(spec, rounded_as);
  for (size_t i = 0; i < spec.layers.size(); ++i)
    weights.layers.push_back(read_layer(spec, i, layout, source, split));
  weights.norm = read_norm(spec, layout.root + spec.names.norm, spec.hidden_size, source);
  if (spec.embedding_norm)
    weights.embedding_norm =
        read_norm(spec, layout.root + spec.names.embedding_norm, spec.hidden_size, source);
  if (!tied) weights.head = source.weight({&head, 1});
  if (spec.head_bias) {
    Parameter bias{layout.head_bias, 1, spec.vocab_size, Role::kVector, {}};
    bias.own_rows = head.own_rows;
    weights.head.blocks[0].bias = source.vector(bias);
  }
  Counts counts;
  for (size_t i = 0; i < weights.layers.size(); ++i) count_layer(spec.layers[i], weights.layers[i], counts);
  std::tie(weights.format.dtype, weights.format.grouping.scales, weights.compute) = counts.most();
  count(weights.head, counts);
  weights.bytes = counts.bytes;
  weights.token_bytes = counts.token_bytes;
  weights.values = counts.values;
  return weights;
}

Weights planned_weights(const ModelSpec& spec, std::optional<WeightFormat> requested,
                        const Tensors* checkpoint) {
  PlannedWeights source(spec, requested, checkpoint);
  return read_weights(spec, checkpoint, source, requested);
}

}  // namespace lariat
