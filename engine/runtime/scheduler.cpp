#include "engine/runtime/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/interrupt.h"

namespace lariat {

void Scheduler::add(Request request) {
  check_prompt(std::span(request.tokens).subspan(static_cast<size_t>(request.held())));
  check_length(session_.options(), std::ssize(request.tokens));
  waiting_.emplace_back(std::move(request), session_);
}

bool Scheduler::step(const Session::ProgressFn& progress) {
  if (!running_.empty()) decode();
  if (!ahead_) prefill(progress);  // a request that a callback added waits until no step runs ahead
  return !running_.empty() || !waiting_.empty();
}

// Whole chunks of a common prefix with a running request are shared if both have one scaling, which does not
// depend on the length, and no position method.
Sequence Scheduler::new_sequence(const Text& text) {
  if (text.request.prefix) return session_.fork(*text.request.prefix, text.request.prefix->length());
  Sequence made = session_.new_sequence(text.request.sequence_options);
  if (made.rope().depends_on_length() || !made.method().name.empty()) return made;
  const int64_t unit = std::max(session_.options().prefill_chunk / kKvPage, int64_t{1}) * kKvPage;
  const Sequence* longest = nullptr;
  int64_t shared = 0;
  for (const Text& other : running_) {
    const Sequence& sequence = *other.request.sequence;
    const bool alike = sequence.rope() == made.rope() && sequence.method().name.empty();
    if (!alike || !sequence.positions().mrope().empty()) continue;
    const int64_t common = std::min({common_prefix(other.request.tokens, text.request.tokens),
                                     other.prompt_tokens, text.prompt_tokens - 1});
    if (common / unit * unit > shared) longest = &sequence;
    shared = std::max(shared, common / unit * unit);
  }
  return longest ? session_.fork(*longest, shared) : std::move(made);
}

// All missing tokens, or one chunk of them.
Prompt Scheduler::next_piece(Text& text, bool whole) {
  Request& request = text.request;
  if (text.start == Stopwatch::time_point()) {
    text.start = Stopwatch::now();
    if (!request.sequence) request.sequence = &text.own.emplace(new_sequence(text));
    text.expected = request.sequence->expected();
  }
  Sequence& sequence = *request.sequence;
  const int64_t held = sequence.length(), chunk = session_.options().prefill_chunk;
  int64_t n = text.prompt_tokens - held;
  if (!whole && chunk > 0 && chunk < n && sequence.positions().mrope().empty()) {
    n = chunk;
    sequence.expect(std::max(text.expected, text.prompt_tokens));  // RoPE frequencies of the whole prompt
  }
  const bool last_only = request.logits_from == Prompt::kLastToken;
  const int64_t wanted = last_only ? text.prompt_tokens - 1 : request.logits_from;
  return {&sequence, std::span(request.tokens).subspan(static_cast<size_t>(held), static_cast<size_t>(n)),
          std::max<int64_t>(wanted - held, 0)};
}

void Scheduler::prefill(const Session::ProgressFn& progress) {
  Backend& backend = session_.backend();
  const bool alone = running_.empty();
  const size_t n = std::min({waiting_.size(), at_once_ - running_.size(), alone ? at_once_ : 1});
  if (n == 0) return;
  const auto end = std::next(waiting_.begin(), static_cast<std::ptrdiff_t>(n));
  std::vector<Text*> texts;
  std::vector<Prompt> prompts;
  for (auto text = waiting_.begin(); text != end; ++text) {
    texts.push_back(&*text);
    prompts.push_back(next_piece(*text, alone));
  }
  const auto on_logits = [&](size_t i, int64_t first, const Matrix& logits) {
    Text& text = *texts[i];
    first += prompts[i].tokens.data() - text.request.tokens.data();
    if (text.request.on_logits) text.request.on_logits(first, logits);
    if (first + logits.rows < text.prompt_tokens || text.wanted <= 0) return;
    text.first_token = text.draw(backend, logits.row_range(logits.rows - 1, 1));
  };
  session_.forward(prompts, on_logits, [&](int64_t done) {
    for (const Text* text : texts) stop_if(text->request.options.interrupted);
    if (progress) progress(prefilled_ + done);
  });
  backend.synchronize();
  for (const Prompt& prompt : prompts) prefilled_ += std::ssize(prompt.tokens);
  if (texts.front()->request.sequence->length() < texts.front()->prompt_tokens) return;
  running_.splice(running_.end(), waiting_, waiting_.begin(), end);
  for (Text* text : texts) {
    text->request.sequence->expect(text->expected);
    text->result.prefill_seconds = seconds_since(text->start);
    text->start = Stopwatch::now();
    if (!(text->ended = text->wanted <= 0)) text->accept(session_, text->first_token);
  }
  end_texts();
}

// drawn: decodes row i of the last draw, still on the device, rather than each text's last token and guesses.
Matrix Scheduler::forward_tokens(bool drawn) {
  std::vector<int32_t> tokens;
  int64_t texts_left = std::ssize(running_), rows_left = kSameBitsRows - texts_left;
  for (Text& text : running_) {
    tokens.push_back(drawn ? drawn_token(tokens.size()) : text.request.tokens.back());
    if (!drawn) text.guess(session_, rows_left / texts_left--);
    tokens.insert(tokens.end(), text.guesses.begin(), text.guesses.end());
    rows_left -= std::ssize(text.guesses);
  }
  std::vector<Prompt> prompts;
  for (size_t first = 0; const Text& text : running_) {
    const size_t n = 1 + text.guesses.size();
    prompts.push_back({text.request.sequence, std::span(tokens).subspan(first, n), 0, drawn, true});
    first += n;
  }
  return session_.forward(prompts);
}

// Asynchronous backends queue the next step before the ids are read, so the GPU never waits. A finished text
// truncates the step that ran ahead: tokens and caches are unaffected.
void Scheduler::decode() {
  Backend& backend = session_.backend();
  Matrix logits = std::exchange(ahead_, Matrix());
  if (!logits) logits = forward_tokens(false);
  for (Text& text : running_) text.kept = text.request.sequence->length() - std::ssize(text.guesses);
  if (logits.rows > std::ssize(running_)) return verify(logits);
  bool ahead = backend.traits().asynchronous && (waiting_.empty() || running_.size() >= at_once_);
  std::vector<Sequence*> sequences;
  std::vector<Sampling> sampling;
  std::vector<double> uniforms;
  for (Text& text : running_) {
    sequences.push_back(text.request.sequence);
    sampling.push_back(text.request.options.sampler);
    uniforms.push_back(text.prepare(backend, logits.row_range(std::ssize(uniforms), 1)));
    ahead = ahead && text.request.options.lookup == 0 && std::ssize(text.result.tokens) + 1 < text.wanted;
  }
  backend.draw(logits, sampling, uniforms);
  if (ahead && session_.can_take_back(sequences)) ahead_ = forward_tokens(true);
  std::vector<int32_t> drawn(sequences.size());
  backend.read_drawn(drawn);
  for (size_t row = 0; Text & text : running_) {
    ++text.result.decode_steps;
    text.accept(session_, drawn[row++]);
  }
  end_texts();
}

// Speculative sampling (arXiv 2302.01318) with guesses in place of a draft's distribution: while a drawn
// token equals the guess, the next row has the logits after it. The first other token rejects the remaining
// guesses.
void Scheduler::verify(const Matrix& logits) {
  ahead_ = logits;  // take_back drops rejected guesses, also after an exception
  for (int64_t row = 0; Text & text : running_) {
    bool right = true;
    for (int64_t i = 0; right && i <= std::ssize(text.guesses); ++i) {
      text.kept += i > 0 ? 1 : 0;
      ++text.result.decode_steps;
      text.accept(session_, text.draw(session_.backend(), logits.row_range(row + i, 1)));
      right = !text.ended && i < std::ssize(text.guesses) &&
              text.request.tokens.back() == text.guesses[static_cast<size_t>(i)];
      text.result.accepted += right ? 1 : 0;
    }
    row += 1 + std::ssize(text.guesses);
  }
  take_back();
  end_texts();
}

void Scheduler::take_back() {
  if (!std::exchange(ahead_, Matrix())) return;
  for (Text& text : running_) text.request.sequence->truncate(text.kept);
}

void Scheduler::end_texts() {
  if (std::ranges::none_of(running_, &Text::ended)) return;
  take_back();
  for (auto text = running_.begin(); text != running_.end();) {
    const auto here = text++;
    if (!here->ended) continue;
    Texts ended;
    ended.splice(ended.end(), running_, here);
    here->result.decode_seconds = seconds_since(here->start);
    if (here->request.on_end) here->request.on_end(std::move(here->result));
  }
}

}  // namespace lariat
