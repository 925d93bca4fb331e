#include "models/text/pretokenizer.h"

#include "models/text/unicode.h"

namespace lariat::tok {
namespace {

using PreTokenizeKind = PreTokenizeStep::Kind;

// Calls found(begin, end) for each match, except an empty match right after a match.
template <class Found>
void find_matches(const PreTokenizeStep& step, std::string_view text, RegexScratch& scratch,
                  const Found& found) {
  size_t at = 0, begin = 0, end = 0;
  if (step.regex) {
    std::optional<size_t> last_end;
    while (at <= text.size() && step.regex->find(text, at, begin, end, scratch)) {
      const bool repeated = begin == end && end == last_end;
      last_end = at = end;
      if (!repeated) {
        found(begin, end);
      } else {
        at += end < text.size() ? utf8_step(text, end).length : 1;
      }
    }
  } else if (step.kind == PreTokenizeKind::kDigits) {
    for (; at < text.size(); at = end) {
      const Utf8Step c = utf8_step(text, at);
      end = at + c.length;
      if (is_numeric(c.value)) found(at, end);
    }
  } else {
    for (; (at = text.find(step.literal, at)) != std::string_view::npos; at += step.literal.size())
      found(at, at + step.literal.size());
  }
}

// True if two neighbours merge; left, right: true for a match (HF's SplitDelimiterBehavior).
bool join(SplitBehavior behavior, bool left, bool right) {
  if (behavior == SplitBehavior::kContiguous) return left == right;
  if (behavior == SplitBehavior::kMergedWithPrevious) return !left && right;
  return behavior == SplitBehavior::kMergedWithNext && left && !right;
}

struct Splitter {
  const std::vector<PreTokenizeStep>& steps;
  RegexScratch& scratch;
  const WordSink& sink;

  void run(size_t index, std::string_view piece, bool first) const {
    if (piece.empty()) return;
    if (index == steps.size()) return sink(piece);
    const PreTokenizeStep& step = steps[index];
    std::string rewritten;
    if (step.kind == PreTokenizeKind::kMetaspace) {
      piece = rewritten = metaspace(step, piece, first);
    } else if (step.add_prefix_space && piece[0] != ' ') {
      piece = rewritten = std::string(1, ' ').append(piece);
    }
    step.split ? cut(index, piece, first) : run(index + 1, piece, first);
  }

  static std::string metaspace(const PreTokenizeStep& step, std::string_view piece, bool first) {
    using Prepend = PreTokenizeStep::Prepend;
    std::string text = replace_all(piece, " ", step.literal);
    const bool prepend = step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && first);
    if (prepend && !text.starts_with(step.literal)) text.insert(0, step.literal);
    return text;
  }

  void cut(size_t index, std::string_view text, bool first) const {
    const PreTokenizeStep& step = steps[index];
    size_t open = 0, done = 0;  // the piece that may still grow
    bool open_is_match = false;
    const auto pass = [&] {
      const bool dropped = step.behavior == SplitBehavior::kRemoved && open_is_match;
      if (open < done && !dropped) run(index + 1, text.substr(open, done - open), first && open == 0);
    };
    const auto add = [&](size_t end, bool is_match) {
      if (open == done || !join(step.behavior, open_is_match, is_match)) {
        pass();
        open = done;
      }
      open_is_match = is_match;
      done = end;
    };
    find_matches(step, text, scratch, [&](size_t begin, size_t end) {
      if (done < begin) add(begin, step.invert);
      add(end, !step.invert);
    });
    if (done < text.size()) add(text.size(), step.invert);
    pass();
  }
};

}  // namespace

void pre_tokenize(const std::vector<PreTokenizeStep>& steps, std::string_view text, bool first,
                  RegexScratch& scratch, const WordSink& sink) {
  Splitter{steps, scratch, sink}.run(0, text, first);
}

}  // namespace lariat::tok
