#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/text/generate.h"
#include "tools/options.h"

// Shared by generate and chat.
namespace lariat {

struct WritingOptions : AnswerOptions {
  SamplingOptions sampling;
  std::string system;
  std::filesystem::path save_cache;
  ContextOptions load_cache;
  std::filesystem::path draft;
};

// `most`: text of the default length; "": the number.
void add_writing_options(CLI::App& command, WritingOptions& options, const std::string& most = "");

struct DraftModel {
  Engine engine;
  Session session = engine.session();
};
// Opens the model of --draft for options.generate; null without one.
std::unique_ptr<DraftModel> open_draft(WritingOptions& options, const CommonOptions& common,
                                       const Engine& engine);

// Warns about the checkpoint and about ignored options.
void choose_sampling(WritingOptions& options, const GenerationDefaults& model, const CommonOptions& common);
// {"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed"}
nlohmann::ordered_json sampling_json(const SamplerOptions& sampler);
// {"prefill_s", "prefill_tok_s", "decode_s", "decode_tok_s"}
nlohmann::ordered_json timings_json(const Answer& answer);
// Parses JSON escapes.
std::string unescaped(const std::string& text);
// Warns about a literal \n or \t in --prompt, --system or --stop, possibly meant as an escape.
void warn_of_escapes(const WritingOptions& options, const std::string& prompt, const std::string& remedy,
                     bool quiet);

double rate(int64_t n, double seconds);  // n per second; 0 for no time

}  // namespace lariat
