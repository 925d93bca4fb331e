#include "engine/text/text_context.h"

#include <algorithm>
#include <utility>

namespace lariat {

TextContext::TextContext(Session& session, const Tokenizer& tokenizer)
    : session_(session), tokenizer_(tokenizer), sequence_(session.new_sequence()) {}

// Forgets what is not in common with `wanted`; returns how many tokens are. The last one wanted is always
// read, as it brings the logits.
size_t TextContext::keep_common(std::vector<int32_t> wanted) {
  const int64_t common = common_prefix(tokens_, wanted);
  sequence_.truncate(common);
  sequence_.rewind(std::clamp<int64_t>(std::ssize(wanted) - 1, 0, common));
  tokens_ = std::move(wanted);
  return static_cast<size_t>(common);
}

void TextContext::write(std::vector<int32_t> wanted, const AnswerOptions& options, bool continues,
                        Answer& answer, const TextFn& on_text, const TextProgressFn& progress) {
  const size_t common = keep_common(std::move(wanted));
  const auto settle = [&] {
    const std::vector<int32_t>& written = answer.generation.tokens;
    // A prompt that was not read to its end is there as far as it was read, or was there before.
    if (written.empty()) tokens_.resize(std::max(static_cast<size_t>(sequence_.length()), common));
    tokens_.insert(tokens_.end(), written.begin(), written.end());
  };
  try {
    Scheduler scheduler(session_);
    write_text(scheduler, tokenizer_, {.tokens = tokens_, .sequence = &sequence_}, options, continues, answer,
               on_text);
    scheduler.run([&](int64_t done) {
      if (progress) progress(done, answer.read);
    });
  } catch (...) {
    settle();
    throw;
  }
  settle();
}

void TextContext::read_rest() {
  const auto rest = std::span(tokens_).subspan(static_cast<size_t>(sequence_.length()));
  const int64_t most = session_.options().max_ctx;
  if (!rest.empty() && (most == 0 || std::ssize(tokens_) <= most)) forward(session_, {&sequence_, rest});
}

void TextContext::truncate(int64_t length) {
  sequence_.truncate(length);
  tokens_.resize(std::min(tokens_.size(), static_cast<size_t>(length)));
}

void TextContext::restore(SavedContext context) {
  sequence_ = std::move(context.sequence);
  tokens_ = std::move(context.tokens);
}

}  // namespace lariat
