#include "models/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/error.h"
#include "kernels/quant.h"
#include "models/families/gate.h"
#include "models/weight_source.h"

namespace lariat {
namespace {

// A matrix of which a token reads the part chosen / of.
void count(const Matrix& m, Weights& weights, int64_t chosen = 1, int64_t of = 1) {
  weights.bytes += stored_bytes(m);
  weights.token_bytes += stored_bytes(m) * static_cast<size_t>(chosen) / static_cast<size_t>(of);
  weights.values += m.rows * m.cols * chosen / of;
}

void count(const Weight& weight, Weights& weights, int64_t chosen = 1, int64_t of = 1) {
  for (const RowBlock& block : weight.blocks) count(block.w, weights, chosen, of);
}

void count_layer(const LayerSpec& spec, const LayerWeights& layer, Weights& weights) {
  const LatentWeights& latent = layer.latent;
  const ExpertWeights& experts = layer.experts;
  const ExpertsSpec& e = spec.feed_forward.experts;
  for (const Weight* weight :
       {&layer.qkv, &layer.o, &layer.gate_up, &layer.down, &experts.router, &latent.q_a, &latent.kv_a_rope,
        &latent.kv_a, &latent.q_rope, &latent.q_nope, &latent.k_absorb, &latent.v_up}) {
    count(*weight, weights);
  }
  count(latent.k_up, weights, 0);  // read by long steps alone
  for (const Weight* weight : {&experts.gate, &experts.up, &experts.down})
    count(*weight, weights, e.router.n_chosen, e.n);
}

// Full names of the tensors outside the layers, and what those of the layers begin with.
struct Layout {
  std::string root, embed, head;
  std::string own_head;  // the head's name where embedding and head are two; else as `head`
};

// AutoModelForCausalLM saves behind "model.", AutoModel behind nothing, models with an image part behind one
// of the rest. Where embedding and head are one matrix, a checkpoint may hold it under either name.
Layout layout_of(const ModelSpec& spec, const Tensors* checkpoint) {
  const TensorNames& names = spec.names;
  const auto stored = [&](const std::string& name) {
    return checkpoint != nullptr && checkpoint->find(name) != nullptr;
  };
  Layout layout;
  layout.root = names.root;
  for (const char* root : {"", "model.language_model.", "language_model.model."}) {
    if (stored(root + names.embed + ".weight") || stored(root + names.norm + ".weight")) layout.root = root;
  }
  layout.embed = layout.root + names.embed + ".weight";
  layout.own_head =
      (layout.root.starts_with("language_model.") ? "language_model." : "") + names.head + ".weight";
  layout.head = layout.own_head;
  if (spec.tie_word_embeddings) {
    if (!stored(layout.embed) && stored(layout.own_head)) layout.embed = layout.own_head;
    layout.head = layout.embed;
  }
  return layout;
}

float embedding_multiplier(const ModelSpec& spec, DType dtype) {
  if (!spec.round_embedding_multiplier) return spec.embedding_multiplier;
  float rounded = 0.0F;
  store_f32(&rounded, dtype, 0, spec.embedding_multiplier);
  return load_f32(&rounded, dtype, 0);
}

// The shape of the tensor that a parameter is, or is rows of.
std::vector<int64_t> stored_shape(const Parameter& parameter) {
  if (is_vector(parameter.role)) return {std::max(parameter.cols, parameter.part.of)};
  return {std::max(parameter.rows, parameter.part.of), parameter.cols};
}

// The rows of a tensor that a parameter is: in place where they are neighbours, else put together in
// `gathered`.
Matrix rows_of(const StoredTensor& tensor, const Parameter& parameter, std::vector<std::byte>& gathered) {
  const RowRange& part = parameter.part;
  const DType dtype = tensor.float_dtype();
  if (is_vector(parameter.role) && part.of > 0) {  // a column of rows of one element
    const Matrix column =
        rows_of(tensor, {parameter.name, parameter.cols, 1, Role::kProjection, part}, gathered);
    return {column.data, dtype, 1, parameter.cols};
  }
  const Matrix whole(const_cast<std::byte*>(tensor.data), dtype, std::max(parameter.rows, part.of),
                     parameter.cols);
  if (part.of == 0 || part.run == parameter.rows) return whole.row_range(part.first, parameter.rows);
  const size_t run_bytes = static_cast<size_t>(part.run * parameter.cols) * size_of(dtype);
  for (int64_t row = part.first, taken = 0; taken < parameter.rows; row += part.stride, taken += part.run) {
    const auto* from = static_cast<const std::byte*>(whole.row_range(row, part.run).data);
    gathered.insert(gathered.end(), from, from + run_bytes);
  }
  return {gathered.data(), dtype, parameter.rows, parameter.cols};
}

// A matrix whose place and dtype are known, in the shape that is handed out.
Matrix shaped(const Parameter& parameter, void* data, DType dtype) {
  return parameter.transposed ? Matrix(data, dtype, parameter.cols, parameter.rows)
                              : Matrix(data, dtype, parameter.rows, parameter.cols);
}

// The norm's weight as f32, plus one.
std::vector<float> plus_one(const StoredTensor& tensor, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i)
    values[static_cast<size_t>(i)] = 1.0F + load_f32(tensor.data, tensor.float_dtype(), i);
  return values;
}

// A tied model whose checkpoint holds a head as well: where the two differ, transformers 5 leaves them apart
// (modeling_utils.py, tie_weights). Returns the head's name where they are equal, so that it needs no
// reading.
std::string compare_tied(ModelSpec& spec, const Tensors& checkpoint) {
  if (!spec.tie_word_embeddings) return "";
  const Layout layout = layout_of(spec, &checkpoint);
  const StoredTensor* embed = checkpoint.find(layout.embed);
  const StoredTensor* head = checkpoint.find(layout.own_head);
  if (embed == nullptr || head == nullptr || embed == head) return "";
  if (embed->dtype == head->dtype && embed->shape == head->shape &&
      std::memcmp(embed->data, head->data, embed->bytes) == 0) {
    return head->name;
  }
  spec.tie_word_embeddings = false;
  spec.warnings.push_back(
      head->file.string() + ": tensor '" + head->name + "' differs from '" + embed->name +
      "', so the two are not tied, as in transformers, though \"tie_word_embeddings\" of " +
      spec.file.string() + ", or its default, says so");
  return "";
}

// A checkpoint without norms of q and k is of the kind that has none.
void forget_absent_qk_norms(ModelSpec& spec, const Layout& layout, const Tensors& checkpoint) {
  const std::string name = layout.root + fmt::format(fmt::runtime(spec.names.layer), 0) + spec.names.q_norm;
  if (checkpoint.find(name + ".weight") != nullptr) return;
  for (LayerSpec& layer : spec.layers) layer.attention.qk_norm = QkNorm::kNone;
}

// NaN and infinity have every bit of the exponent set. The file may hold its elements on any byte.
template <class Bits>
int64_t count_not_finite(const StoredTensor& tensor, Bits exponent) {
  int64_t count = 0;
  for (size_t at = 0; at + sizeof(Bits) <= tensor.bytes; at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, tensor.data + at, sizeof bits);
    count += (bits & exponent) == exponent ? 1 : 0;
  }
  return count;
}

// Names and checks the tensors that a model reads, and reads none.
class CheckedTensors : public Source {
 public:
  explicit CheckedTensors(const Tensors& checkpoint) : checkpoint_(checkpoint) {}
  Matrix vector(const Parameter& parameter) override {
    const StoredTensor& tensor = checkpoint_.check(parameter.name, stored_shape(parameter));
    names.insert(parameter.name);
    return shaped(parameter, nullptr, tensor.float_dtype());
  }
  Weight weight(std::span<const Parameter> blocks) override {
    Weight weight;
    for (const Parameter& parameter : blocks) weight.blocks.push_back({vector(parameter), {}});
    return weight;
  }

  std::set<std::string> names;

 private:
  const Tensors& checkpoint_;
};

// Weights without data.
class PlannedWeights : public Source {
 public:
  PlannedWeights(const ModelSpec& spec, DType dtype) : spec_(spec), dtype_(dtype) {}
  Matrix vector(const Parameter& parameter) override { return shaped(parameter, nullptr, DType::kF32); }
  Weight weight(std::span<const Parameter> blocks) override {
    Weight weight;
    for (const Parameter& parameter : blocks) {
      const DType stored = stored_dtype(parameter.role, dtype_, spec_.dtype);
      if (!left_out(parameter.role, stored))
        weight.blocks.push_back({shaped(parameter, nullptr, stored), {}});
    }
    return weight;
  }

 private:
  const ModelSpec& spec_;
  DType dtype_;
};

// The weights of a checkpoint.
class CheckpointWeights : public WeightLoader {
 public:
  CheckpointWeights(const ModelSpec& spec, const Tensors& checkpoint, Backend& backend,
                    std::optional<DType> dtype)
      : WeightLoader(spec, backend, dtype), spec_(spec), checkpoint_(checkpoint) {}

 private:
  const StoredTensor& tensor(const Parameter& parameter) const {
    return checkpoint_.get(parameter.name, stored_shape(parameter));
  }
  DType own_dtype(const Parameter& parameter) const override { return tensor(parameter).float_dtype(); }
  Matrix host(const Parameter& parameter, std::vector<std::byte>& made) override {
    if (parameter.role != Role::kNorm || !spec_.norm_plus_one)
      return rows_of(tensor(parameter), parameter, made);
    const std::vector<float> values = plus_one(tensor(parameter), parameter.cols);
    made.resize(values.size() * sizeof(float));
    std::memcpy(made.data(), values.data(), made.size());
    return {made.data(), DType::kF32, 1, parameter.cols};
  }
  void give_back(const Parameter& parameter) override { checkpoint_.give_back(tensor(parameter)); }

  const ModelSpec& spec_;
  const Tensors& checkpoint_;
};

}  // namespace

Weights read_weights(const ModelSpec& spec, const Tensors* checkpoint, Source& source) {
  const Layout layout = layout_of(spec, checkpoint);
  const auto table = [&](const std::string& name, Role role) {
    const Parameter parameter{name, spec.vocab_size, spec.hidden_size, role, {}};
    return source.weight({&parameter, 1});
  };
  Weights weights;
  const Weight embedding = table(layout.embed, Role::kEmbedding);
  weights.embed = embedding.blocks[0].w;
  weights.embedding_multiplier = embedding_multiplier(spec, weights.embed.dtype);
  for (size_t i = 0; i < spec.layers.size(); ++i)
    weights.layers.push_back(read_layer(spec, i, layout.root, source));
  weights.norm = read_norm(spec, layout.root + spec.names.norm, spec.hidden_size, source);
  if (spec.embedding_norm)
    weights.embedding_norm =
        read_norm(spec, layout.root + spec.names.embedding_norm, spec.hidden_size, source);
  weights.dtype = weights.layers[0].o.blocks[0].w.dtype;
  const bool tied = spec.tie_word_embeddings && !is_quantized(weights.dtype);
  weights.head = tied ? embedding : table(layout.head, Role::kHead);
  count(weights.head, weights);
  for (size_t i = 0; i < weights.layers.size(); ++i) count_layer(spec.layers[i], weights.layers[i], weights);
  return weights;
}

std::set<std::string> check_weights(ModelSpec& spec, const Tensors& checkpoint) {
  refuse_foreign_tensors(checkpoint);
  const std::string equal_head = compare_tied(spec, checkpoint);
  const Layout layout = layout_of(spec, &checkpoint);
  if (spec.qk_norm_if_stored) forget_absent_qk_norms(spec, layout, checkpoint);
  CheckedTensors source(checkpoint);
  read_weights(spec, &checkpoint, source);
  std::set<std::string> accounted = source.names;
  accounted.insert(equal_head);
  check_unread_tensors(spec, checkpoint, accounted);
  return source.names;
}

Weights load_weights(const ModelSpec& spec, const Tensors& checkpoint, Backend& backend,
                     std::optional<DType> dtype) {
  CheckpointWeights source(spec, checkpoint, backend, dtype);
  return source.finish(read_weights(spec, &checkpoint, source));
}

std::optional<NotFinite> find_not_finite(const Tensors& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.all()) {
    if (name.ends_with(".attention.masked_bias")) continue;  // of old GPT-NeoX files: -inf in f16, and unread
    int64_t found = 0;
    size_t element = 2;
    if (tensor.dtype == "F32") {
      found = count_not_finite<uint32_t>(tensor, 0x7F800000U);
      element = 4;
    } else if (tensor.dtype == "BF16") {
      found = count_not_finite<uint16_t>(tensor, 0x7F80U);
    } else if (tensor.dtype == "F16") {
      found = count_not_finite<uint16_t>(tensor, 0x7C00U);
    }
    if (found > 0) return NotFinite{name, tensor.file, found, static_cast<int64_t>(tensor.bytes / element)};
  }
  return std::nullopt;
}

Weights planned_weights(const ModelSpec& spec, DType dtype) {
  PlannedWeights source(spec, dtype);
  return read_weights(spec, nullptr, source);
}

}  // namespace lariat
