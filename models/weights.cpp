#include "models/weights.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "kernels/convert.h"
#include "kernels/error.h"
#include "kernels/quant.h"
#include "models/families/gate.h"

namespace lariat {
namespace {

enum class Role { kEmbedding, kProjection, kHead, kVector, kNorm };

bool is_vector(Role role) { return role == Role::kVector || role == Role::kNorm; }

// Rows of a tensor of `of` rows: `run` from `first` on, then from first + stride, and so on until there are
// as many as wanted.
struct RowRange {
  int64_t of = 0, first = 0, run = 0, stride = 0;
};

// A matrix of a model. rows x cols as [out_features, in_features]; a vector has one row.
struct Wanted {
  std::string name;
  int64_t rows = 0, cols = 0;
  Role role = Role::kVector;
  RowRange part;  // where of > rows: which of the tensor's rows
};

// Where matrices come from: a checkpoint, or a random generator.
using Source = std::function<Matrix(const Wanted& wanted)>;

// What a matrix is stored as when projections are `dtype` and the checkpoint holds `own`.
DType stored_dtype(Role role, std::optional<DType> dtype, DType own) {
  if (is_vector(role)) return DType::kF32;  // tiny and read by f32 code: f32 once and for all
  if (!dtype || (role == Role::kEmbedding && is_quantized(*dtype))) return own;
  return role == Role::kHead && is_quantized(*dtype) ? DType::kQ8 : *dtype;
}

// Reads the tensors of one layer.
struct LayerReader {
  const ModelSpec& spec;
  const LayerSpec& layer;
  const Source& source;
  std::string prefix;

  const AttentionSpec& attention = layer.attention;
  int64_t hidden = spec.hidden_size, inner = layer.feed_forward.intermediate_size;
  int64_t q_size = attention.n_heads * attention.head_dim,
          kv_size = attention.n_kv_heads * attention.head_dim;

  Matrix matrix(const std::string& name, int64_t out, int64_t in, const RowRange& part = {}) const {
    return source({prefix + name + ".weight", out, in, Role::kProjection, part});
  }
  Matrix norm(const std::string& name, int64_t size, bool present = true) const {
    return present ? source({prefix + name + ".weight", 1, size, Role::kNorm, {}}) : Matrix{};
  }
  Matrix bias(const std::string& name, int64_t size, bool present) const {
    return present ? source({prefix + name + ".bias", 1, size, Role::kVector, {}}) : Matrix{};
  }

  // Of q (0), k (1) or v (2), where the three are one tensor.
  RowRange qkv_part(int which) const {
    const TensorNames& names = spec.names;
    if (names.q != names.k) return {};
    const int64_t all = q_size + 2 * kv_size, size = which == 0 ? q_size : kv_size;
    if (!names.qkv_by_kv_head) return {all, which == 0 ? 0 : q_size + (which - 1) * kv_size, size, all};
    const int64_t groups = attention.n_kv_heads, q_run = q_size / groups, run = size / groups;
    return {all, which == 0 ? 0 : q_run + (which - 1) * run, run, all / groups};
  }

  void read_attention(LayerWeights& to) const {
    const TensorNames& names = spec.names;
    to.attention_norm = norm(names.attention_norm, hidden, layer.norm_before);
    to.q_proj = matrix(names.q, q_size, hidden, qkv_part(0));
    to.k_proj = matrix(names.k, kv_size, hidden, qkv_part(1));
    to.v_proj = matrix(names.v, kv_size, hidden, qkv_part(2));
    to.o_proj = matrix(names.o, hidden, q_size);
    to.qkv.q_bias = bias(names.q, q_size, attention.qkv_bias);
    to.qkv.k_bias = bias(names.k, kv_size, attention.qkv_bias);
    to.qkv.v_bias = bias(names.v, kv_size, attention.qkv_bias);
    to.o_bias = bias(names.o, hidden, attention.o_bias);
    const bool heads = attention.qk_norm == QkNorm::kPerHead, all = attention.qk_norm == QkNorm::kAllHeads;
    to.qkv.q_norm = norm(names.q_norm, attention.head_dim, heads);
    to.qkv.k_norm = norm(names.k_norm, attention.head_dim, heads);
    to.qkv.norm_eps = spec.norm_eps;
    to.q_norm = norm(names.q_norm, q_size, all);
    to.k_norm = norm(names.k_norm, kv_size, all);
    to.attention_post_norm = norm(names.attention_post_norm, hidden, layer.norm_after);
  }

  void read_feed_forward(LayerWeights& to) const {
    const TensorNames& names = spec.names;
    const bool bias_too = layer.feed_forward.bias, fused = names.gate == names.up;
    to.ffn_norm = norm(names.ffn_norm, hidden, layer.norm_before);
    to.gate_proj = matrix(names.gate, inner, hidden, fused ? RowRange{2 * inner, 0, inner, 0} : RowRange{});
    to.up_proj = matrix(names.up, inner, hidden, fused ? RowRange{2 * inner, inner, inner, 0} : RowRange{});
    to.down_proj = matrix(names.down, hidden, inner);
    to.gate_bias = bias(names.gate, inner, bias_too);
    to.up_bias = bias(names.up, inner, bias_too);
    to.down_bias = bias(names.down, hidden, bias_too);
    to.ffn_post_norm = norm(names.ffn_post_norm, hidden, layer.norm_after);
  }
};

Matrix keep(Weight weight, std::vector<Buffer>& memory) {
  if (weight.memory.data() != nullptr) memory.push_back(std::move(weight.memory));
  return weight.matrix;
}

// A weight whose host memory goes away.
Matrix keep_copy(const Matrix& host, DType dtype, Backend& backend, std::vector<Buffer>& memory) {
  Weight weight = backend.load_weight(host, dtype);
  if (weight.memory.data() == nullptr) {
    weight.memory = backend.allocate(stored_bytes(host));
    backend.copy_in(weight.memory.data(), host.data, stored_bytes(host));
    weight.matrix.data = weight.memory.data();
  }
  return keep(std::move(weight), memory);
}

void count(const Matrix& m, Weights& weights) {
  weights.bytes += stored_bytes(m);
  weights.values += m.rows * m.cols;
}

// Full names of the tensors outside the layers, and what those of the layers begin with.
struct Layout {
  std::string root, embed, head;
  std::string own_head;  // the head's name where embedding and head are two; else as `head`
};

// AutoModelForCausalLM saves behind "model.", AutoModel behind nothing, models with an image part behind one
// of the rest. Where embedding and head are one matrix, a checkpoint may hold it under either name.
Layout layout_of(const ModelSpec& spec, const Checkpoint* checkpoint) {
  const TensorNames& names = spec.names;
  const auto stored = [&](const std::string& name) {
    return checkpoint != nullptr && checkpoint->find(name) != nullptr;
  };
  Layout layout;
  layout.root = "model.";
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

LayerWeights layer_weights(const ModelSpec& spec, size_t index, const std::string& root,
                           const Source& source) {
  const LayerReader reader{spec, spec.layers[index], source,
                           root + fmt::format(fmt::runtime(spec.names.layer), index)};
  LayerWeights layer;
  reader.read_attention(layer);
  reader.read_feed_forward(layer);
  return layer;
}

float embedding_multiplier(const ModelSpec& spec, DType dtype) {
  if (!spec.round_embedding_multiplier) return spec.embedding_multiplier;
  float rounded = 0.0F;
  store_f32(&rounded, dtype, 0, spec.embedding_multiplier);
  return load_f32(&rounded, dtype, 0);
}

Weights all_weights(const ModelSpec& spec, const Layout& layout, const Source& source) {
  Weights weights;
  weights.embed = source({layout.embed, spec.vocab_size, spec.hidden_size, Role::kEmbedding, {}});
  weights.embedding_multiplier = embedding_multiplier(spec, weights.embed.dtype);
  for (size_t i = 0; i < spec.layers.size(); ++i)
    weights.layers.push_back(layer_weights(spec, i, layout.root, source));
  weights.norm = source({layout.root + spec.names.norm + ".weight", 1, spec.hidden_size, Role::kNorm, {}});
  weights.dtype = weights.layers[0].q_proj.dtype;
  if (spec.tie_word_embeddings && !is_quantized(weights.dtype)) {
    weights.head = weights.embed;
  } else {
    weights.head = source({layout.head, spec.vocab_size, spec.hidden_size, Role::kHead, {}});
  }
  count(weights.head, weights);
  for (const auto& layer : weights.layers) {
    for (const Matrix* m : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj, &layer.gate_proj,
                            &layer.up_proj, &layer.down_proj}) {
      count(*m, weights);
    }
  }
  return weights;
}

// The shape of the tensor that a wanted matrix is, or is rows of.
std::vector<int64_t> stored_shape(const Wanted& wanted) {
  if (is_vector(wanted.role)) return {wanted.cols};
  return {std::max(wanted.rows, wanted.part.of), wanted.cols};
}

// The wanted rows of a tensor: in place where they are neighbours, else put together in `gathered`.
Matrix rows_of(const StoredTensor& tensor, const Wanted& wanted, std::vector<std::byte>& gathered) {
  const RowRange& part = wanted.part;
  const DType dtype = tensor.float_dtype();
  const Matrix whole(const_cast<std::byte*>(tensor.data), dtype, std::max(wanted.rows, part.of), wanted.cols);
  if (part.of == 0 || part.run == wanted.rows) return whole.row_range(part.first, wanted.rows);
  const size_t run_bytes = static_cast<size_t>(part.run * wanted.cols) * size_of(dtype);
  for (int64_t row = part.first, taken = 0; taken < wanted.rows; row += part.stride, taken += part.run) {
    const auto* from = static_cast<const std::byte*>(whole.row_range(row, part.run).data);
    gathered.insert(gathered.end(), from, from + run_bytes);
  }
  return {gathered.data(), dtype, wanted.rows, wanted.cols};
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
std::string compare_tied(ModelSpec& spec, const Checkpoint& checkpoint) {
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
  spec.warnings.push_back(head->file.string() + ": tensor '" + head->name + "' differs from '" + embed->name +
                          "', so the two are not tied, as in transformers, though " + spec.file.string() +
                          " says \"tie_word_embeddings\"");
  return "";
}

// A checkpoint without norms of q and k is of the kind that has none.
void forget_absent_qk_norms(ModelSpec& spec, const Layout& layout, const Checkpoint& checkpoint) {
  const std::string name = layout.root + fmt::format(fmt::runtime(spec.names.layer), 0) + spec.names.q_norm;
  if (checkpoint.find(name + ".weight") != nullptr) return;
  for (LayerSpec& layer : spec.layers) layer.attention.qk_norm = QkNorm::kNone;
}

// splitmix64 (public domain, Vigna): fast enough to fill gigabytes, and the same everywhere.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Values of either sign below 2^-exponent: random sign and mantissa, and one of four exponents with equal
// chances, put together from bits, so that each dtype is filled at memory speed.
void fill_random(std::byte* out, size_t count, DType dtype, int exponent, uint64_t& state) {
  const int bias = dtype == DType::kF16 ? 15 : 127;
  const int mantissa_bits = dtype == DType::kF32 ? 23 : dtype == DType::kBF16 ? 7 : 10;
  const int sign_bit = dtype == DType::kF32 ? 31 : 15;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t random = next_random(state);
    const uint32_t mantissa = static_cast<uint32_t>(random) & ((1U << mantissa_bits) - 1);
    const uint32_t biased =
        static_cast<uint32_t>(std::max(1, bias - exponent - static_cast<int>(random >> 62)));
    const uint32_t bits =
        (static_cast<uint32_t>(random >> 40) & 1U) << sign_bit | biased << mantissa_bits | mantissa;
    if (dtype == DType::kF32) {
      std::memcpy(out + i * 4, &bits, 4);
    } else {
      const auto half = static_cast<uint16_t>(bits);
      std::memcpy(out + i * 2, &half, 2);
    }
  }
}

void check_quantizes(const Backend& backend, std::optional<DType> dtype) {
  if (dtype && is_quantized(*dtype) && !backend.quantizes()) {
    throw Error("weights in " + std::string(name_of(*dtype)) + " do not run on " + backend.name() + " yet",
                Remedy::kNotQuantized);
  }
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

}  // namespace

std::set<std::string> check_weights(ModelSpec& spec, const Checkpoint& checkpoint) {
  refuse_foreign_tensors(checkpoint);
  const std::string equal_head = compare_tied(spec, checkpoint);
  std::set<std::string> names;
  const Source source = [&](const Wanted& wanted) {
    const StoredTensor& tensor = checkpoint.check(wanted.name, stored_shape(wanted));
    names.insert(wanted.name);
    return Matrix(nullptr, tensor.float_dtype(), wanted.rows, wanted.cols);
  };
  const Layout layout = layout_of(spec, &checkpoint);
  if (spec.qk_norm_if_stored) forget_absent_qk_norms(spec, layout, checkpoint);
  all_weights(spec, layout, source);
  std::set<std::string> accounted = names;
  accounted.insert(equal_head);
  check_unread_tensors(spec, checkpoint, accounted);
  return names;
}

Weights load_weights(const ModelSpec& spec, const Checkpoint& checkpoint, Backend& backend,
                     std::optional<DType> dtype) {
  check_quantizes(backend, dtype);
  std::vector<Buffer> memory;
  const Source source = [&](const Wanted& wanted) {
    const StoredTensor& tensor = checkpoint.get(wanted.name, stored_shape(wanted));
    if (wanted.role == Role::kNorm && spec.norm_plus_one) {
      std::vector<float> values = plus_one(tensor, wanted.cols);
      return keep_copy(Matrix(values.data(), DType::kF32, 1, wanted.cols), DType::kF32, backend, memory);
    }
    std::vector<std::byte> gathered;
    const Matrix host = rows_of(tensor, wanted, gathered);
    const DType stored = stored_dtype(wanted.role, dtype, host.dtype);
    return gathered.empty() ? keep(backend.load_weight(host, stored), memory)
                            : keep_copy(host, stored, backend, memory);
  };
  Weights weights = all_weights(spec, layout_of(spec, &checkpoint), source);
  weights.memory = std::move(memory);
  return weights;
}

std::optional<NotFinite> find_not_finite(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
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
  const Source source = [&](const Wanted& wanted) {
    return Matrix(nullptr, stored_dtype(wanted.role, dtype, spec.dtype), wanted.rows, wanted.cols);
  };
  return all_weights(spec, layout_of(spec, nullptr), source);
}

Weights random_weights(const ModelSpec& spec, Backend& backend, DType dtype, uint64_t seed,
                       std::vector<std::vector<std::byte>>& storage) {
  check_quantizes(backend, dtype);
  std::vector<Buffer> memory;
  const Source source = [&](const Wanted& wanted) {
    const DType stored = stored_dtype(wanted.role, dtype, spec.dtype);
    const DType drawn = is_quantized(stored) ? spec.dtype : stored;
    const auto size = static_cast<size_t>(wanted.rows * wanted.cols);
    auto& bytes = storage.emplace_back(size * size_of(drawn));
    const double width = std::sqrt(static_cast<double>(wanted.cols));
    fill_random(bytes.data(), size, drawn,
                is_vector(wanted.role) ? 0 : static_cast<int>(std::lround(std::log2(width))), seed);
    Weight weight = backend.load_weight(Matrix(bytes.data(), drawn, wanted.rows, wanted.cols), stored);
    if (weight.matrix.data != bytes.data()) storage.pop_back();
    return keep(std::move(weight), memory);
  };
  Weights weights = all_weights(spec, layout_of(spec, nullptr), source);
  weights.memory = std::move(memory);
  return weights;
}

}  // namespace lariat
