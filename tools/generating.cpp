#include "tools/generating.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/text/unicode.h"
#include "tools/help.h"

namespace lariat {
namespace {

void add_sampling_options(CLI::App& command, SamplingOptions& options) {
  const auto value = [&](const char* otherwise) { return options.as_model ? "the model's own" : otherwise; };
  if (!options.as_model) {
    command
        .add_option_function<std::string>(
            "--sampling", [&options](const std::string& text) { options.as_model = text == "model"; },
            "model: defaults from generation_config.json")
        ->check(CLI::IsMember({"greedy", "model"}))
        ->default_str("greedy");
  }
  command.add_option("--temperature", options.temperature, "softmax temperature; 0: greedy decoding")
      ->check(CLI::Range(0.0, 1000.0))
      ->default_str(value("0"));
  command.add_option("--top-k", options.top_k, "sample from the k most probable tokens; 0: all")
      ->check(CLI::Range(0, 1 << 30))
      ->default_str(value("0"));
  command.add_option("--top-p", options.top_p, "nucleus sampling: smallest token set with probability p")
      ->check(CLI::Range(0.0, 1.0))
      ->default_str(value("1"));
  command.add_option("--min-p", options.min_p, "sample from tokens with p >= min-p * maximum")
      ->check(CLI::Range(0.0, 1.0))
      ->default_str(value("0"));
  command
      .add_option("--repetition-penalty", options.repetition_penalty,
                  "divide logits of seen tokens by F; 1: none")
      ->check(CLI::Range(0.01, 100.0))
      ->default_str("the model's own");
  command.add_option("--seed", options.seed, "random seed")->default_str("0");
}

// Shortest decimal number that parses to this float.
double shortest(float value) { return std::stod(fmt::format("{}", value)); }

}  // namespace

void add_writing_options(CLI::App& command, WritingOptions& options, const std::string& most) {
  auto* length =
      command.add_option("-n,--max-new-tokens", options.generate.max_new_tokens, "maximum new tokens")
          ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  if (!most.empty()) length->default_str(most);
  command.add_option("--lookup", options.generate.lookup, "prompt lookup decoding: guesses per step; 0: off")
      ->check(CLI::Range(int64_t{0}, Lookup::kMostGuesses));
  command
      .add_option("--draft", options.draft, "smaller model that makes the guesses, up to --lookup per step")
      ->type_name("DIR");
  command.add_option("--system", options.system, "system message");
  command.add_option("--stop", options.stop, "stop at this text (repeatable, not printed)")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return text.empty() ? "an empty text ends every answer; give a text" : "";
          },
          ""))
      ->take_all()
      ->expected(1);
  add_output_option(command, "--save-cache", options.save_cache, "save the KV cache to FILE");
  add_context_options(command, options.load_cache, "continue from a saved KV cache");
  begin_group(command, kSamplingOptions);
  add_sampling_options(command, options.sampling);
  begin_group(command, kMainOptions);
}

std::unique_ptr<DraftModel> open_draft(WritingOptions& options, const CommonOptions& common,
                                       const Engine& engine) {
  if (options.draft.empty()) return nullptr;
  if (options.generate.lookup == 0 && common.command->count("--lookup") > 0) {
    warn_idle(common, {"--draft"}, "with --lookup 0");
    return nullptr;
  }
  if (engine.options.ranks != nullptr)
    throw UsageError("--draft: not supported on several processes; remove it");
  OpenOptions open;
  open.device = common.open.device;
  open.threads = common.open.threads;
  std::unique_ptr<DraftModel> draft(new DraftModel{Engine::open(options.draft, open)});
  const Tokenizer &tokens = *engine.tokenizer, &of_draft = *draft->engine.tokenizer;
  for (int64_t id = 0; id < std::max(tokens.vocab_size(), of_draft.vocab_size()); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (tokens.id_to_token(token) != of_draft.id_to_token(token))
      throw Error(fmt::format("{}: token {} is \"{}\", and \"{}\" in {}; use a draft with the same tokenizer",
                              options.draft.string(), id, of_draft.id_to_token(token),
                              tokens.id_to_token(token), common.model.string()));
  }
  if (options.generate.lookup == 0) options.generate.lookup = Lookup::kMostGuesses;
  options.generate.draft = &draft->session;
  if (draft->engine.model.weights.token_bytes >= engine.model.weights.token_bytes)
    warn_idle(common, {"--draft"}, "with a draft as large as the model; use a smaller one");
  return draft;
}

void choose_sampling(WritingOptions& options, const GenerationDefaults& model, const CommonOptions& common) {
  print_warnings(model.warnings, common.quiet);
  settle_sampling(options, options.sampling, model);
  if (options.generate.sampler.temperature > 0.0F) return;
  warn_idle(common, {"--top-k", "--top-p", "--min-p", "--seed"},
            "with greedy decoding; use --temperature 0.7 or another");
}

nlohmann::ordered_json sampling_json(const SamplerOptions& sampler) {
  return {{"temperature", shortest(sampler.temperature)},
          {"top_k", sampler.top_k},
          {"top_p", shortest(sampler.top_p)},
          {"min_p", shortest(sampler.min_p)},
          {"repetition_penalty", shortest(sampler.repetition_penalty)},
          {"seed", sampler.seed}};
}

nlohmann::ordered_json timings_json(const Answer& answer) {
  const Generation& result = answer.generation;
  return {{"prefill_s", result.prefill_seconds},
          {"prefill_tok_s", rate(answer.read, result.prefill_seconds)},
          {"decode_s", result.decode_seconds},
          {"decode_tok_s", rate(result.decode_steps, result.decode_seconds)}};
}

std::string unescaped(const std::string& text) {
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (text[i] == '\\' && i + 1 < text.size()) {
      quoted += text.substr(i++, 2);
    } else if (text[i] == '"' || byte < 0x20) {
      quoted += fmt::format("\\u{:04x}", byte);
    } else {
      quoted += text[i];
    }
  }
  const auto parsed = nlohmann::json::parse(quoted + "\"", nullptr, false);
  if (!parsed.is_string())
    throw UsageError("--escape: unknown escape in '" + text + "'; use \\n, \\t, \\\\, \\\" or \\uXXXX");
  return parsed.get<std::string>();
}

void warn_of_escapes(const WritingOptions& options, const std::string& prompt, const std::string& remedy,
                     bool quiet) {
  const auto warn = [&](const char* option, const std::string& text) {
    for (const auto& [typed, meant, name] :
         {std::tuple("\\n", "\n", "line break"), std::tuple("\\t", "\t", "tab")}) {
      if (text.find(typed) == std::string::npos || text.find(meant) != std::string::npos) continue;
      const std::string shown = text.size() <= 40 ? text : text.substr(0, char_start(text, 40)) + "...";
      return print_warnings({fmt::format("{} \"{}\" holds a backslash and a letter, not a {}; {}", option,
                                         shown, name, remedy)},
                            quiet);
    }
  };
  warn("--prompt", prompt);
  warn("--system", options.system);
  for (const std::string& stop : options.stop) warn("--stop", stop);
}

double rate(int64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0.0; }

}  // namespace lariat
