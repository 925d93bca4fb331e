#pragma once
#include <string>
#include <vector>

#include "engine/text/generate.h"
#include "tools/options.h"

// The options and warnings of the subcommands that write text: generate and chat.
namespace lariat {

struct WritingOptions : AnswerOptions {
  SamplingOptions sampling;
  std::string system;
  std::filesystem::path save_cache;
  ContextOptions load_cache;
};

// --max-new-tokens, --lookup, --temperature and the rest of the sampling, --stop, --system, --save-cache,
// --load-cache,
// --join. `most`: how many tokens are written by default, in words; "": as the number says.
void add_writing_options(CLI::App& command, WritingOptions& options, const std::string& most = "");

// settle_sampling with warnings, of the checkpoint and of options that are ignored.
void choose_sampling(WritingOptions& options, const GenerationDefaults& model, const CommonOptions& common);
// {"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed"}
nlohmann::ordered_json sampling_json(const SamplerOptions& sampler);
// {"prefill_s", "prefill_tok_s", "decode_s", "decode_tok_s"}
nlohmann::ordered_json timings_json(const Answer& answer);
// A text in which \n, \t, \\, \" and \uXXXX stand for what they stand for in JSON.
std::string unescaped(const std::string& text);
// Warns of a prompt, --system or --stop in which somebody may have meant a line break or a tab by \n or \t.
void warn_of_escapes(const WritingOptions& options, const std::string& prompt, const std::string& remedy,
                     bool quiet);

double rate(int64_t n, double seconds);  // n per second; 0 where no time has passed

}  // namespace lariat
