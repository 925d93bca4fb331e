#include "engine/generate.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "models/json_file.h"
#include "tools/common.h"
#include "tools/help.h"
#include "tools/stop_filter.h"

namespace lariat {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{1} << 30;

struct GenerateCommand {
  CommonOptions common;
  std::optional<std::string> prompt;
  std::filesystem::path prompt_file;
  GenerateOptions generate;
  std::vector<std::string> stop;
  bool ignore_eos = false, json = false;
};

std::string prompt_text(const GenerateCommand& command) {
  if (command.prompt) return *command.prompt;
  std::string text = read_file(command.prompt_file, kMaxPromptBytes);
  if (text.empty())
    throw Error(command.prompt_file.string() + ": the prompt file is empty; put some text in it");
  return text;
}

nlohmann::ordered_json report(const Generation& result, const std::string& text, size_t prompt_tokens,
                              const Runtime& runtime, const Sequence& sequence) {
  const auto rate = [](double n, double seconds) { return seconds > 0 ? n / seconds : 0.0; };
  const RopeScaling& rope = *runtime.session.rope;
  const RerotationStats& rerotations = sequence.cache().rerotations();
  return {
      {"prompt_tokens", prompt_tokens},
      {"tokens", result.tokens},
      {"text", text},
      {"stop_reason", name_of(result.stop_reason)},
      {"quantize", runtime.model.quantization()},
      {"timings",
       {{"load_s", runtime.load_seconds},
        {"prefill_s", result.prefill_seconds},
        {"prefill_tok_s", rate(static_cast<double>(prompt_tokens), result.prefill_seconds)},
        {"decode_s", result.decode_seconds},
        {"decode_tok_s", rate(static_cast<double>(result.decode_steps), result.decode_seconds)},
        {"rerotation_s", rerotations.seconds}}},
      {"rope", {{"type", name_of(rope.type)}, {"factor", rope.factor}, {"rerotations", rerotations.count}}}};
}

// The longest sequence that the model and its scaling are meant for; none for scalings that go on growing.
std::optional<int64_t> reach_of(const RopeScaling& rope) {
  const bool grows =
      rope.type == RopeType::kDynamic || (rope.type == RopeType::kDynamicYarn && rope.factor <= 1.0);
  if (grows) return std::nullopt;
  if (rope.type == RopeType::kDefault) return rope.max_position_embeddings;
  return std::max(rope.max_position_embeddings,
                  static_cast<int64_t>(rope.factor * static_cast<double>(rope.original_ctx)));
}

void warn_of_prompt(const GenerateCommand& command, const Runtime& runtime, const Tokenizer& tokenizer,
                    const std::vector<int32_t>& prompt) {
  std::vector<std::string> warnings;
  const bool adds = tokenizer.adds_bos() && prompt.size() > 1 && prompt[0] == tokenizer.bos_id();
  if (adds && prompt[1] == prompt[0]) {
    warnings.push_back(
        "the prompt begins with the beginning-of-text token, and the tokenizer puts it there as "
        "well, as in transformers; leave it out of the prompt");
  }
  const RopeScaling& rope = *runtime.session.rope;
  const auto n = static_cast<int64_t>(prompt.size());
  int64_t end = n + command.generate.max_new_tokens;
  if (runtime.session.max_ctx > 0) end = std::min(end, runtime.session.max_ctx);
  if (const auto reach = reach_of(rope); reach && end > *reach) {
    const bool scaled = rope.type != RopeType::kDefault;
    warnings.push_back(
        "the prompt has " + std::to_string(n) + " tokens and may grow to " + std::to_string(end) +
        ", and the model is made for " + std::to_string(*reach) +
        (scaled ? " with its scaling; use a larger --rope-factor"
         : !runtime.model.spec.has_rope()
             ? ""
             : " without RoPE scaling; use --rope-scaling dynamic, or yarn with --rope-factor") +
        ", or fewer --max-new-tokens");
  }
  print_warnings(warnings, command.common.quiet);
}

void run(GenerateCommand& command) {
  const std::string text = prompt_text(command);
  const Tokenizer tokenizer = open_tokenizer(command.common);
  Runtime runtime = open_runtime(command.common);
  const std::vector<int32_t> prompt = tokenizer.encode(text, tokenizer.adds_bos());
  if (!command.ignore_eos) command.generate.eos_ids = eos_ids(runtime.model, tokenizer);
  command.generate.interrupted = &interrupted();

  Session session(runtime.model, *runtime.backend, runtime.session);
  Sequence sequence = session.new_sequence();
  // The decoder has seen the prompt, so that a leading space of the first new word is kept.
  StreamDecoder decoder(tokenizer);
  for (const int32_t id : prompt) decoder.push(id);
  StopFilter filter(command.stop);
  std::string generated;
  const auto emit = [&](const std::string& piece) {
    generated += piece;
    if (!command.json) std::cout << piece << std::flush;
  };
  Progress progress("prefill", static_cast<int64_t>(prompt.size()), command.common.quiet);
  const auto on_token = [&](int32_t id) {
    progress.clear();
    emit(filter.push(decoder.push(id)));
    return !filter.stopped() && std::cout;
  };
  bool warned = false;
  const auto on_prefill = [&](int64_t done) {
    if (interrupted()) throw Error("interrupted during the prefill; nothing was generated");
    progress.update(done);
    if (std::exchange(warned, true)) return;  // once, and after what can be wrong with the prompt's tokens
    progress.clear();
    warn_of_prompt(command, runtime, tokenizer, prompt);
  };
  const Generation result = generate(session, sequence, prompt, command.generate, on_token, on_prefill);
  emit(filter.push(decoder.flush()));
  emit(filter.flush());
  if (command.json) {
    print_json(report(result, generated, prompt.size(), runtime, sequence));
  } else {
    std::cout << "\n";
  }
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App& sub = *app.add_subcommand("generate", "Continue a prompt");
  describe(sub, kUseCommands, "lariat generate --model DIR --prompt \"Once upon a time\" --temperature 0.7");
  add_model_option(sub, command->common);
  auto* source = sub.add_option_group("prompt", "what to continue");
  source->add_option("--prompt", command->prompt, "the text itself");
  source->add_option("--prompt-file", command->prompt_file, "a file with the text")->type_name("FILE");
  source->require_option(1);
  sub.add_option("--max-new-tokens", command->generate.max_new_tokens, "tokens to write at most")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  begin_group(sub, kSamplingOptions);
  SamplerOptions& sampler = command->generate.sampler;
  sub.add_option("--temperature", sampler.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 1000.0));
  sub.add_option("--top-k", sampler.top_k, "keep the k likeliest; 0: all")->check(CLI::Range(0, 1 << 30));
  sub.add_option("--top-p", sampler.top_p, "keep the likeliest that together reach p")
      ->check(CLI::Range(0.0, 1.0));
  sub.add_option("--min-p", sampler.min_p, "keep those with p >= min-p * largest")
      ->check(CLI::Range(0.0, 1.0));
  sub.add_option("--repetition-penalty", sampler.repetition_penalty,
                 "divides the scores of tokens that were there before; 1: none")
      ->check(CLI::Range(0.01, 100.0));
  sub.add_option("--seed", sampler.seed, "seed of the random numbers");
  begin_group(sub, kMainOptions);
  sub.add_option("--stop", command->stop, "end at this text (repeatable; not printed)")
      ->take_all()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub.add_flag("--ignore-eos", command->ignore_eos, "go on after the end-of-text token");
  sub.add_flag("--json", command->json, "one JSON object on stdout")->group(kOutputOptions);
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
