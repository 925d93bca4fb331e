#include "models/weights.h"

#include <cmath>
#include <cstring>
#include <functional>

#include "kernels/error.h"
#include "kernels/quant.h"

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

LayerWeights layer_weights(const ModelSpec& config, const std::string& prefix, const Source& source) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const int64_t q_size = config.n_heads * config.head_dim, kv_size = config.n_kv_heads * config.head_dim;
  const auto matrix = [&](const char* name, int64_t out, int64_t in) {
    return source(prefix + name + ".weight", out, in, Role::kProjection);
  };
  const auto vector = [&](const std::string& name, int64_t size, bool present) {
    return present ? source(prefix + name, 1, size, Role::kVector) : Matrix{};
  };
  LayerWeights layer;
  layer.input_norm = vector("input_layernorm.weight", hidden, true);
  layer.q_proj = matrix("self_attn.q_proj", q_size, hidden);
  layer.k_proj = matrix("self_attn.k_proj", kv_size, hidden);
  layer.v_proj = matrix("self_attn.v_proj", kv_size, hidden);
  layer.o_proj = matrix("self_attn.o_proj", hidden, q_size);
  layer.qkv.q_bias = vector("self_attn.q_proj.bias", q_size, config.qkv_bias);
  layer.qkv.k_bias = vector("self_attn.k_proj.bias", kv_size, config.qkv_bias);
  layer.qkv.v_bias = vector("self_attn.v_proj.bias", kv_size, config.qkv_bias);
  layer.qkv.q_norm = vector("self_attn.q_norm.weight", config.head_dim, config.qk_norm);
  layer.qkv.k_norm = vector("self_attn.k_norm.weight", config.head_dim, config.qk_norm);
  layer.qkv.norm_eps = config.rms_norm_eps;
  layer.o_bias = vector("self_attn.o_proj.bias", hidden, config.o_bias);
  layer.ffn_norm = vector("post_attention_layernorm.weight", hidden, true);
  layer.gate_proj = matrix("mlp.gate_proj", inner, hidden);
  layer.up_proj = matrix("mlp.up_proj", inner, hidden);
  layer.down_proj = matrix("mlp.down_proj", hidden, inner);
  layer.gate_bias = vector("mlp.gate_proj.bias", inner, config.mlp_bias);
  layer.up_bias = vector("mlp.up_proj.bias", inner, config.mlp_bias);
  layer.down_bias = vector("mlp.down_proj.bias", hidden, config.mlp_bias);
  return layer;
}

void count(const Matrix& m, Weights& weights) {
  weights.bytes += stored_bytes(m);
  weights.values += m.rows * m.cols;
}

Weights all_weights(const ModelSpec& config, const std::string& root, const Source& source) {
  Weights weights;
  const std::string embed = root + "embed_tokens.weight";
  weights.embed = source(embed, config.vocab_size, config.hidden_size, Role::kEmbedding);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    weights.layers.push_back(layer_weights(config, root + "layers." + std::to_string(i) + ".", source));
  }
  weights.norm = source(root + "norm.weight", 1, config.hidden_size, Role::kVector);
  weights.dtype = weights.layers.empty() ? weights.embed.dtype : weights.layers[0].q_proj.dtype;
  if (config.tie_word_embeddings && !is_quantized(weights.dtype)) {
    weights.head = weights.embed;
  } else {
    weights.head = source(config.tie_word_embeddings ? embed : "lm_head.weight", config.vocab_size,
                          config.hidden_size, Role::kHead);
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

// AutoModel saves without the "model." prefix, AutoModelForCausalLM with it.
std::string root_of(const Checkpoint& checkpoint) {
  return checkpoint.find("embed_tokens.weight") != nullptr ? "" : "model.";
}

// splitmix64 (public domain, Vigna): fast enough to fill gigabytes, and the same everywhere.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Uniform values in +-2^-e with e chosen so that a random model neither explodes nor vanishes. Built from
// bits: sign, one of four exponents below 2^-e, and random mantissa, so that each dtype is filled at memory
// speed.
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
    throw Error("--quantize " + std::string(name_of(*dtype)) + " does not run on " + backend.name() +
                " yet; use --device cpu, or leave --quantize out");
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

std::set<std::string> check_weights(const ModelSpec& config, const Checkpoint& checkpoint) {
  std::set<std::string> names;
  const Source source = [&](const std::string& name, int64_t rows, int64_t cols, Role role) {
    const auto& tensor =
        role == Role::kVector ? checkpoint.check(name, {cols}) : checkpoint.check(name, {rows, cols});
    names.insert(name);
    return Matrix(nullptr, tensor.float_dtype(), rows, cols);
  };
  all_weights(config, root_of(checkpoint), source);
  return names;
}

Weights load_weights(const ModelSpec& config, const Checkpoint& checkpoint, Backend& backend,
                     std::optional<DType> dtype) {
  check_quantizes(backend, dtype);
  const Source source = [&](const std::string& name, int64_t rows, int64_t cols, Role role) {
    const auto& tensor =
        role == Role::kVector ? checkpoint.get(name, {cols}) : checkpoint.get(name, {rows, cols});
    const Matrix host(const_cast<std::byte*>(tensor.data), tensor.float_dtype(), rows, cols);
    return backend.load_weight(host, stored_dtype(role, dtype, host.dtype));
  };
  return all_weights(config, root_of(checkpoint), source);
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

Weights planned_weights(const ModelSpec& config, DType dtype) {
  const Source source = [&](const std::string&, int64_t rows, int64_t cols, Role role) {
    return Matrix(nullptr, stored_dtype(role, dtype, config.dtype), rows, cols);
  };
  return all_weights(config, "", source);
}

Weights random_weights(const ModelSpec& config, Backend& backend, DType dtype, uint64_t seed,
                       std::vector<std::vector<std::byte>>& storage) {
  check_quantizes(backend, dtype);
  const Source source = [&](const std::string&, int64_t rows, int64_t cols, Role role) {
    const DType stored = stored_dtype(role, dtype, config.dtype);
    const DType drawn = is_quantized(stored) ? config.dtype : stored;
    const auto size = static_cast<size_t>(rows * cols);
    auto& bytes = storage.emplace_back(size * size_of(drawn));
    const bool vector = role == Role::kVector;
    const int exponent = vector ? 0 : static_cast<int>(std::lround(std::log2(static_cast<double>(cols)) / 2));
    fill_random(bytes.data(), size, drawn, exponent, seed);
    const Matrix weight = backend.load_weight(Matrix(bytes.data(), drawn, rows, cols), stored);
    if (weight.data != bytes.data()) storage.pop_back();
    return weight;
  };
  return all_weights(config, "model.", source);
}

}  // namespace lariat
