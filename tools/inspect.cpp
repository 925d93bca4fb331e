#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "engine/eval/render/tables.h"
#include "engine/runtime/kv_cache.h"
#include "kernels/communicator.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "kernels/limits.h"
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
#include "tools/commands.h"
#include "tools/help.h"
#include "tools/measuring.h"
#include "tools/options.h"

namespace lariat {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct InspectArgs {
  CommonOptions common;
  int64_t ctx = 0;
  bool json = false;
};

// Substrings of tensor names; the first match wins.
constexpr std::pair<const char*, std::string_view> kTensorGroups[] = {
    {"other", "vision visual. multi_modal mm_projector audio_ rope_f rotary_emb"},
    {"norm", "norm ln_"},
    {"head", "lm_head embed_out"},
    {"embedding", "embed wte token_embd"},
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

OrderedJson tensor_groups(const Tensors& tensors) {
  OrderedJson groups;
  for (const char* group : kGroupOrder) groups[group] = OrderedJson::object();
  for (const auto& [name, tensor] : tensors.all()) {
    OrderedJson& same = groups[group_of(name)][tensor.dtype];
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
OrderedJson quantization_of(const ModelTexts& texts, const OrderedJson& groups) {
  if (const std::string method = quantization_method(texts); !method.empty()) return method;
  std::set<std::string> types;
  for (const OrderedJson& dtypes : groups) {
    for (const auto& [dtype, n] : dtypes.items()) {
      const GgufType* type = find_gguf_type(dtype);
      if (type != nullptr && type->elements > 1) types.insert(dtype);
    }
  }
  return types.empty() ? OrderedJson() : OrderedJson(fmt::format("{}", fmt::join(types, ", ")));
}

OrderedJson rope_json(const RopeScaling& rope) {
  return {{"type", name_of(rope.type)},
          {"theta", rope.theta},
          {"factor", rope.factor},
          {"original_ctx", rope.original_ctx}};
}

void add_shape(OrderedJson& found, const ModelSpec& spec) {
  const AttentionSpec& attention = spec.layers.front().attention;
  OrderedJson rope = spec.has_rope() ? rope_json(spec.rope()) : OrderedJson();
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
void add_named_shape(OrderedJson& found, const JsonFields& config) {
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"context", "max_position_embeddings"}, {"layers", "num_hidden_layers"},     {"hidden", "hidden_size"},
      {"heads", "num_attention_heads"},       {"kv_heads", "num_key_value_heads"}, {"head_dim", "head_dim"}};
  for (const auto& [name, key] : kKeys) {
    if (const auto* value = config.find(key); value != nullptr && value->is_number_integer())
      found[name] = *value;
  }
}

// `read`: tensors used by the model.
void add_parameters(OrderedJson& found, const ModelSpec& spec, const Tensors& tensors,
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

void add_memory(OrderedJson& found, const ModelSpec& spec, const Tensors& tensors, int64_t asked) {
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

void add_texts(OrderedJson& found, const ModelTexts& texts) {
  const Tokenizer tokenizer = Tokenizer::load(texts);
  const char* kind = tokenizer.has_pieces() ? "SentencePiece" : "BPE";
  OrderedJson special = OrderedJson::object();
  for (const auto& [name, token] : tokenizer.special_tokens()) special[name] = token;
  found["tokenizer"] = {{"kind", kind}, {"vocabulary", tokenizer.vocab_size()}, {"special_tokens", special}};
  found["chat_template"] = false;
  try {  // only conversations need a template
    found["chat_template"] = ChatTemplate::load(texts, tokenizer).has_value();
  } catch (const Error& e) {
    print_warnings({std::string(e.what()) + "; only plain texts run"}, /*quiet=*/false);
  }
}

// The first error is the "reason" why the model does not run.
OrderedJson inspect(const InspectArgs& args) {
  ModelFiles files = open_files(args.common.model);
  const nlohmann::json& json = files.texts.object("config.json");
  const JsonFields config(json, files.texts.file("config.json").string());
  OrderedJson found, reason;
  const auto attempt = [&](const std::function<void()>& step) {
    try {
      step();
    } catch (const Error& e) {
      if (reason.is_null()) reason = with_options(e.what());
    }
  };
  const auto names = config.strings("architectures");
  found.update({{"architecture", names && !names->empty() ? OrderedJson(names->front()) : OrderedJson()},
                {"family", config.string("model_type").value_or("")},
                {"reason", nullptr},  // reserves the order
                {"runs", nullptr}});
  std::optional<ModelSpec> spec;
  attempt([&] { spec = load_config(files.texts); });
  attempt([&] { open_tensors(files); });
  const JsonFields text = config.object("text_config").value_or(config);
  const OrderedJson groups = files.tensors ? tensor_groups(*files.tensors) : OrderedJson();
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
    add_memory(found, *spec, *files.tensors, args.ctx);
  });
  attempt([&] { add_texts(found, files.texts); });
  if (spec) print_warnings(spec->warnings, /*quiet=*/false);
  print_warnings(files.warnings, /*quiet=*/false);
  found["runs"] = reason.is_null();
  found["reason"] = reason;
  found["build"] = build_json();
  return found;
}

std::string size_text(double bytes) {
  const char* unit = "bytes";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = next;
  }
  return fmt::format("{:.4g} {}", bytes, unit);
}

void print_known(const char* name, const std::string& text) {
  if (!text.empty()) std::cout << one_line(fmt::format("{:<14}  {}", name, text)) << "\n";
}

std::string words_of(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_object()) return value.is_null() ? "" : value.dump();
  std::string text;
  for (const auto& [name, member] : value.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, words_of(member));
  return text;
}

void print_inspection(OrderedJson found) {
  if (found["reason"].is_string()) found["runs"] = "no: " + found["reason"].get<std::string>();
  if (found.contains("memory")) {
    for (const char* key : {"weights", "kv_cache"})
      found["memory"][key] = size_text(found["memory"][key].get<double>());
  }
  std::vector<std::vector<std::string>> rows = {{"tensors", "dtype", "number", "size"}};
  for (const auto& [group, dtypes] : found["tensors"].items()) {
    for (const auto& [dtype, n] : dtypes.items())
      rows.push_back({group, one_line(dtype), n["tensors"].dump(), size_text(n["bytes"].get<double>())});
  }
  for (const char* name :
       {"architecture", "family", "runs", "quantization", "parameters", "context", "rope", "layers", "hidden",
        "heads", "kv_heads", "head_dim", "experts", "tokenizer", "chat_template", "memory", "build"})
    print_known(name, words_of(found[name]));
  if (rows.size() > 1) std::cout << "\n" << aligned_table(rows);
}

}  // namespace

OrderedJson build_json() {
  const std::string no_cuda = cuda_unavailable_reason();
  return {{"version", LARIAT_VERSION},
          {"cuda", no_cuda.empty() ? "yes" : "no (" + no_cuda + ")"},
          {"mpi", has_mpi()},
          {"cpu", cpu_path()}};
}

void add_inspect_command(CLI::App& app) {
  auto args = std::make_shared<InspectArgs>();
  CLI::App& sub = add_command(app, "inspect", "Show a model's architecture, support and memory use",
                              kLookCommands, "lariat inspect --model DIR --ctx 8192");
  add_model_option(sub, args->common);
  sub.add_option("-c,--ctx", args->ctx, "sequence length for the KV cache size")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->default_str("the model's context");
  sub.add_flag("--json", args->json, "print JSON instead of the table")->group(kOutputOptions);
  sub.callback([args] {
    const OrderedJson found = inspect(*args);
    if (args->json) return print_json(found);
    print_inspection(found);
  });
}

}  // namespace lariat
