#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/contexts/saved_context.h"
#include "engine/runtime/scheduler.h"
#include "models/text/tokenizer.h"

// The text side of generation: prompts to tokens, and new tokens to text.
namespace lariat {

// The settings that a text is written with.
struct AnswerOptions {
  GenerateOptions generate;
  std::vector<std::string> stop;  // texts that end it and are no part of it
};

struct Answer {
  std::string text;
  Generation generation;
  int64_t reused = 0, read = 0;  // tokens before it: in the cache already, and prefilled
};

// Settings of a caller; unset: the default.
struct SamplingOptions {
  bool as_model = false;  // defaults are those of the checkpoint's generation config; else greedy decoding
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
};
// Sets the sampler and, if there are none, the stop texts. Throws Error for a setting of the checkpoint that
// is used and wrong.
void settle_sampling(AnswerOptions& options, const SamplingOptions& given, const GenerationDefaults& model);

// The tokens of `text` after `context`. A text begins once: the tokenizer's prefix (Tokenizer::prefix) stands
// at its beginning at most once (`bos`: it is put there), and never after a context.
std::vector<int32_t> encode_behind(std::span<const int32_t> context, const Tokenizer& tokenizer,
                                   std::string_view text, bool bos);
// The context and the tokens of the text after it, which begins with a BOS if the tokenizer adds one; the
// first `most` of these tokens only.
std::vector<int32_t> prompt_tokens(std::span<const int32_t> context, const Tokenizer& tokenizer,
                                   std::string_view text, std::optional<int64_t> most = {});

using TextFn = std::function<bool(const std::string& piece)>;  // false: write no more
using TextProgressFn = std::function<void(int64_t done, int64_t total)>;

// Adds a request for tokens that are written to `answer` as text while they come: an exception leaves the
// text so far. `continues`: as one text with its tokens, so that a leading space of the first new word is
// kept. Tokenizer and answer must outlive the scheduler.
void write_text(Scheduler& scheduler, const Tokenizer& tokenizer, Request request,
                const AnswerOptions& options, bool continues, Answer& answer, const TextFn& on_text = {});

// Makes the context hold `wanted`, whose common prefix with its tokens stays in the cache, and writes what
// follows. The cache may then lack the last token. progress: of the prefill, in which Interrupted is thrown
// when options.generate.interrupted is set; later it ends the text.
void continue_context(Session& session, const Tokenizer& tokenizer, SavedContext& context,
                      std::vector<int32_t> wanted, const AnswerOptions& options, bool continues,
                      Answer& answer, const TextFn& on_text, const TextProgressFn& progress = {});
// Prefills the token that the cache lacks, if max_ctx allows it.
void prefill_rest(Session& session, SavedContext& context);

// Writes what follows several texts, each of which begins with the context's tokens, as many at a time as
// memory allows. Throws Interrupted.
std::vector<Answer> write_texts(Session& session, const Tokenizer& tokenizer, const SavedContext& context,
                                std::span<const std::vector<int32_t>> texts, const AnswerOptions& options,
                                bool continues);

}  // namespace lariat
