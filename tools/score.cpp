#include "engine/eval/measure/score.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/counted.h"
#include "tools/help.h"
#include "tools/json_lines.h"
#include "tools/options.h"
#include "tools/signals.h"

namespace lariat {
namespace {

struct ScoreCommand {
  CommonOptions common = CommonOptions::measuring();
  std::filesystem::path file;
  ContextOptions load_cache;
  int64_t top = 0;
  bool no_bos = false;
};

// end: index after a line's last text.
struct Question {
  size_t end;
  bool choices;
};

std::vector<ScoredText> read_texts(const ScoreCommand& command, const Session& session,
                                   const Tokenizer& tokenizer, std::span<const int32_t> context,
                                   const JsonFields& line) {
  const std::string prompt = line.need_string("prompt");
  if (line.has("choices") == line.has("continuation"))
    throw Error("\"continuation\" and \"choices\" are both given or both missing; give one");
  const auto continuations =
      line.has("choices") ? *line.strings("choices") : std::vector{line.need_string("continuation")};
  if (continuations.empty()) line.fail("choices", "no text; give at least one");
  std::vector<ScoredText> texts;
  for (const std::string& continuation : continuations) {
    texts.push_back(
        scored_text(context, tokenizer, prompt, continuation, tokenizer.adds_bos() && !command.no_bos));
    check_length(session.options(), std::ssize(texts.back().tokens) - 1);
  }
  return texts;
}

nlohmann::ordered_json to_json(const ScoredText& text, bool with_top) {
  nlohmann::ordered_json json, tops;
  json["tokens"] = std::span(text.tokens).subspan(static_cast<size_t>(text.from));
  double sum = 0;
  for (const TokenScore& score : text.scores) {
    json["logprobs"].push_back(score.logprob);
    sum += score.logprob;
    tops.push_back(to_json(score.top));
  }
  json["sum"] = sum;
  json["per_byte"] = sum / static_cast<double>(text.bytes);
  json["greedy"] = std::ranges::all_of(text.scores, &TokenScore::likeliest);
  if (with_top) json["top"] = tops;
  return json;
}

nlohmann::ordered_json of_choices(const nlohmann::ordered_json& choices) {
  const auto best = [&](const char* key) {
    const auto value = [&](const auto& choice) { return choice.at(key).template get<double>(); };
    return std::ranges::max_element(choices, {}, value) - choices.begin();
  };
  return {{"choices", choices}, {"best", best("sum")}, {"best_per_byte", best("per_byte")}};
}

// Batching changes the last bits of sums; 8-bit activations amplify the change.
void warn_of_rounding(const Engine& engine, bool quiet) {
  const WeightFormat& format = engine.model.weights.format;
  if (!is_quantized(format.dtype) || !is_integer(format.grouping.code) || engine.backend->name() != "cpu" ||
      engine.session_options.activations == 16)
    return;
  print_warnings({"quantized weights multiply activations rounded to 8 bits: scores may differ by 0.3 nats "
                  "depending on the other lines of a batch; --activations 16 avoids it"},
                 quiet);
}

void run(const ScoreCommand& command) {
  const Engine engine = open_engine(command.common);
  warn_of_rounding(engine, command.common.quiet);
  Session session = engine.session();
  const SavedContext context = load_contexts(session, *engine.tokenizer, command.load_cache);
  Scorer scorer(session, context, command.top, &interrupted());
  std::vector<Question> questions;
  std::vector<ScoredText> texts;
  int64_t scored = 0;
  const auto read = [&](const JsonFields& line) {
    std::ranges::move(read_texts(command, session, *engine.tokenizer, context.tokens, line),
                      std::back_inserter(texts));
    questions.push_back({texts.size(), line.has("choices")});
  };
  const auto answer = [&] {
    scorer.score(texts);
    std::vector<nlohmann::ordered_json> answers;
    auto text = texts.begin();
    for (const auto& [end, choices] : questions) {
      nlohmann::ordered_json all;
      for (; text != texts.begin() + static_cast<std::ptrdiff_t>(end); ++text)
        all.push_back(to_json(*text, command.top > 0));
      answers.push_back(choices ? of_choices(all) : all.front());
    }
    scored += std::ssize(texts);
    questions.clear();
    texts.clear();
    return answers;
  };
  const auto summary = [&](int64_t lines) {
    return fmt::format("{}, {}: {} read, {} shared", counted(lines, "line"), counted(scored, "continuation"),
                       counted(scorer.read(), "token"), scorer.tokens() - scorer.read());
  };
  answer_lines(command.file, command.common.quiet,
               {64, "prompt continuation choices", read, answer, summary});
}

}  // namespace

void add_score_command(CLI::App& app) {
  auto command = std::make_shared<ScoreCommand>();
  CLI::App& sub = add_command(app, "score", "Log-likelihoods of continuations", kMeasureCommands,
                              "lariat score --model DIR --file questions.jsonl");
  add_model_option(sub, command->common);
  sub.add_option("-f,--file", command->file,
                 "JSON lines: \"prompt\", \"continuation\" or \"choices\"; -: standard input")
      ->required();
  sub.add_option("--top", command->top, "report the top N tokens at each token")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  sub.add_flag("--no-bos", command->no_bos, "omit the beginning-of-text token of prompts");
  add_context_options(sub, command->load_cache, "saved KV cache that all prompts continue");
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
