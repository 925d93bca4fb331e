#include "engine/text_context.h"

#include <algorithm>
#include <utility>

#include "engine/interrupt.h"
#include "engine/stop_filter.h"

namespace lariat {

TextContext::TextContext(Session& session, const Tokenizer& tokenizer)
    : session_(session), tokenizer_(tokenizer), sequence_(session.new_sequence()) {}

// Forgets what the cache does not have in common with `wanted`; returns the tokens that it lacks. The last
// one is always read, as it brings the logits.
std::span<const int32_t> TextContext::keep_common(std::vector<int32_t> wanted) {
  const auto same = std::mismatch(tokens_.begin(), tokens_.end(), wanted.begin(), wanted.end()).first;
  const size_t most = wanted.empty() ? 0 : wanted.size() - 1;
  const auto common = static_cast<size_t>(same - tokens_.begin()), kept = std::min(common, most);
  sequence_.truncate(static_cast<int64_t>(common));
  sequence_.rewind(static_cast<int64_t>(kept));
  tokens_ = std::move(wanted);
  return std::span<const int32_t>(tokens_).subspan(kept);
}

void TextContext::write(std::vector<int32_t> wanted, const AnswerOptions& options, bool goes_on,
                        Answer& answer, const TextFn& on_text, const TextProgressFn& progress) {
  StreamDecoder decoder(tokenizer_);
  if (goes_on) {
    for (const int32_t id : wanted) decoder.push(id);
  }
  StopFilter filter(options.stop);
  const auto show = [&](const std::string& piece) {
    answer.text += piece;
    return piece.empty() || on_text(piece);
  };
  const std::vector<int32_t> all = wanted;
  const std::span<const int32_t> prompt = keep_common(std::move(wanted));
  answer.read = std::ssize(prompt);
  answer.reused = std::ssize(all) - answer.read;
  GenerateOptions generation = options.generate;
  generation.cached = std::span(all).first(static_cast<size_t>(answer.reused));
  std::vector<int32_t>& written = answer.generation.tokens;
  const auto settle = [&] {
    tokens_.insert(tokens_.end(), written.begin(), written.end());
    tokens_.resize(static_cast<size_t>(sequence_.length()));
  };
  try {
    answer.generation = generate(
        session_, sequence_, prompt, generation,
        [&](int32_t id) {
          written.push_back(id);
          return show(filter.push(decoder.push(id))) && !filter.stopped();
        },
        [&](int64_t done) {
          stop_if(options.generate.interrupted);
          if (progress) progress(done, answer.read);
        });
    show(filter.push(decoder.flush()));
    show(filter.flush());
  } catch (...) {
    settle();
    throw;
  }
  settle();
}

void TextContext::read_rest(const Answer& answer) {
  const std::span<const int32_t> written = answer.generation.tokens;
  const int64_t whole = answer.reused + answer.read + std::ssize(written), most = session_.options().max_ctx;
  const std::span<const int32_t> rest = written.last(static_cast<size_t>(whole - sequence_.length()));
  if (rest.empty() || (most > 0 && whole > most)) return;
  session_.prefill_last(sequence_, rest);
  tokens_.insert(tokens_.end(), rest.begin(), rest.end());
}

void TextContext::truncate(int64_t length) {
  sequence_.truncate(length);
  tokens_.resize(static_cast<size_t>(sequence_.length()));
}

void TextContext::restore(SavedContext context) {
  sequence_ = std::move(context.sequence);
  tokens_ = std::move(context.tokens);
}

}  // namespace lariat
