#include "models/weights.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "kernels/error.h"
#include "kernels/quant.h"
#include "models/families/gate.h"

namespace lariat {
namespace {

enum class Role { kEmbedding, kProjection, kHead, kVector };

// Where matrices come from: a checkpoint, or a random generator. rows x cols as [out_features, in_features];
// a vector has one row.
using Source = std::function<Matrix(const std::string& name, int64_t rows, int64_t cols, Role role)>;

// What a matrix is stored as when projections are `dtype` and the checkpoint holds `own`.
DType stored_dtype(Role role, std::optional<DType> dtype, DType own) {
  if (role == Role::kVector) return DType::kF32;  // tiny and read by f32 code: f32 once and for all
  if (!dtype || (role == Role::kEmbedding && is_quantized(*dtype))) return own;
  return role == Role::kHead && is_quantized(*dtype) ? DType::kQ8 : *dtype;
}

LayerWeights layer_weights(const ModelSpec& spec, size_t index, const std::string& root,
                           const Source& source) {
  const AttentionSpec& attention = spec.layers[index].attention;
  const FeedForwardSpec& ffn = spec.layers[index].feed_forward;
  const TensorNames& names = spec.names;
  const std::string prefix = root + fmt::format(fmt::runtime(names.layer), index);
  const int64_t hidden = spec.hidden_size, inner = ffn.intermediate_size;
  const int64_t q_size = attention.n_heads * attention.head_dim,
                kv_size = attention.n_kv_heads * attention.head_dim;
  const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
    return source(prefix + name + ".weight", out, in, Role::kProjection);
  };
  const auto vector = [&](const std::string& name, const char* kind, int64_t size, bool present = true) {
    return present ? source(prefix + name + kind, 1, size, Role::kVector) : Matrix{};
  };
  LayerWeights layer;
  layer.attention_norm = vector(names.attention_norm, ".weight", hidden);
  layer.q_proj = matrix(names.q, q_size, hidden);
  layer.k_proj = matrix(names.k, kv_size, hidden);
  layer.v_proj = matrix(names.v, kv_size, hidden);
  layer.o_proj = matrix(names.o, hidden, q_size);
  layer.qkv.q_bias = vector(names.q, ".bias", q_size, attention.qkv_bias);
  layer.qkv.k_bias = vector(names.k, ".bias", kv_size, attention.qkv_bias);
  layer.qkv.v_bias = vector(names.v, ".bias", kv_size, attention.qkv_bias);
  layer.qkv.q_norm = vector(names.q_norm, ".weight", attention.head_dim, attention.qk_norm);
  layer.qkv.k_norm = vector(names.k_norm, ".weight", attention.head_dim, attention.qk_norm);
  layer.qkv.norm_eps = spec.norm_eps;
  layer.o_bias = vector(names.o, ".bias", hidden, attention.o_bias);
  layer.ffn_norm = vector(names.ffn_norm, ".weight", hidden);
  layer.gate_proj = matrix(names.gate, inner, hidden);
  layer.up_proj = matrix(names.up, inner, hidden);
  layer.down_proj = matrix(names.down, hidden, inner);
  layer.gate_bias = vector(names.gate, ".bias", inner, ffn.bias);
  layer.up_bias = vector(names.up, ".bias", inner, ffn.bias);
  layer.down_bias = vector(names.down, ".bias", hidden, ffn.bias);
  return layer;
}

Matrix keep(Weight weight, std::vector<Buffer>& memory) {
  if (weight.memory.data() != nullptr) memory.push_back(std::move(weight.memory));
  return weight.matrix;
}

void count(const Matrix& m, Weights& weights) {
  weights.bytes += stored_bytes(m);
  weights.values += m.rows * m.cols;
}

// Full names of the tensors outside the layers, and what those of the layers begin with.
struct Layout {
  std::string root, embed, head;
};

// AutoModel saves without the "model." prefix, AutoModelForCausalLM with it. Where embedding and head are one
// matrix, a checkpoint may hold it under either name.
Layout layout_of(const ModelSpec& spec, const Checkpoint* checkpoint) {
  const TensorNames& names = spec.names;
  const auto stored = [&](const std::string& name) {
    return checkpoint != nullptr && checkpoint->find(name) != nullptr;
  };
  const std::string embed = names.embed + ".weight", head = names.head + ".weight";
  const std::string root = stored(embed) || stored(names.norm + ".weight") ? "" : "model.";
  if (!spec.tie_word_embeddings) return {root, root + embed, head};
  const std::string one = !stored(root + embed) && stored(head) ? head : root + embed;
  return {root, one, one};
}

Weights all_weights(const ModelSpec& spec, const Layout& layout, const Source& source) {
  Weights weights;
  weights.embed = source(layout.embed, spec.vocab_size, spec.hidden_size, Role::kEmbedding);
  for (size_t i = 0; i < spec.layers.size(); ++i)
    weights.layers.push_back(layer_weights(spec, i, layout.root, source));
  weights.norm = source(layout.root + spec.names.norm + ".weight", 1, spec.hidden_size, Role::kVector);
  weights.dtype = weights.layers[0].q_proj.dtype;
  if (spec.tie_word_embeddings && !is_quantized(weights.dtype)) {
    weights.head = weights.embed;
  } else {
    weights.head = source(layout.head, spec.vocab_size, spec.hidden_size, Role::kHead);
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

// A tied model whose checkpoint holds a head as well: where the two differ, transformers 5 leaves them apart
// (modeling_utils.py, tie_weights). Returns the head's name where they are equal, so that it needs no
// reading.
std::string compare_tied(ModelSpec& spec, const Checkpoint& checkpoint) {
  if (!spec.tie_word_embeddings) return "";
  const StoredTensor* embed = checkpoint.find(layout_of(spec, &checkpoint).embed);
  const StoredTensor* head = checkpoint.find(spec.names.head + ".weight");
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
  const Source source = [&](const std::string& name, int64_t rows, int64_t cols, Role role) {
    const auto& tensor =
        role == Role::kVector ? checkpoint.check(name, {cols}) : checkpoint.check(name, {rows, cols});
    names.insert(name);
    return Matrix(nullptr, tensor.float_dtype(), rows, cols);
  };
  all_weights(spec, layout_of(spec, &checkpoint), source);
  std::set<std::string> accounted = names;
  accounted.insert(equal_head);
  check_unread_tensors(spec, checkpoint, accounted);
  return names;
}

Weights load_weights(const ModelSpec& spec, const Checkpoint& checkpoint, Backend& backend,
                     std::optional<DType> dtype) {
  check_quantizes(backend, dtype);
  std::vector<Buffer> memory;
  const Source source = [&](const std::string& name, int64_t rows, int64_t cols, Role role) {
    const auto& tensor =
        role == Role::kVector ? checkpoint.get(name, {cols}) : checkpoint.get(name, {rows, cols});
    const Matrix host(const_cast<std::byte*>(tensor.data), tensor.float_dtype(), rows, cols);
    return keep(backend.load_weight(host, stored_dtype(role, dtype, host.dtype)), memory);
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
  const Source source = [&](const std::string&, int64_t rows, int64_t cols, Role role) {
    return Matrix(nullptr, stored_dtype(role, dtype, spec.dtype), rows, cols);
  };
  return all_weights(spec, layout_of(spec, nullptr), source);
}

Weights random_weights(const ModelSpec& spec, Backend& backend, DType dtype, uint64_t seed,
                       std::vector<std::vector<std::byte>>& storage) {
  check_quantizes(backend, dtype);
  std::vector<Buffer> memory;
  const Source source = [&](const std::string&, int64_t rows, int64_t cols, Role role) {
    const DType stored = stored_dtype(role, dtype, spec.dtype);
    const DType drawn = is_quantized(stored) ? spec.dtype : stored;
    const auto size = static_cast<size_t>(rows * cols);
    auto& bytes = storage.emplace_back(size * size_of(drawn));
    const bool vector = role == Role::kVector;
    const int exponent = vector ? 0 : static_cast<int>(std::lround(std::log2(static_cast<double>(cols)) / 2));
    fill_random(bytes.data(), size, drawn, exponent, seed);
    Weight weight = backend.load_weight(Matrix(bytes.data(), drawn, rows, cols), stored);
    if (weight.matrix.data != bytes.data()) storage.pop_back();
    return keep(std::move(weight), memory);
  };
  Weights weights = all_weights(spec, layout_of(spec, nullptr), source);
  weights.memory = std::move(memory);
  return weights;
}

}  // namespace lariat
