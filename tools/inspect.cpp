#include <fmt/format.h>

#include <iostream>

#include "engine/eval/render/tables.h"
#include "engine/facts.h"
#include "kernels/communicator.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "kernels/limits.h"
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

OrderedJson inspect(const InspectArgs& args) {
  Facts facts = facts_of(args.common.model, args.ctx);
  print_warnings(facts.warnings, /*quiet=*/false);
  OrderedJson& reason = facts.json["reason"];
  if (reason.is_string()) reason = with_options(reason.get<std::string>());
  facts.json["build"] = build_json();
  return facts.json;
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
