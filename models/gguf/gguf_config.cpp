#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <set>

#include "kernels/error.h"
#include "models/gguf/gguf_model.h"

// llama.cpp: keys and defaults: src/llama-arch.cpp, src/llama-model.cpp, src/models; omissions:
// conversion/*.py.
namespace lariat {
namespace {

using Json = nlohmann::json;

// True for DeepSeek: the rotated dimensions of a head are separate.
bool is_latent(const GgufFile& file) {
  return file.metadata.contains(gguf_architecture(file) + ".attention.kv_lora_rank");
}

class Config {
 public:
  explicit Config(const GgufFile& file)
      : file_(file), arch_(gguf_architecture(file)), family_(gguf_family(file)) {}

  Json run() && {
    sizes();
    tokens();
    rope();
    windows();
    if (has("expert_count") && size("expert_count", 0) > 0) experts();
    if (is_latent(file_)) latent();
    // Ignores keys of training, file layout or other uses, and yarn's keys under another scaling.
    gguf_add_unread(
        file_, arch_ + ".",
        "vocab_size tensor_data_layout pooling_type rope.scaling.finetuned rope.scaling.yarn_attn_factor "
        "rope.scaling.yarn_beta_* rope.scaling.yarn_log_multiplier attention.layer_norm_epsilon ssm.* "
        "expert_shared_feed_forward_length",
        json_);
    if (family_.gguf.adapt != nullptr) family_.gguf.adapt(json_);
    return std::move(json_);
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  bool has(std::string_view name) const { return file_.has(key(name)); }
  int64_t size(std::string_view name, std::optional<int64_t> missing = {}) const {
    return gguf_size(file_, key(name), missing);
  }
  double number(std::string_view name, double missing) const {
    return file_.number(key(name)).value_or(missing);
  }
  bool has_tensor(const std::string& name) const { return file_.tensor(name) != nullptr; }

  void sizes() {
    json_["architectures"] = {family_.name};
    json_["model_type"] = family_.model_type;
    const StoredTensor* embed = file_.tensor("token_embd.weight");
    if (file_.tensors.empty())
      throw Error(file_.path.string() +
                  ": a vocabulary without weights; give the model's file, or use tokenize");
    if (embed == nullptr || embed->shape.size() != 2)
      throw Error(
          file_.path.string() +
          ": tensor 'token_embd.weight' is missing or not a matrix; use another conversion of the model");
    heads_ = size("attention.head_count");
    head_dim_ = gguf_head_dim(file_);
    json_["vocab_size"] = embed->shape[0];
    json_["hidden_size"] = size("embedding_length");
    const int64_t predicting = size("nextn_predict_layers", 0);  // counted in block_count
    json_["num_hidden_layers"] = n_layers_ = size("block_count") - predicting;
    if (n_layers_ > kMaxLayers || n_layers_ < 1)
      file_.fail(key("block_count"), "an unsupported number of layers; use another model");
    if (predicting > 0) json_["num_nextn_predict_layers"] = predicting;
    json_["intermediate_size"] = size("feed_forward_length");
    json_["num_attention_heads"] = heads_;
    json_["num_key_value_heads"] = size("attention.head_count_kv", heads_);
    json_["head_dim"] = head_dim_;
    json_["max_position_embeddings"] = context_ = size("context_length");
    const bool centred = family_.gguf.layer_norm;
    const std::string eps =
        key(centred ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon");
    if (!file_.has(eps)) file_.fail(eps, "is missing; use another conversion of the model");
    json_[centred ? "layer_norm_eps" : "rms_norm_eps"] = *file_.number(eps);
    json_["tie_word_embeddings"] = !has_tensor("output.weight");
    json_["torch_dtype"] = dtype();
    const bool fused = family_.gguf.bias == "attn_q" && has_tensor("blk.0.attn_qkv.bias");
    json_["attention_bias"] = fused || has_tensor(fmt::format("blk.0.{}.bias", family_.gguf.bias));
    if (has_tensor("blk.0.attn_q_norm.weight")) json_["use_qk_norm"] = true;
    json_["mlp_bias"] = has_tensor("blk.0.ffn_down.bias");
    // As llama.cpp: a second norm refutes the key (StableLM 2).
    if (has_tensor("blk.0.ffn_norm.weight")) json_["use_parallel_residual"] = false;
    if (size("attention.value_length", head_dim_) != head_dim_ && !is_latent(file_))
      file_.fail(key("attention.value_length"),
                 "values of another size than keys are not supported; use another model");
  }

  const char* dtype() const {
    const auto all = [&](std::string_view type) {
      return std::ranges::all_of(
          file_.tensors, [&](const StoredTensor& t) { return t.shape.size() < 2 || t.dtype == type; });
    };
    return all("F32") ? "float32" : all("F16") ? "float16" : "bfloat16";
  }

  // null: no token; a missing key would have the family's default.
  void tokens() {
    json_["bos_token_id"] = json_["eos_token_id"] = nullptr;
    if (const auto bos = gguf_token_id(file_, "bos")) json_["bos_token_id"] = *bos;
    std::set<int64_t> ends;
    for (const std::string_view role : {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"}) {
      if (const auto id = gguf_token_id(file_, role)) ends.insert(*id);
    }
    // llama.cpp also finds end tokens by their texts.
    std::map<std::string_view, int64_t> known;
    const std::vector<std::string_view> texts = file_.strings("tokenizer.ggml.tokens");
    for (size_t i = 0; i < texts.size(); ++i) {
      if (!gguf_ends_text(texts[i])) continue;
      known[texts[i]] = static_cast<int64_t>(i);
      ends.insert(static_cast<int64_t>(i));
    }
    const auto has = [&](auto... text) { return (known.contains(text) || ...); };
    // With these tokens, <|end|> ends only a part of a turn.
    if (has("<|end|>") && has("<|call|>", "<|calls|>") && has("<|return|>", "<|flush|>"))
      ends.erase(known["<|end|>"]);
    if (!ends.empty()) json_["eos_token_id"] = ends;
  }

  std::vector<double> floats(const char* name) const {
    const StoredTensor* tensor = file_.tensor(name);
    std::vector<double> values;
    if (tensor == nullptr) return values;
    if (tensor->dtype != "F32" || tensor->shape.size() != 1)
      throw Error(fmt::format("{}: tensor '{}' is not a vector of F32; use another conversion of the model",
                              file_.path.string(), name));
    for (size_t i = 0; i < tensor->bytes / sizeof(float); ++i) {
      float value = 0.0F;
      std::memcpy(&value, tensor->data + i * sizeof value, sizeof value);
      if (!std::isfinite(value) || value <= 0.0F)
        throw Error(fmt::format(
            "{}: tensor '{}' must hold finite divisors above 0; use another conversion of the model",
            file_.path.string(), name));
      values.push_back(static_cast<double>(value));
    }
    return values;
  }

  void rope() {
    json_["rope_theta"] = number("rope.freq_base", 10000.0);
    const int64_t rotated = size("rope.dimension_count", head_dim_);
    if (rotated > head_dim_)
      file_.fail(key("rope.dimension_count"),
                 "more than the dimensions of a head; use another conversion of the model");
    if (rotated < head_dim_)
      json_["partial_rotary_factor"] = static_cast<double>(rotated) / static_cast<double>(head_dim_);
    Json scaling = rope_scaling();
    if (!scaling.empty()) json_["rope_scaling"] = std::move(scaling);
  }

  Json rope_scaling() {
    const std::vector<double> divisors = floats("rope_freqs.weight");
    const auto length = file_.integer(key("rope.scaling.original_context_length"));
    const double factor = number("rope.scaling.factor", number("rope.scale_linear", 1.0));
    std::string type(file_.string(key("rope.scaling.type")).value_or("linear"));
    if (const auto factors = floats("rope_factors_long.weight"); !factors.empty()) {
      json_["original_max_position_embeddings"] = length.value_or(context_);
      Json scaling = {{"rope_type", "longrope"},
                      {"long_factor", factors},
                      {"short_factor", floats("rope_factors_short.weight")}};
      if (has("rope.scaling.attn_factor"))
        scaling["attention_factor"] = number("rope.scaling.attn_factor", 1.0);
      return scaling;
    }
    if (type != "none" && type != "linear" && type != "yarn")
      file_.fail(key("rope.scaling.type"),
                 type == "longrope"
                     ? "tensor 'rope_factors_long.weight' is missing; use another conversion of the model"
                     : "expected none, linear, yarn or longrope");
    if (type == "yarn") type = without_ramp() ? "linear" : type;
    if (factor == 1.0 || factor == 0.0) type = "none";
    if (!divisors.empty()) {
      if (type != "none")
        file_.fail(key("rope.scaling.type"), "conflicts with rope_freqs.weight; remove one of them");
      if (Json llama3 = llama3_scaling(divisors); !llama3.empty()) return llama3;
      // Another scaling: divisors for any length.
      return {{"rope_type", "longrope"}, {"short_factor", divisors},
              {"long_factor", divisors}, {"factor", 1.0},
              {"attention_factor", 1.0}, {"original_max_position_embeddings", context_}};
    }
    if (type == "none") return {};
    Json scaling = {{"rope_type", type}, {"factor", factor}};
    if (type == "yarn") yarn(scaling, length);
    return scaling;
  }

  // Llama 3.1's scaling, if it yields these divisors; else {}.
  Json llama3_scaling(const std::vector<double>& divisors) const {
    constexpr double kLow = 1.0, kHigh = 4.0, kLength = 8192.0;
    const double theta = json_["rope_theta"], factor = std::ranges::max(divisors);
    const auto n = static_cast<double>(divisors.size());
    for (size_t i = 0; i < divisors.size(); ++i) {
      const double turns = kLength * std::pow(theta, -static_cast<double>(i) / n) / (2.0 * std::numbers::pi);
      const double smooth = std::clamp((turns - kLow) / (kHigh - kLow), 0.0, 1.0);
      const double wanted = 1.0 / ((1.0 - smooth) / factor + smooth);
      if (std::abs(divisors[i] - wanted) > 1e-4 * wanted) return {};
    }
    return {{"rope_type", "llama3"},
            {"factor", std::round(factor * 1e4) / 1e4},
            {"low_freq_factor", kLow},
            {"high_freq_factor", kHigh},
            {"original_max_position_embeddings", 8192}};
  }

  // llama.cpp's weight of yarn's ramp; negative: 1. At 0 it divides every frequency and changes no
  // temperature.
  bool without_ramp() const {
    const std::string name = key("rope.scaling.yarn_ext_factor");
    const double weight = file_.number(name).value_or(1.0);
    if (weight < 0.0 || weight == 1.0) return false;
    const bool plain = number("rope.scaling.yarn_attn_factor", 1.0) == 1.0 &&
                       number("rope.scaling.yarn_log_multiplier", 0.0) == 0.0;
    if (weight != 0.0 || !plain)
      file_.fail(name, fmt::format("{} is not supported{}; use another model", weight,
                                   weight == 0.0 ? " with a temperature" : ""));
    return true;
  }

  void yarn(Json& scaling, std::optional<int64_t> length) {
    if (!length)
      file_.fail(key("rope.scaling.original_context_length"),
                 "is missing for yarn; use another conversion of the model");
    scaling["original_max_position_embeddings"] = *length;
    for (const auto& [name, to] :
         {std::pair("yarn_beta_fast", "beta_fast"), std::pair("yarn_beta_slow", "beta_slow"),
          std::pair("yarn_attn_factor", "attention_factor")}) {
      if (const auto value = file_.number(key(std::string("rope.scaling.") + name))) scaling[to] = *value;
    }
    // The published models have one value for both.
    if (const double log = number("rope.scaling.yarn_log_multiplier", 0.0); log != 0.0)
      scaling["mscale"] = scaling["mscale_all_dim"] = std::round(log * 1e7) / 1e6;
  }

  void windows() {
    const int64_t window = size("attention.sliding_window", 0);
    const std::string pattern = key("attention.sliding_window_pattern");
    const auto found = file_.metadata.find(pattern);
    const std::vector<int64_t> given = file_.integers(pattern);
    if (window == 0) return;
    json_["sliding_window"] = window;
    if (found == file_.metadata.end()) return;
    if (found->second.array && std::ssize(given) < n_layers_)
      file_.fail(pattern, "expected one for each layer");
    if (!found->second.array && given.front() < 1) file_.fail(pattern, "expected a number of layers");
    for (int64_t i = 0; i < n_layers_; ++i) {
      const bool slides = found->second.array ? given[static_cast<size_t>(i)] != 0 : (i + 1) % given[0] != 0;
      json_["layer_types"].push_back(slides ? "sliding_attention" : "full_attention");
    }
  }

  void experts() {
    json_["num_local_experts"] = size("expert_count");
    json_["num_experts_per_tok"] = size("expert_used_count");
    json_["moe_intermediate_size"] = size("expert_feed_forward_length", json_["intermediate_size"]);
    constexpr std::string_view kShared = "expert_shared_feed_forward_length";
    if (family_.gguf.when == kShared || has_tensor("blk.0.ffn_gate_inp_shexp.weight"))
      json_["shared_intermediate_size"] = size(kShared, json_["intermediate_size"]);
    if (const auto gating = file_.integer(key("expert_gating_func")).value_or(0))
      json_["scoring_func"] = gating == 1 ? "softmax" : gating == 2 ? "sigmoid" : std::to_string(gating);
  }

  // Newer files describe the heads of absorbed attention, and the real heads in *_mla.
  void latent() {
    const int64_t whole = size("attention.key_length_mla", size("attention.key_length"));
    json_["qk_rope_head_dim"] = head_dim_;
    json_["qk_nope_head_dim"] = whole - head_dim_;
    json_["v_head_dim"] = size("attention.value_length_mla", size("attention.value_length"));
    json_["num_key_value_heads"] = heads_;
  }

  const GgufFile& file_;
  std::string arch_;
  const Family& family_;
  int64_t heads_ = 0, head_dim_ = 0, n_layers_ = 0, context_ = 0;
  Json json_ = Json::object();
};

// Files of GLM-4.7-Flash lack the gating function; only sigmoids have a correction.
bool has_correction(const GgufFile& file) {
  return std::ranges::any_of(file.tensors,
                             [](const StoredTensor& t) { return t.name.ends_with(".exp_probs_b.bias"); });
}

}  // namespace

nlohmann::json gguf_config(const GgufFile& file) { return Config(file).run(); }

std::string gguf_architecture(const GgufFile& file) {
  const auto arch = file.string("general.architecture");
  if (!arch) file.fail("general.architecture", "is missing; give the file of a model");
  return std::string(arch->substr(0, 60));
}

const Family& gguf_family(const GgufFile& file) {
  const std::string arch = gguf_architecture(file);
  const Family* family = nullptr;
  std::set<std::string_view> known;
  for (const Family& each : families()) {
    const GgufFamily& gguf = each.gguf;
    if (!gguf.architecture.empty()) known.insert(gguf.architecture);
    if (gguf.architecture != arch) continue;
    const std::string key = fmt::format("{}.{}", arch, gguf.when);
    const bool implied = gguf.when == "expert_gating_func" && !file.has(key) && has_correction(file);
    if (gguf.when.empty() ? family == nullptr : implied || gguf_size(file, key, 0) >= gguf.least)
      family = &each;  // the last match has the narrowest condition
  }
  if (family == nullptr)
    file.fail("general.architecture",
              fmt::format("'{}' is not supported; known: {}", arch, fmt::join(known, ", ")));
  return *family;
}

int64_t gguf_size(const GgufFile& file, const std::string& key, std::optional<int64_t> missing) {
  constexpr int64_t kMost = INT32_MAX;
  const std::vector<int64_t> values = file.integers(key);
  if (!file.has(key) && missing) return *missing;
  if (values.empty()) file.fail(key, "is missing; use another conversion of the model");
  for (const int64_t value : values) {
    if (value != values.front())
      file.fail(key, "different values per layer are not supported; use another model");
  }
  const int64_t least = missing == 0 ? 0 : 1;
  if (values.front() < least || values.front() > kMost)
    file.fail(key,
              fmt::format("{} is not a valid size; use another conversion of the model", values.front()));
  return values.front();
}

int64_t gguf_head_dim(const GgufFile& file) {
  const std::string arch = gguf_architecture(file);
  if (is_latent(file)) return gguf_size(file, arch + ".rope.dimension_count");
  const int64_t hidden = gguf_size(file, arch + ".embedding_length");
  const int64_t heads = gguf_size(file, arch + ".attention.head_count");
  return gguf_size(file, arch + ".attention.key_length", std::max<int64_t>(hidden / heads, 1));
}

}  // namespace lariat
