#include "engine/eval/perplexity.h"

#include <cmath>
#include <iostream>

#include "engine/eval/token_source.h"
#include "kernels/error.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/measuring.h"

namespace lariat {
namespace {

constexpr int64_t kDefaultCtx = 2048;  // at most; long windows move slowly

struct PerplexityCommand {
  CommonOptions common;
  std::filesystem::path file;
  std::vector<int64_t> ctx;
  int64_t stride = 256, max_tokens = 0;
  std::string method = "sliding";
  int buckets = 32;
  bool json = false;
};

// JSON has no NaN: a value that does not exist yet is null.
nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json to_json(const PerplexityResult& result) {
  nlohmann::ordered_json positions = nlohmann::ordered_json::array();
  for (const auto& bucket : result.positions) {
    const double loss = bucket.nll / static_cast<double>(bucket.tokens);
    positions.push_back(
        {{"from", bucket.from}, {"to", bucket.to}, {"tokens", bucket.tokens}, {"loss", number(loss)}});
  }
  nlohmann::ordered_json json = {{"ctx", result.ctx},
                                 {"stride", nullptr},
                                 {"method", name_of(result.method)},
                                 {"tokens", result.tokens},
                                 {"nll", result.nll},
                                 {"ppl", number(result.ppl())},
                                 {"stderr", number(result.standard_error())},
                                 {"complete", result.complete},
                                 {"positions", positions}};
  if (result.stride > 0) json["stride"] = result.stride;
  return json;
}

void print_table(const std::vector<PerplexityResult>& results) {
  std::vector<std::vector<std::string>> rows = {{"ctx", "stride", "tokens", "nats/token", "perplexity", ""}};
  for (const auto& result : results) {
    rows.push_back({std::to_string(result.ctx), result.stride > 0 ? std::to_string(result.stride) : "-",
                    std::to_string(result.tokens), fixed(result.nll / static_cast<double>(result.tokens), 4),
                    fixed(result.ppl(), 4), "± " + fixed(result.standard_error(), 4)});
  }
  std::cout << aligned_table(rows) << std::flush;
}

std::string running_values(const std::vector<PerplexityResult>& results) {
  std::string text;
  for (const auto& result : results) {
    text += (text.empty() ? "" : "  ") + std::string("ppl(") + std::to_string(result.ctx) + ") " +
            fixed(result.ppl(), 3);
  }
  return text;
}

void run(const PerplexityCommand& command) {
  const Tokenizer tokenizer = Tokenizer::load(command.common.model);
  FileTokens file(command.file, tokenizer);
  Runtime runtime = open_runtime(command.common);
  PerplexityOptions options;
  options.ctx = command.ctx;
  if (options.ctx.empty()) options.ctx = {std::min(runtime.model.spec.rope.original_ctx, kDefaultCtx)};
  options.stride = command.stride;
  options.method = parse_perplexity_method(command.method);
  options.bos = text_bos(tokenizer);
  options.buckets = command.buckets;
  options.interrupted = &interrupted();

  Session session(runtime.model, *runtime.backend, runtime.session);
  TokenSource source([&](std::vector<int32_t>& tokens) { return file.read(tokens); }, command.max_tokens);
  Progress bar("perplexity", 1000, command.common.quiet);
  const Eta eta;
  const auto results = measure_perplexity(
      session, source, command.file.string(), options, [&](const PerplexityProgress& progress) {
        const double done = share_of_text(progress.position, source, file);
        bar.update(static_cast<int64_t>(1000 * done),
                   running_values(progress.results) + "  " + eta.left(done));
      });
  bar.clear();
  if (command.json) {
    nlohmann::ordered_json json = {{"results", nlohmann::ordered_json::array()}};
    for (const auto& result : results) json["results"].push_back(to_json(result));
    json["quantize"] = runtime.model.quantization();
    print_json(json);
  } else {
    print_table(results);
  }
  if (!results.front().complete) {
    throw Error("interrupted; the numbers are of the first " + std::to_string(results.front().tokens) +
                " tokens scored");
  }
}

}  // namespace

void add_perplexity_command(CLI::App& app) {
  auto command = std::make_shared<PerplexityCommand>();
  CLI::App& sub = *app.add_subcommand("perplexity", "How well a model predicts a text, by context length");
  add_model_option(sub, command->common);
  sub.add_option("--file", command->file, "the text, of any size")->required();
  add_common_options(sub, command->common);
  sub.remove_option(sub.get_option("--ctx"));  // here: a list of lengths to measure
  sub.add_option("--ctx", command->ctx,
                 "tokens per window, several separated by commas; default: the model's original length, at "
                 "most 2048")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 40));
  sub.add_option("--stride", command->stride, "tokens a sliding window moves; default 256")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  sub.add_option("--method", command->method,
                 "sliding (default): each token once, with the most context it can have; chunks: disjoint "
                 "windows, their second half")
      ->check(CLI::IsMember({"sliding", "chunks"}));
  sub.add_option("--max-tokens", command->max_tokens, "use only the text's first so many tokens; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60));
  sub.add_option("--buckets", command->buckets, "of window positions in the JSON's losses; default 32")
      ->check(CLI::Range(1, 1 << 20));
  sub.add_flag("--json", command->json, "one JSON object on stdout");
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
