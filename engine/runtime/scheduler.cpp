#include "engine/runtime/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/interrupt.h"
#include "kernels/integers.h"

namespace lariat {
namespace {

bool is_cache_full(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CacheFull&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

int64_t Scheduler::add(Request request) {
  check_prompt(std::span(request.tokens).subspan(static_cast<size_t>(request.held())));
  check_length(session_.options(), std::ssize(request.tokens));
  return waiting_.emplace_back(std::move(request), session_, ++last_id_).id;
}

void Scheduler::cancel(int64_t id) {
  for (Texts* texts : {&waiting_, &running_})
    for (Text& text : *texts)
      if (text.id == id && !text.ended) text.end(StopReason::kInterrupted);
  if (!stepping_) end_texts();
}

bool Scheduler::step(const Session::ProgressFn& progress) {
  stepping_ = true;
  const int64_t before = prefilled_;
  if (!running_.empty()) decode();
  end_texts();
  if (!ahead_) prefill();  // a request that a callback added waits until no step runs ahead
  end_texts();
  stepping_ = false;
  if (progress && prefilled_ > before) progress(prefilled_);
  return !running_.empty() || !waiting_.empty();
}

void Scheduler::run(const Session::ProgressFn& progress) {
  while (step(progress) && first_error_ == nullptr) {
  }
  if (first_error_ == nullptr) return;
  for (Texts* texts : {&waiting_, &running_})
    for (Text& text : *texts) text.end(StopReason::kInterrupted);
  end_texts();
  std::rethrow_exception(std::exchange(first_error_, nullptr));
}

Sequence Scheduler::new_sequence(const Text& text) {
  const Request& request = text.request;
  if (request.prefix) return session_.fork(*request.prefix, request.prefix->length());
  Sequence made = session_.new_sequence(request.sequence_options);
  session_.share_prefix(made, text.prompt(), text.logits_from);
  return made;
}

// Whether the free pages hold the text, with a page in reserve for each running text.
bool Scheduler::fits(const Text& text) const {
  if (text.started) return true;
  const int64_t missing = std::ssize(text.request.tokens) - text.request.held();
  const int64_t pages = ceil_div(missing, kKvPage) + std::ssize(running_);
  const Session* const draft = text.request.options.draft;
  return pages <= session_.free_pages() && (draft == nullptr || pages <= draft->pool().free_pages());
}

void Scheduler::start(Text& text) {
  if (text.start == Stopwatch::time_point()) text.start = Stopwatch::now();
  if (!text.request.sequence) {
    text.request.sequence = &text.own.emplace(new_sequence(text));
    text.result.shared = text.own->length();
  }
  text.expected = text.request.sequence->expected();
  text.request.sequence->expect_tokens(text.prompt_tokens);  // RoPE frequencies of the whole prompt
  text.last_neighbour = last_id_;
  text.started = true;
  session_.reserve(*text.request.sequence, text.prompt_tokens);  // rather than fail after most of a prefill
}

// Up to `most` missing tokens of the prompt. A restarted text then decodes the tokens that it had drawn, in
// the steps of a first decode: prefilling them would change rounding, and earlier frequencies.
Prompt Scheduler::next_piece(Text& text, int64_t most) {
  if (!text.started) start(text);
  Sequence& sequence = *text.request.sequence;
  const std::span<const int32_t> tokens = text.request.tokens;
  const int64_t held = sequence.length(), missing = text.prompt_tokens - held;
  const auto piece = [&](int64_t n) {
    return tokens.subspan(static_cast<size_t>(held), static_cast<size_t>(n));
  };
  if (missing > 0)
    return {&sequence, piece(std::min(missing, most)), std::max<int64_t>(text.logits_from - held, 0)};
  int64_t n = std::min(kSameBitsRows, std::ssize(tokens) - 1 - held);
  while (n > 1 && !session_.can_take_back({&text.request.sequence, 1}, n)) --n;
  return {.sequence = &sequence, .tokens = piece(n), .logits_from = 0, .decode = true};
}

// Pieces of up to one chunk in all. A pass that prompts share is filled, except by later arrivals; a piece
// with its own pass is whole, as if its prompt were alone.
Scheduler::Parts Scheduler::next_pieces() {
  const int64_t chunk = session_.options().prefill_chunk;
  const int64_t most = chunk > 0 ? chunk : std::numeric_limits<int64_t>::max();
  int64_t left = most;
  Parts parts;
  for (Text& text : waiting_) {
    if (left == 0 || running_.size() + parts.size() >= at_once_) break;
    if (running_.empty() && !parts.empty() && text.id > parts.front().text->last_neighbour) break;
    const bool alone = running_.empty() && parts.empty();  // waiting would free no page
    if (!alone && !fits(text)) break;
    const int64_t missing = std::ssize(text.request.tokens) - text.request.held();
    if (!running_.empty() && !parts.empty() && std::min(missing, most) > left) break;
    Prompt prompt;
    try {
      prompt = next_piece(text, running_.empty() ? left : most);
    } catch (...) {
      if (is_cache_full(std::current_exception()) && suspend_youngest()) break;
      text.fail(std::current_exception());
      break;  // the next step has its pages
    }
    if (prompt.decode && !parts.empty()) break;
    parts.push_back({&text, prompt});
    if (prompt.decode) break;
    left -= std::ssize(prompt.tokens);
  }
  std::erase_if(parts, [](const Part& part) { return !part.text->started; });
  return parts;
}

// Prompts share a pass while no text runs. Later prompts have separate passes, so that a text's bits do not
// depend on the requests that it joins.
void Scheduler::prefill() {
  Parts parts = next_pieces();
  if (running_.empty()) {
    prefill(parts);
  } else {
    for (const Part& part : parts) {
      Parts one{part};
      if (part.text->started && !part.text->ended) prefill(one);
    }
  }
  for (auto text = waiting_.begin(); text != waiting_.end();) {
    const auto here = text++;
    if (!here->ended && here->cached()) join(here);
  }
}

void Scheduler::prefill(Parts& parts) {
  pass(parts, [&](size_t i, int64_t first, const Matrix& logits) {
    Text& text = *parts[i].text;
    first += parts[i].prompt.tokens.data() - text.request.tokens.data();
    if (!parts[i].prompt.decode) text.attempt([&] { text.take_logits(session_.backend(), first, logits); });
  });
  for (const Part& part : parts) {
    prefilled_ += std::ssize(part.prompt.tokens);
    if (part.text->own && !part.text->request.prefix && !part.prompt.decode)
      session_.prefixes().name(*part.text->own, part.text->prompt());
    part.text->attempt([&] { stop_if(part.text->request.options.interrupted); });
  }
}

void Scheduler::join(Texts::iterator text) {
  running_.splice(running_.end(), waiting_, text);
  text->request.sequence->expect(text->expected);
  if (!text->result.tokens.empty()) return;  // restarted
  text->result.prefill_seconds = seconds_since(text->start);
  text->start = Stopwatch::now();
  if (!(text->ended = text->wanted <= 0)) text->attempt([&] { text->accept(session_, text->first_token); });
}

// drawn: decodes row i of the last draw, still on the device, rather than each text's last token and guesses.
Scheduler::Parts Scheduler::next_rows(bool drawn) {
  tokens_.clear();
  int64_t texts_left = std::ssize(running_), rows_left = kSameBitsRows - texts_left;
  for (Text& text : running_) {
    tokens_.push_back(drawn ? drawn_token(tokens_.size()) : text.request.tokens.back());
    try {
      if (!drawn) text.guess(session_, rows_left / texts_left--);
    } catch (...) {  // a failing draft costs guesses, not the text
      text.guesses.clear();
      text.request.options.lookup = 0;
    }
    tokens_.insert(tokens_.end(), text.guesses.begin(), text.guesses.end());
    rows_left -= std::ssize(text.guesses);
  }
  Parts parts;
  for (size_t first = 0; Text & text : running_) {
    const size_t n = 1 + text.guesses.size();
    parts.push_back({&text, {text.request.sequence, std::span(tokens_).subspan(first, n), 0, drawn, true}});
    first += n;
  }
  return parts;
}

// Asynchronous backends queue the next step before the ids are read, so the GPU never waits. A finished text
// truncates the step that ran ahead: tokens and caches are unaffected.
void Scheduler::decode() {
  Backend& backend = session_.backend();
  Matrix logits = std::exchange(ahead_, Matrix());
  if (!logits) {
    keep_pages_free();
    parts_ = next_rows(false);
    logits = pass(parts_);
  }
  for (const auto& [text, prompt] : parts_)
    text->accepted_length = prompt.sequence->length() - std::ssize(text->guesses);
  if (parts_.empty()) return;
  if (logits.rows > std::ssize(parts_)) return verify(logits);
  bool ahead = backend.traits().asynchronous && (waiting_.empty() || running_.size() >= at_once_);
  std::vector<Sampling> sampling;
  std::vector<double> uniforms;
  try {
    for (const Part& part : parts_) {
      Text& text = *part.text;
      double& uniform = uniforms.emplace_back();
      const Matrix row = logits.row_range(std::ssize(sampling), 1);
      text.attempt([&] { uniform = text.prepare(backend, row); });
      sampling.push_back(text.request.options.sampler);
      ahead = ahead && !text.ended && text.request.options.lookup == 0 &&
              std::ssize(text.result.tokens) + 1 < text.wanted;
    }
    backend.draw(logits, sampling, uniforms);
    if (ahead) run_ahead();
    std::vector<int32_t> drawn(parts_.size());
    backend.read_drawn(drawn);
    for (size_t row = 0; const Part& part : parts_)
      part.text->attempt([&, row = row++] {
        ++part.text->result.decode_steps;
        part.text->accept(session_, drawn[row]);
      });
  } catch (...) {  // of the one draw for all
    for (const Part& part : parts_) part.text->fail(std::current_exception());
  }
}

void Scheduler::run_ahead() {
  std::vector<Sequence*> sequences;
  for (const Part& part : parts_) sequences.push_back(part.prompt.sequence);
  if (sequences.size() < running_.size() || !session_.can_take_back(sequences)) return;
  std::vector<Prompt> prompts;
  Parts next = next_rows(true);
  for (const Part& part : next) prompts.push_back(part.prompt);
  try {
    ahead_ = session_.forward(prompts);
    parts_ = std::move(next);
  } catch (...) {  // the next step repeats the pass, and finds the text that fails
    for (const Part& part : parts_) part.prompt.sequence->truncate(part.text->accepted_length);
  }
}

// Speculative sampling (arXiv 2302.01318) with guesses in place of a draft's distribution: while a drawn
// token equals the guess, the next row has the logits after it. The first other token rejects the remaining
// guesses.
void Scheduler::verify(const Matrix& logits) {
  ahead_ = logits;  // take_back drops rejected guesses
  for (int64_t row = 0; const auto& [of, prompt] : parts_) {
    Text& text = *of;
    bool right = true;
    for (int64_t i = 0; right && i <= std::ssize(text.guesses); ++i) {
      text.accepted_length += i > 0 ? 1 : 0;
      text.attempt([&] {
        ++text.result.decode_steps;
        text.accept(session_, text.draw(session_.backend(), logits.row_range(row + i, 1)));
      });
      right = !text.ended && i < std::ssize(text.guesses) &&
              text.request.tokens.back() == text.guesses[static_cast<size_t>(i)];
      text.result.accepted += right ? 1 : 0;
    }
    row += 1 + std::ssize(text.guesses);
  }
  take_back();
}

// Runs one pass over parts. If it fails, texts leave the pass until it succeeds.
Matrix Scheduler::pass(Parts& parts, const Session::LogitsFn& on_logits) {
  std::vector<Prompt> prompts;
  while (!parts.empty()) {
    prompts.clear();
    for (const auto& [text, prompt] : parts) {
      prompts.push_back(prompt);
      text->accepted_length = prompt.sequence->length();
    }
    bool delivered = false;
    try {
      const Matrix logits = session_.forward(prompts, [&](size_t i, int64_t first, const Matrix& rows) {
        delivered = true;
        if (on_logits) on_logits(i, first, rows);
      });
      if (on_logits) session_.backend().synchronize();
      return logits;
    } catch (...) {
      for (const auto& [text, prompt] : parts) prompt.sequence->rewind(text->accepted_length);
      leave_out(parts, std::current_exception(), !delivered);
    }
  }
  return {};
}

// Removes at least one part of a failed pass: for lack of pages the youngest text, else the texts that also
// fail alone. may_repeat: no text has received logits, which it must not receive again.
void Scheduler::leave_out(Parts& parts, const std::exception_ptr& error, bool may_repeat) {
  const size_t n = parts.size();
  const auto fails = [&](const Part& part) {
    try {
      session_.forward({&part.prompt, 1});
      part.prompt.sequence->rewind(part.text->accepted_length);
      return false;
    } catch (...) {
      part.prompt.sequence->rewind(part.text->accepted_length);
      part.text->fail(std::current_exception());
      return true;
    }
  };
  if (!may_repeat) {
    for (const Part& part : parts) part.text->fail(error);
    return parts.clear();
  }
  if (is_cache_full(error) && suspend_youngest()) {
    std::erase_if(parts, [](const Part& part) { return !part.text->started; });
    return;
  }
  if (n > 1) std::erase_if(parts, fails);
  if (parts.size() < n) return;
  parts.back().text->fail(error);
  parts.pop_back();
}

// Returns false if no other text would keep pages.
bool Scheduler::suspend_youngest() {
  Texts::iterator youngest;
  Texts* list = nullptr;
  int64_t holders = 0;
  for (Texts* texts : {&waiting_, &running_}) {
    for (auto text = texts->begin(); text != texts->end(); ++text) {
      if (text->ended || !text->started) continue;
      ++holders;
      if (!text->own || (list != nullptr && text->id < youngest->id)) continue;  // a caller's sequence stays
      youngest = text, list = texts;
    }
  }
  if (holders < 2 || list == nullptr) return false;
  youngest->suspend();
  if (list == &running_) {
    const auto later =
        std::ranges::find_if(waiting_, [&](const Text& text) { return text.id > youngest->id; });
    waiting_.splice(later, running_, youngest);
  }
  return true;
}

// The host gives memory that it lacks, and ends the program later: the youngest texts wait before that.
void Scheduler::keep_pages_free() {
  const auto grows = [&](const Text& text) {
    return !text.request.sequence->cache().has_room(text.request.sequence->length() + 1);
  };
  while (true) {
    const auto wanted = std::ranges::count_if(running_, grows);
    if (wanted == 0 || session_.free_pages() >= wanted || !suspend_youngest()) return;
  }
}

void Scheduler::take_back() {
  if (!std::exchange(ahead_, Matrix())) return;
  for (const Part& part : parts_) part.prompt.sequence->truncate(part.text->accepted_length);
}

// Frees a text's pages before its caller acts. Callbacks may cancel more texts.
void Scheduler::end_texts() {
  const bool stepping = std::exchange(stepping_, true);
  const auto next = [](Texts& texts) { return std::ranges::find_if(texts, &Text::ended); };
  for (Texts* texts = &waiting_; texts != nullptr;) {
    const auto text = next(*texts);
    if (text == texts->end()) {
      texts = texts == &waiting_ ? &running_ : next(waiting_) == waiting_.end() ? nullptr : &waiting_;
      continue;
    }
    if (texts == &running_) {
      take_back();
      text->result.decode_seconds = seconds_since(text->start);
    } else if (text->started) {
      text->request.sequence->expect(text->expected);
    }
    if (text->own) session_.prefixes().keep(text->own->cache());
    const auto on_end = std::move(text->request.on_end);
    Generation result = std::move(text->result);
    texts->erase(text);
    if (first_error_ == nullptr) first_error_ = result.error;
    try {
      if (on_end) on_end(std::move(result));
    } catch (...) {
      if (first_error_ == nullptr) first_error_ = std::current_exception();
    }
  }
  stepping_ = stepping;
}

}  // namespace lariat
