#pragma once
#include <functional>
#include <optional>

#include "models/spec/position_method.h"
#include "tests/engine/saved_context_util.h"

// Float64 forward pass of a plain Llama without a cache: rotates each query by its distance to the key.
namespace lariat::test {

// Distance from token i to token j <= i; nullopt: masked.
using Distance = std::function<std::optional<double>(int64_t i, int64_t j)>;
// Angle of a pair; empty: distance times frequency.
using Angle = std::function<double(double distance, size_t pair)>;

class RelativeOracle {
 public:
  using Rows = std::vector<std::vector<double>>;

  RelativeOracle(const std::filesystem::path& dir, const ModelSpec& spec)
      : spec_(spec), file_(open_safetensors_file(dir / "model.safetensors")) {}

  // [tokens][vocab]. attention_factor scales q and k; temperature scales scores (empty: 1).
  std::vector<float> logits(std::span<const int32_t> tokens, const Distance& distance,
                            const RopeFrequencies& frequencies,
                            const std::function<double(int64_t)>& temperature = {},
                            const Angle& angle = {}) const {
    Rows x;
    const std::vector<float> embed = float_tensor(file_, "model.embed_tokens.weight");
    for (const int32_t token : tokens) {
      const auto row = embed.begin() + token * spec_.hidden_size;
      x.emplace_back(row, row + spec_.hidden_size);
    }
    for (size_t l = 0; l < spec_.layers.size(); ++l) {
      const std::string name = "model.layers." + std::to_string(l) + ".";
      const Rows h = normed(x, name + "input_layernorm.weight");
      const Rows attended =
          attention(spec_.layers[l].attention, product(h, name + "self_attn.q_proj.weight"),
                    product(h, name + "self_attn.k_proj.weight"),
                    product(h, name + "self_attn.v_proj.weight"), distance, frequencies, temperature, angle);
      add(x, product(attended, name + "self_attn.o_proj.weight"));
      const Rows in = normed(x, name + "post_attention_layernorm.weight");
      Rows gate = product(in, name + "mlp.gate_proj.weight");
      const Rows up = product(in, name + "mlp.up_proj.weight");
      for (size_t t = 0; t < gate.size(); ++t) {
        for (size_t c = 0; c < gate[t].size(); ++c) gate[t][c] *= up[t][c] / (1 + std::exp(-gate[t][c]));
      }
      add(x, product(gate, name + "mlp.down_proj.weight"));
    }
    std::vector<float> all;
    for (const auto& row : product(normed(x, "model.norm.weight"), "lm_head.weight"))
      all.insert(all.end(), row.begin(), row.end());
    return all;
  }

 private:
  Rows product(const Rows& x, const std::string& name) const {
    const std::vector<float> w = float_tensor(file_, name);
    Rows out;
    for (const auto& row : x) {
      std::vector<double>& to = out.emplace_back(w.size() / row.size());
      for (size_t o = 0; o < to.size(); ++o) {
        for (size_t i = 0; i < row.size(); ++i) to[o] += row[i] * static_cast<double>(w[o * row.size() + i]);
      }
    }
    return out;
  }

  Rows normed(Rows x, const std::string& name) const {
    const std::vector<float> w = float_tensor(file_, name);
    for (auto& row : x) {
      double sum = 0;
      for (const double value : row) sum += value * value;
      const double scale =
          1 / std::sqrt(sum / static_cast<double>(row.size()) + static_cast<double>(spec_.norm_eps));
      for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * static_cast<double>(w[i]);
    }
    return x;
  }

  static void add(Rows& x, const Rows& more) {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += more[t][i];
    }
  }

  static Rows attention(const AttentionSpec& spec, const Rows& q, const Rows& k, const Rows& v,
                        const Distance& distance, const RopeFrequencies& frequencies,
                        const std::function<double(int64_t)>& temperature, const Angle& angle) {
    const auto d = static_cast<size_t>(spec.head_dim), heads = static_cast<size_t>(spec.n_heads);
    const size_t group = heads / static_cast<size_t>(spec.n_kv_heads), half = d / 2;
    Rows out(q.size(), std::vector<double>(heads * d));
    std::vector<double> cos(half), sin(half);
    for (size_t i = 0; i < q.size(); ++i) {
      std::vector<double> sums(heads);
      const double factor = frequencies.attention_factor * frequencies.attention_factor *
                            (temperature ? temperature(static_cast<int64_t>(i)) : 1.0);
      for (size_t j = 0; j <= i; ++j) {
        const auto rel = distance(static_cast<int64_t>(i), static_cast<int64_t>(j));
        if (!rel) continue;
        for (size_t p = 0; p < half; ++p) {
          const double radians = angle ? angle(*rel, p) : *rel * frequencies.inv_freq[p];
          cos[p] = std::cos(radians);
          sin[p] = std::sin(radians);
        }
        for (size_t h = 0; h < heads; ++h) {
          const double *a = &q[i][h * d], *b = &k[j][h / group * d], *value = &v[j][h / group * d];
          double score = 0;
          for (size_t p = 0; p < half; ++p)
            score += (a[p] * cos[p] - a[p + half] * sin[p]) * b[p] +
                     (a[p] * sin[p] + a[p + half] * cos[p]) * b[p + half];
          const double weight = std::exp(score * factor * static_cast<double>(spec.scale));
          sums[h] += weight;
          for (size_t c = 0; c < d; ++c) out[i][h * d + c] += weight * value[c];
        }
      }
      for (size_t c = 0; c < heads * d; ++c) out[i][c] /= sums[c / d];
    }
    return out;
  }

  const ModelSpec& spec_;
  Tensors file_;
};

}  // namespace lariat::test
