#include "engine/text/text_context.h"

#include <algorithm>
#include <utility>

#include "engine/interrupt.h"
#include "engine/text/stop_filter.h"

namespace lariat {
std::vector<int32_t> encode_behind(std::span<const int32_t> context, const Tokenizer& tokenizer,
                                   std::string_view text, bool bos) {
  const std::vector<int32_t>& prefix = tokenizer.prefix();
  std::vector<int32_t> tokens = tokenizer.encode(text, false);
  const auto first =
      std::ranges::find_if(tokens, [&](int32_t token) { return std::ranges::count(prefix, token) == 0; });
  const int64_t kept = context.empty() && !bos ? common_prefix(tokens, prefix) : 0;
  tokens.erase(tokens.begin() + kept, first);
  if (context.empty() && bos) tokens.insert(tokens.begin(), prefix.begin(), prefix.end());
  return tokens;
}

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

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

void TextContext::write(std::vector<int32_t> wanted, const AnswerOptions& options, bool goes_on,
                        Answer& answer, const TextFn& on_text, const TextProgressFn& progress) {
  const size_t common = keep_common(std::move(wanted));
  const auto settle = [&] {
    const std::vector<int32_t>& written = answer.generation.tokens;
    // A prompt that was not read to its end is there as far as it was read, or was there before.
    if (written.empty()) tokens_.resize(std::max(static_cast<size_t>(sequence_.length()), common));
    tokens_.insert(tokens_.end(), written.begin(), written.end());
  };
  const TextTask task{&sequence_, tokens_};
  try {
    write_texts(
        session_, tokenizer_, {&task, 1}, options, goes_on, {&answer, 1},
        [&](size_t, const std::string& piece) { return on_text(piece); }, progress);
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

void write_texts(Session& session, const Tokenizer& tokenizer, std::span<const TextTask> tasks,
                 const AnswerOptions& options, bool goes_on, std::span<Answer> answers,
                 const std::function<bool(size_t text, const std::string& piece)>& on_text,
                 const TextProgressFn& progress) {
  GenerateOptions generation = options.generate;
  std::vector<StopFilter> filters;
  std::vector<Prompt> prompts;
  int64_t total = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto& [sequence, tokens] = tasks[i];
    const auto held = static_cast<size_t>(sequence->length());
    StreamDecoder decoder(tokenizer);
    for (size_t at = 0; goes_on && at < tokens.size(); ++at) decoder.push(tokens[at]);
    filters.emplace_back(tokenizer, std::move(decoder), options.stop);
    generation.cached = tokens.first(held);
    prompts.push_back({sequence, tokens.subspan(held)});
    answers[i].reused = sequence->length();
    answers[i].read = std::ssize(prompts.back().tokens);
    total += answers[i].read;
  }
  const auto show = [&](size_t i, const std::string& piece) {
    answers[i].text += piece;
    return piece.empty() || !on_text || on_text(i, piece);
  };
  auto generations = generate(
      session, prompts, generation,
      [&](size_t i, int32_t id) {
        answers[i].generation.tokens.push_back(id);
        return show(i, filters[i].push(id)) && !filters[i].stopped();
      },
      [&](int64_t done) {
        stop_if(options.generate.interrupted);
        if (progress) progress(done, total);
      });
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].generation = std::move(generations[i]);
    show(i, filters[i].flush());
  }
}

}  // namespace lariat
