#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/contexts/saved_context.h"
#include "engine/runtime/scheduler.h"
#include "models/text/tokenizer.h"

namespace lariat {

struct AnswerOptions {
  GenerateOptions generate;
  std::vector<std::string> stop;  // not part of the output
};

struct Answer {
  std::string text;
  Generation generation;
  int64_t reused = 0, read = 0;  // prompt tokens found in the cache, and prefilled
};

// Unset: the default.
struct SamplingOptions {
  bool as_model = false;  // default: the checkpoint's generation config, not greedy decoding
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
};
// Sets the sampler, and the stop strings if empty. Throws Error for an invalid setting of the checkpoint.
void settle_sampling(AnswerOptions& options, const SamplingOptions& given, const GenerationDefaults& model);

// Encodes `text` after `context`. Tokenizer::prefix appears at most once, at the beginning of a text (`bos`:
// is added there), never after a context.
std::vector<int32_t> encode_after(std::span<const int32_t> context, const Tokenizer& tokenizer,
                                  std::string_view text, bool bos);
// The context and the first `most` tokens of the text, with a BOS at the beginning if the tokenizer adds one.
std::vector<int32_t> prompt_tokens(std::span<const int32_t> context, const Tokenizer& tokenizer,
                                   std::string_view text, std::optional<int64_t> most = {});

using TextFn = std::function<bool(const std::string& piece)>;  // returns false to stop
using TextProgressFn = std::function<void(int64_t done, int64_t total)>;

// Adds a request and appends its text to `answer`; an exception keeps the text so far. `continues`: decode
// prompt and output as one text, keeping a leading space of the output. Tokenizer and answer must outlive the
// scheduler. The request's own on_progress and on_end are called after. Returns its id.
int64_t write_text(Scheduler& scheduler, const Tokenizer& tokenizer, Request request,
                   const AnswerOptions& options, bool continues, Answer& answer, const TextFn& on_text = {});

// Makes the context hold `wanted` (the common prefix stays cached) and generates. The cache may then lack the
// last token. progress: prefilled tokens. options.generate.interrupted throws Interrupted in the prefill, and
// later ends the text.
void continue_context(Session& session, const Tokenizer& tokenizer, SavedContext& context,
                      std::vector<int32_t> wanted, const AnswerOptions& options, bool continues,
                      Answer& answer, const TextFn& on_text, const TextProgressFn& progress = {});
void prefill_rest(Session& session, SavedContext& context);

// Continues texts that begin with the context's tokens, in batches that fit into memory. Throws Interrupted.
std::vector<Answer> write_texts(Session& session, const Tokenizer& tokenizer, const SavedContext& context,
                                std::span<const std::vector<int32_t>> texts, const AnswerOptions& options,
                                bool continues);

}  // namespace lariat
