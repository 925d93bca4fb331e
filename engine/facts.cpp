#include "engine/facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include "engine/runtime/session.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/integers.h"
#include "kernels/quant.h"
#include "models/files/model_files.h"
#include "models/io/json_fields.h"
#include "models/load/config.h"
#include "models/load/open_files.h"
#include "models/load/weights.h"
#include "models/quantization/gguf_blocks.h"
#include "models/quantization/quantization.h"
#include "models/text/chat_template.h"
#include "models/text/tokenizer.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// Substrings of tensor names; the first match wins.
constexpr std::pair<const char*, std::string_view> kTensorGroups[] = {
    {"other", "vision visual. multi_modal mm_projector audio_ rope_f rotary_emb"},
    {"norm", "norm ln_"},
    {"head", "lm_head embed_out"},
    {"embedding", "embed wte wpe token_embd position_embd"},
    {"experts", "expert _exps _shexp moe ffn_gate_inp mlp.gate. mlp.router"},
    {"attention", "attn attention"},
    {"feed_forward", "mlp ffn feed_forward"},
    {"head", "output"},
    {"other", ""}};
constexpr std::array kGroupOrder = {"embedding", "attention", "feed_forward", "experts",
                                    "norm",      "head",      "other"};

const char* group_of(std::string_view name) {
  const auto fits = [&](const auto& group) {
    return std::ranges::any_of(split(group.second, ' '),
                               [&](auto part) { return name.find(part) != name.npos; });
  };
  return std::ranges::find_if(kTensorGroups, fits)->first;
}

int64_t elements_of(const StoredTensor& tensor) {
  int64_t n = tensor.bytes > 0 ? 1 : 0;  // bounded by the file size, so no overflow
  for (const int64_t size : tensor.shape) n *= n > 0 ? size : 0;
  return n;
}

Json tensor_groups(const Tensors& tensors) {
  Json groups;
  for (const char* group : kGroupOrder) groups[group] = Json::object();
  for (const auto& [name, tensor] : tensors.all()) {
    Json& same = groups[group_of(name)][tensor.dtype];
    const auto add = [&](const char* key, int64_t n) {
      same[key] = same.contains(key) ? same[key].get<int64_t>() + n : n;
    };
    add("tensors", 1);
    add("elements", elements_of(tensor));
    add("bytes", static_cast<int64_t>(tensor.bytes));
  }
  return groups;
}

// The config's quantization method, or block types of a GGUF file; null: floats.
Json quantization_of(const ModelTexts& texts, const Json& groups) {
  if (const std::string method = quantization_method(texts); !method.empty()) return method;
  std::set<std::string> types;
  for (const Json& dtypes : groups) {
    for (const auto& [dtype, n] : dtypes.items()) {
      const GgufType* type = find_gguf_type(dtype);
      if (type != nullptr && type->elements > 1) types.insert(dtype);
    }
  }
  return types.empty() ? Json() : Json(fmt::format("{}", fmt::join(types, ", ")));
}

Json rope_json(const RopeScaling& rope) {
  return {{"type", name_of(rope.type)},
          {"theta", rope.theta},
          {"factor", rope.factor},
          {"original_ctx", rope.original_ctx}};
}

void add_shape(Json& found, const ModelSpec& spec) {
  const AttentionSpec& attention = spec.layers.front().attention;
  Json rope = spec.has_rope() ? rope_json(spec.rope()) : Json();
  if (!spec.position_method.name.empty()) rope["position_method"] = spec.position_method.name;
  found.update({{"context", spec.max_position_embeddings},
                {"rope", rope},
                {"layers", spec.layers.size()},
                {"hidden", spec.hidden_size},
                {"heads", attention.n_heads},
                {"kv_heads", attention.n_kv_heads},
                {"head_dim", attention.head_dim}});
  for (const LayerSpec& layer : spec.layers) {
    if (const ExpertsSpec& experts = layer.feed_forward.experts; experts.n > 0)
      found["experts"] = {{"of", experts.n}, {"chosen", experts.router.n_chosen}};
  }
}

// Adds common config keys of an unsupported model.
void add_named_shape(Json& found, const JsonFields& config) {
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"context", "max_position_embeddings"}, {"layers", "num_hidden_layers"},     {"hidden", "hidden_size"},
      {"heads", "num_attention_heads"},       {"kv_heads", "num_key_value_heads"}, {"head_dim", "head_dim"}};
  for (const auto& [name, key] : kKeys) {
    if (const auto* value = config.find(key); value != nullptr && value->is_number_integer())
      found[name] = *value;
  }
}

// `read`: tensors used by the model.
void add_parameters(Json& found, const ModelSpec& spec, const Tensors& tensors,
                    const std::set<std::string>& read) {
  int64_t total = 0, idle = 0;  // idle: experts that a token skips
  for (const std::string& name : read) total += elements_of(*tensors.find(name));
  for (const LayerSpec& layer : spec.layers) {
    const ExpertsSpec& experts = layer.feed_forward.experts;
    if (experts.n > 0)
      idle += (experts.n - experts.router.n_chosen) * 3 * experts.intermediate_size * spec.hidden_size;
  }
  found["parameters"] = {{"total", total}, {"per_token", total - idle}};
}

void add_memory(Json& found, const ModelSpec& spec, const Tensors& tensors, int64_t asked) {
  SessionOptions options;
  options.max_ctx = asked;
  limit_context(options, spec);
  const int64_t ctx = asked > 0 ? asked : spec.max_position_embeddings;
  const Weights weights = planned_weights(spec, std::nullopt, &tensors);
  const size_t table = spec.tie_word_embeddings ? 0 : stored_bytes(weights.embed.m);
  CpuBackend backend(1);
  const DType embed = weights.embed.m.dtype;  // see Engine::session_for
  const KvPool pool(spec, backend, DType::kF16, is_quantized(embed) ? spec.dtype : embed);
  const auto pages = static_cast<size_t>(ceil_div(ctx, kKvPage));
  found["memory"] = {
      {"weights", weights.bytes + table}, {"ctx", ctx}, {"kv_cache", pages * pool.geometry().page_bytes}};
}

void add_texts(Facts& facts, const ModelTexts& texts) {
  Json& found = facts.json;
  const Tokenizer tokenizer = Tokenizer::load(texts);
  const char* kind = tokenizer.has_pieces() ? "SentencePiece" : "BPE";
  Json special = Json::object();
  for (const auto& [name, token] : tokenizer.special_tokens()) special[name] = token;
  found["tokenizer"] = {{"kind", kind}, {"vocabulary", tokenizer.vocab_size()}, {"special_tokens", special}};
  found["chat_template"] = false;
  try {  // only conversations need a template
    found["chat_template"] = ChatTemplate::load(texts, tokenizer).has_value();
  } catch (const Error& e) {
    facts.warnings.push_back(std::string(e.what()) + "; only plain texts run");
  }
}

}  // namespace

Facts facts_of(const std::filesystem::path& model, int64_t ctx) {
  ModelFiles files = open_files(model);
  const nlohmann::json& json = files.texts.object("config.json");
  const JsonFields config(json, files.texts.file("config.json").string());
  Facts facts;
  Json& found = facts.json;
  Json reason;
  const auto attempt = [&](const std::function<void()>& step) {
    try {
      step();
    } catch (const Error& e) {
      if (reason.is_null()) reason = e.what();
    }
  };
  const auto names = config.strings("architectures");
  found.update({{"architecture", names && !names->empty() ? Json(names->front()) : Json()},
                {"family", config.string("model_type").value_or("")},
                {"reason", nullptr},  // reserves the order
                {"runs", nullptr}});
  std::optional<ModelSpec> spec;
  attempt([&] { spec = load_config(files.texts); });
  attempt([&] { open_tensors(files); });
  const JsonFields text = config.object("text_config").value_or(config);
  const Json groups = files.tensors ? tensor_groups(*files.tensors) : Json();
  found["quantization"] = quantization_of(files.texts, groups);
  if (spec) {
    add_shape(found, *spec);
  } else {
    add_named_shape(found, text);
  }
  if (files.tensors) found["tensors"] = groups;
  attempt([&] {
    if (!spec || !files.tensors) return;
    add_parameters(found, *spec, *files.tensors, check_weights(*spec, *files.tensors));
    add_memory(found, *spec, *files.tensors, ctx);
  });
  attempt([&] { add_texts(facts, files.texts); });
  for (const auto& more : {spec ? spec->warnings : std::vector<std::string>(), files.warnings})
    facts.warnings.insert(facts.warnings.end(), more.begin(), more.end());
  found["runs"] = reason.is_null();
  found["reason"] = reason;
  return facts;
}

}  // namespace lariat
