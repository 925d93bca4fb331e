#include "engine/eval/measure/score.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/contexts/memory_check.h"
#include "engine/interrupt.h"
#include "engine/text/generate.h"
#include "kernels/error.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

constexpr int64_t kMostAtOnce = 64;  // texts

std::span<const int32_t> to_read(const ScoredText& text) {
  return std::span(text.tokens).first(text.tokens.size() - 1);
}

}  // namespace

ScoredText scored_text(std::span<const int32_t> context, const Tokenizer& tokenizer, std::string_view prompt,
                       std::string_view continuation, bool bos) {
  const auto is_space = [](std::string_view c) { return is_white_space(utf8_step(c, 0).value); };
  const std::string_view before = strip(prompt, is_space, false, true);
  ScoredText text{.tokens = {context.begin(), context.end()}};
  if (before.empty() && context.empty()) {
    text.tokens = tokenizer.prefix().empty() ? tokenizer.eos_ids() : tokenizer.prefix();
    if (text.tokens.empty()) throw Error("prompt: empty, and the tokenizer has no BOS; give a prompt");
    context = text.tokens;
  }
  const std::vector<int32_t> head = encode_after(context, tokenizer, before, bos);
  const std::vector<int32_t> whole =
      encode_after(context, tokenizer, std::string(prompt).append(continuation), bos);
  if (continuation.empty() || whole.size() <= head.size())
    throw Error("continuation: adds no token to the prompt; give a longer one");
  text.tokens.insert(text.tokens.end(), head.begin(), head.end());
  text.from = std::ssize(text.tokens);
  text.tokens.insert(text.tokens.end(), whole.begin() + std::ssize(head), whole.end());
  text.bytes = continuation.size();
  return text;
}

// Tokens [begin, end) shared by some texts with equal prefixes. `sequence` holds the tokens before `begin`,
// and after read_all() those before `end`.
struct Scorer::Branch {
  std::span<ScoredText* const> texts;
  int64_t begin = 0, end = 0;
  const Sequence* sequence = nullptr;

  // Splits sorted texts by their next token; each branch extends over its texts' common prefix.
  void split(std::vector<Branch>& branches) const {
    const auto at = static_cast<size_t>(end);
    for (auto first = texts.begin(), last = first; first != texts.end(); first = last) {
      last = first + 1;
      const auto tokens = to_read(**first);
      if (tokens.size() == at) continue;
      while (last != texts.end() && to_read(**last)[at] == tokens[at]) ++last;
      branches.push_back({{first, last}, end, common_prefix(tokens, to_read(**(last - 1))), sequence});
    }
  }
};

void Scorer::score(std::span<ScoredText> texts) {
  std::map<std::vector<double>, std::vector<ScoredText*>> groups;  // by RoPE frequencies
  int64_t longest = kKvPage;
  for (ScoredText& text : texts) {
    const int64_t length = std::ssize(text.tokens) - 1;
    text.scores.clear();
    groups[frequencies_for(session_.options(), session_.rope(), length).inv_freq].push_back(&text);
    longest = std::max(longest, length);
    tokens_ += length;
  }
  const auto at_once = static_cast<size_t>(affordable_sequences(session_, longest, kMostAtOnce));
  for (auto& [frequencies, group] : groups) {
    std::ranges::sort(group, [](const ScoredText* a, const ScoredText* b) {
      return std::ranges::lexicographical_compare(to_read(*a), to_read(*b));
    });
    for (size_t first = 0; first < group.size(); first += at_once)
      run(std::span(group).subspan(first, std::min(at_once, group.size() - first)));
  }
}

// Traverses the prefix tree level by level; the branches of a level run in one batch.
void Scorer::run(std::span<ScoredText* const> texts) {
  std::deque<Sequence> sequences;
  std::vector<Branch> level, next;
  for (Branch{texts, 0, 0, &context_.sequence}.split(level); !level.empty();
       level = std::exchange(next, {})) {
    read_all(level, sequences);
    for (const Branch& branch : level) branch.split(next);
    const auto tokens = to_read(*level.back().texts.front()).first(static_cast<size_t>(level.back().end));
    if (next.empty()) last_ = {std::move(sequences.back()), {tokens.begin(), tokens.end()}};
  }
}

void Scorer::read_all(std::span<Branch> branches, std::deque<Sequence>& sequences) {
  Scheduler scheduler(session_);
  for (Branch& branch : branches) {
    const auto tokens = to_read(*branch.texts.front());
    int64_t wanted = branch.end;  // first token whose logits are needed
    for (const ScoredText* text : branch.texts)
      wanted = std::min(wanted, std::max(text->from - 1, branch.begin));
    int64_t held = std::min(branch.sequence->length(), wanted);
    const bool same_scale =
        last_ && last_->sequence.cache().frequencies() ==
                     frequencies_for(session_.options(), session_.rope(), std::ssize(tokens));
    const int64_t there = same_scale ? std::min(common_prefix(last_->tokens, tokens), wanted) : 0;
    if (there > held) branch.sequence = &last_->sequence;
    held = std::max(held, there);
    Sequence& sequence = sequences.emplace_back(session_.fork(*branch.sequence, held));
    sequence.expect(std::ssize(tokens));  // dynamic scale of the whole text
    branch.sequence = &sequence;
    if (held == branch.end) continue;
    read_ += branch.end - held;
    Request request{.tokens = {tokens.begin(), tokens.begin() + branch.end},
                    .sequence = &sequence,
                    .options = {.max_new_tokens = 0, .interrupted = interrupted_},
                    .logits_from = wanted};
    request.on_logits = [this, &branch](int64_t first, const Matrix& logits) {
      for (int64_t row = 0; row < logits.rows; ++row) {
        const Logprobs logprobs(session_.backend(), logits.row_range(row, 1), top_);
        const int64_t position = first + row + 1;  // predicted position
        for (ScoredText* text : branch.texts) {
          if (position >= text->from)
            text->scores.push_back(logprobs.of(text->tokens[static_cast<size_t>(position)]));
        }
      }
    };
    scheduler.add(std::move(request));
  }
  stop_if(interrupted_);
  scheduler.run();
}

}  // namespace lariat
