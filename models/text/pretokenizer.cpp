#include "models/text/pretokenizer.h"

#include <algorithm>

#include "models/text/unicode.h"

namespace lariat::tok {
namespace {

using PreTokenizeKind = PreTokenizeStep::Kind;

struct Piece {
  size_t begin, end;
  bool match;
};
using Pieces = std::vector<Piece>;

// HF's SplitDelimiterBehavior. In the result, `match` marks a piece that is to be dropped.
Pieces merge_pieces(Pieces pieces, SplitBehavior behavior) {
  Pieces out;
  bool previous_match = false;
  const auto extend_or_add = [&](Piece piece, bool extend, bool backwards) {
    previous_match = piece.match;
    piece.match = false;
    if (!extend || out.empty()) {
      out.push_back(piece);
    } else if (backwards) {
      out.back().begin = piece.begin;
    } else {
      out.back().end = piece.end;
    }
  };
  switch (behavior) {
    case SplitBehavior::kRemoved:
      return pieces;
    case SplitBehavior::kIsolated:
      for (Piece& piece : pieces) piece.match = false;
      return pieces;
    case SplitBehavior::kContiguous:
      for (const Piece& piece : pieces) extend_or_add(piece, piece.match == previous_match, false);
      return out;
    case SplitBehavior::kMergedWithPrevious:
      for (const Piece& piece : pieces) extend_or_add(piece, piece.match && !previous_match, false);
      return out;
    case SplitBehavior::kMergedWithNext:
      for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) {
        extend_or_add(*it, it->match && !previous_match, true);
      }
      std::reverse(out.begin(), out.end());
      return out;
  }
  return out;
}

// Walks over the non-overlapping matches of a regex; an empty match right after a match does not count.
struct Matches {
  const Regex& regex;
  std::string_view text;
  size_t from;
  bool more_to_come;
  RegexScratch& scratch;
  size_t last_end = 0;
  bool any = false;

  Regex::Found next(size_t& begin, size_t& end) {
    while (from <= text.size()) {
      const Regex::Found found = regex.find(text, from, more_to_come, begin, end, scratch);
      if (found != Regex::Found::kMatch) return found;
      const bool repeated = begin == end && any && end == last_end;
      last_end = from = end;
      any = true;
      if (!repeated) return found;
      from += end < text.size() ? utf8_step(text, end).length : 1;
    }
    return Regex::Found::kNone;
  }
};

// Every match and the text between matches, in order, covering the text.
Pieces find_pieces(const PreTokenizeStep& step, std::string_view text, RegexScratch& scratch) {
  Pieces pieces;
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (done < begin) pieces.push_back({done, begin, step.invert});
    pieces.push_back({begin, end, !step.invert});
    done = end;
  };
  if (step.regex) {
    Matches matches{*step.regex, text, 0, false, scratch};
    size_t begin = 0, end = 0;
    while (matches.next(begin, end) == Regex::Found::kMatch) add(begin, end);
  } else if (step.kind == PreTokenizeKind::kDigits) {
    for (size_t at = 0; at < text.size();) {
      const Utf8Step c = utf8_step(text, at);
      if (is_numeric(c.value)) add(at, at + c.length);
      at += c.length;
    }
  } else {
    for (size_t at = 0; (at = text.find(step.literal, at)) != std::string_view::npos;
         at += step.literal.size()) {
      add(at, at + step.literal.size());
    }
  }
  if (done < text.size()) pieces.push_back({done, text.size(), step.invert});
  return pieces;
}

// Passes a text through the steps from one on and its words on to a sink.
struct Splitter {
  const std::vector<PreTokenizeStep>& steps;
  RegexScratch& scratch;
  const PreTokenizer::Sink& sink;

  void run(size_t index, std::string_view piece, bool first) const {
    if (piece.empty()) return;
    if (index == steps.size()) return sink(piece);
    const PreTokenizeStep& step = steps[index];
    if (step.kind == PreTokenizeKind::kMetaspace) return metaspace(index, piece, first);
    if (step.kind == PreTokenizeKind::kByteLevel && step.add_prefix_space && index > 0 && piece[0] != ' ')
      return split(index, std::string(1, ' ').append(piece), first);
    split(index, piece, first);
  }

  void metaspace(size_t index, std::string_view piece, bool first) const {
    using Prepend = PreTokenizeStep::Prepend;
    const PreTokenizeStep& step = steps[index];
    std::string text = replace_all(piece, " ", step.literal);
    const bool prepend = step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && first);
    if (prepend && !text.starts_with(step.literal)) text.insert(0, step.literal);
    if (step.split) return split(index, text, first);
    run(index + 1, text, first);
  }

  void split(size_t index, std::string_view text, bool first) const {
    const PreTokenizeStep& step = steps[index];
    if (step.kind == PreTokenizeKind::kByteLevel && !step.regex) return run(index + 1, text, first);
    for (const Piece& piece : merge_pieces(find_pieces(step, text, scratch), step.behavior)) {
      if (!piece.match)
        run(index + 1, text.substr(piece.begin, piece.end - piece.begin), first && piece.begin == 0);
    }
  }
};

}  // namespace

bool PreTokenizer::wants_prefix_space(std::string_view text) const {
  return !steps_.empty() && steps_[0].kind == PreTokenizeKind::kByteLevel && steps_[0].add_prefix_space &&
         !text.empty() && text[0] != ' ';
}

size_t PreTokenizer::consume(std::string_view text, bool first, bool final, Progress& progress,
                             RegexScratch& scratch, const Sink& sink) const {
  if (text.empty()) return 0;
  const PreTokenizeStep& step = steps_[0];
  const Splitter splitter{steps_, scratch, sink};
  // Whether the first step decides each piece by what stands in and right after it.
  const bool streams =
      step.regex && step.regex->streams() &&
      (step.behavior == SplitBehavior::kIsolated || step.behavior == SplitBehavior::kRemoved);
  if (!streams) {
    if (!final) return 0;
    splitter.run(0, text, first);
    return text.size();
  }
  if (!final && text.size() < progress.retry_size) return 0;
  const bool drop_match = step.behavior == SplitBehavior::kRemoved && !step.invert;
  const bool drop_rest = step.behavior == SplitBehavior::kRemoved && step.invert;
  size_t done = 0;
  const auto pass = [&](size_t end, bool drop) {
    if (end > done && !drop) splitter.run(1, text.substr(done, end - done), first && done == 0);
    done = end;
  };
  Matches matches{*step.regex, text, progress.resume, !final, scratch};
  size_t begin = 0, end = 0;
  Regex::Found found;
  while ((found = matches.next(begin, end)) == Regex::Found::kMatch) {
    pass(begin, drop_rest);
    pass(end, drop_match);
  }
  if (final) {
    pass(text.size(), drop_rest);
    progress = {};
    return done;
  }
  // The search goes on at the undecided match; waiting for twice the text keeps a long word linear.
  progress.resume = (found == Regex::Found::kPartial ? begin : text.size()) - done;
  progress.retry_size = done > 0 ? 0 : 2 * text.size();
  return done;
}

}  // namespace lariat::tok
