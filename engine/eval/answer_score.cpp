#include "engine/eval/answer_score.h"

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <set>
#include <utility>

#include "models/io/json_fields.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

using Words = std::vector<std::string_view>;

bool is_space(std::string_view character) { return is_python_space(utf8_step(character, 0).value); }
std::string_view stripped(std::string_view text) { return strip(text, is_space, true, true); }

// RULER's postprocess_pred.
std::string cleaned(std::string_view answer) {
  std::string text(stripped(answer));
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '\n');
  return std::string(stripped(text));
}

std::string_view after_last(std::string_view text, std::string_view mark) {
  const size_t at = text.rfind(mark);
  return at == text.npos ? text : text.substr(at + mark.size());
}

// Mean or largest value over the references.
template <class Value>
double over(const std::vector<std::string>& references, bool largest, const Value& value) {
  double sum = 0, most = 0;
  for (const std::string& reference : references) {
    const double found = value(reference);
    sum += found;
    most = std::max(most, found);
  }
  return largest ? most : sum / static_cast<double>(references.size());
}

// --- RULERv2 ---

Words words_of(std::string_view text) {
  Words words;
  for (text = stripped(text); !text.empty(); text = strip(text, is_space, true, false)) {
    size_t end = 0;
    while (end < text.size() && !is_space(text.substr(end))) end += utf8_step(text, end).length;
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

// Levenshtein distance.
size_t edits(const Words& a, const Words& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({changed, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

// max(contained, 1 - word error rate); both texts are lower case.
double soft_match(const std::string& answer, const std::string& reference) {
  if (answer.find(reference) != answer.npos) return 1;
  const Words expected = words_of(reference);
  if (expected.empty()) return 0;
  const auto errors = static_cast<double>(edits(words_of(answer), expected));
  return std::max(0.0, 1 - errors / static_cast<double>(expected.size()));
}

// Removes matches of Document \d+:(?:.*\n)+?\n
std::string without_documents(std::string_view text) {
  constexpr std::string_view kTitle = "Document ";
  std::string kept;
  size_t from = 0;  // of the text after the last match
  for (size_t at = 0; (at = text.find(kTitle, at)) != text.npos;) {
    const size_t end = text.find_first_not_of("0123456789", at + kTitle.size());
    const bool title = end != text.npos && end > at + kTitle.size() && text[end] == ':';
    const size_t blank = title ? text.find("\n\n", end) : text.npos;
    if (blank == text.npos) {
      ++at;
      continue;
    }
    kept += text.substr(from, at - from);
    at = from = blank + 2;
  }
  return kept.append(text.substr(from));
}

double ruler2_score(Metric metric, std::string_view answer, const std::vector<std::string>& references) {
  answer = after_last(after_last(answer, "</think>"), "Answer:");
  if (metric == Metric::kRuler2Steps) answer = after_last(answer, "\n\n");
  const bool part = metric == Metric::kRuler2Part;
  const std::string text = lower_case(part ? without_documents(answer) : answer);
  return over(references, part,
              [&](const std::string& reference) { return soft_match(text, lower_case(reference)); });
}

// --- choice ---

// The last match's group 1. Patterns bound their runs, as std::regex recurses over them.
std::optional<std::string> last_match(const std::string& text, const std::regex& pattern) {
  std::optional<std::string> last;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    last = (*match)[1];
  return last;
}

// The letter in the last box, else after the last "Answer:", with * or _ around that word.
std::string choice_of(const std::string& answer) {
  static const std::regex box(R"(\\boxed\{((?:[^{}]|\{[^{}]{0,99}\}){0,99})\})"), letter(R"(\b([A-J])\b)"),
      after(R"(answer[*_]{0,2}\s{0,99}:[\s*_]{0,2}\s{0,99}([A-Z])(?![A-Z0-9]))", std::regex::icase);
  const auto boxed = last_match(answer, box);
  if (!boxed) return last_match(answer, after).value_or("");
  return boxed->size() == 1 ? *boxed : last_match(*boxed, letter).value_or("");
}

// --- GraphWalks ---

double f1_score(std::string_view answer, const std::vector<std::string>& references) {
  constexpr std::string_view kMark = "Final Answer:";
  answer = stripped(answer);
  if (const size_t line = answer.rfind('\n'); line != answer.npos) answer.remove_prefix(line + 1);
  const size_t mark = answer.find(kMark);
  if (mark == answer.npos) return 0;
  answer = stripped(answer.substr(mark + kMark.size()));
  const size_t end = answer.rfind(']');
  if (!answer.starts_with('[') || end == answer.npos) return 0;
  std::set<std::string_view> found, expected(references.begin(), references.end());
  for (const std::string_view name : split(answer.substr(1, end - 1), ',')) {
    if (!stripped(name).empty()) found.insert(stripped(name));
  }
  if (found.empty() && expected.empty()) return 1;
  const auto right = std::ranges::count_if(found, [&](auto name) { return expected.contains(name); });
  return 2 * static_cast<double>(right) / static_cast<double>(found.size() + expected.size());
}

// --- passkeys ---

// First run of digits, without leading zeros.
std::string_view first_integer(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  text.remove_prefix(std::min(text.find_first_of(kDigits), text.size()));
  text = text.substr(0, text.find_first_not_of(kDigits));
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  return text;
}

// --- difflib ---

std::u32string code_points(std::string_view text) {
  std::u32string points;
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at).length) points += utf8_step(text, at).value;
  return points;
}

// SequenceMatcher(None, a, b).ratio(): twice the matched characters over all characters. With 200 or more
// characters in b, frequent ones start no match (autojunk).
double difflib_ratio(const std::u32string& a, const std::u32string& b) {
  if (a.empty() && b.empty()) return 1;
  std::map<char32_t, std::vector<size_t>> places;
  for (size_t j = 0; j < b.size(); ++j) places[b[j]].push_back(j);
  if (b.size() >= 200)
    std::erase_if(places, [&](const auto& one) { return one.second.size() > b.size() / 100 + 1; });
  std::vector<std::array<size_t, 4>> open = {{0, a.size(), 0, b.size()}};  // ranges of a and b
  std::vector<size_t> lengths(b.size() + 1), next(b.size() + 1);           // of matches that end before b[j]
  size_t matched = 0;
  while (!open.empty()) {
    const auto [a_low, a_high, b_low, b_high] = open.back();
    open.pop_back();
    size_t i = a_low, j = b_low, size = 0;
    const auto reset = [&, low = b_low, n = b_high - b_low + 1](std::vector<size_t>& row) {
      std::fill_n(row.begin() + static_cast<std::ptrdiff_t>(low), n, 0);
    };
    reset(lengths);
    for (size_t at = a_low; at < a_high; ++at) {
      reset(next);
      const auto found = places.find(a[at]);
      if (found != places.end()) {
        for (const size_t place : found->second) {
          if (place < b_low || place >= b_high) continue;
          const size_t length = next[place + 1] = lengths[place] + 1;
          if (length > size) size = length, i = at + 1 - length, j = place + 1 - length;
        }
      }
      lengths.swap(next);
    }
    while (i > a_low && j > b_low && a[i - 1] == b[j - 1]) --i, --j, ++size;
    while (i + size < a_high && j + size < b_high && a[i + size] == b[j + size]) ++size;
    if (size == 0) continue;
    matched += size;
    open.push_back({a_low, i, b_low, j});
    open.push_back({i + size, a_high, j + size, b_high});
  }
  return 2 * static_cast<double>(matched) / static_cast<double>(a.size() + b.size());
}

double mrcr_score(std::string_view answer, std::string_view expected, std::string_view start) {
  if (!answer.starts_with(start)) return 0;
  answer.remove_prefix(start.size());
  if (expected.starts_with(start)) expected.remove_prefix(start.size());
  return difflib_ratio(code_points(answer), code_points(expected));
}

}  // namespace

std::optional<Metric> find_metric(std::string_view name) {
  const auto* const found = std::ranges::find(kMetrics, name, &MetricRow::name);
  if (found == std::end(kMetrics)) return std::nullopt;
  return static_cast<Metric>(found - kMetrics);
}

double score_of(Metric metric, std::string_view answer, const std::vector<std::string>& references) {
  switch (metric) {
    case Metric::kChoice:
      return choice_of(std::string(answer)) == references.front() ? 1 : 0;
    case Metric::kF1:
      return f1_score(answer, references);
    case Metric::kMrcr:
      return mrcr_score(answer, references.front(), references.back());
    case Metric::kExact:
      return over(references, true,
                  [&](const std::string& one) { return stripped(answer) == stripped(one); });
    case Metric::kKey:
      return first_integer(answer) == references.front() ? 1 : 0;
    case Metric::kRuler2All:
    case Metric::kRuler2Steps:
    case Metric::kRuler2Part:
      return ruler2_score(metric, answer, references);
    default:
      break;
  }
  const std::string text = lower_case(cleaned(answer));
  return over(references, metric == Metric::kPart,
              [&](const std::string& one) { return text.find(lower_case(one)) != text.npos; });
}

bool is_binary(Metric metric, size_t references) {
  return metric == Metric::kPart || metric == Metric::kChoice || metric == Metric::kExact ||
         metric == Metric::kKey || (metric == Metric::kAll && references == 1);
}

bool is_empty_answer(std::string_view answer) { return cleaned(answer).empty(); }

}  // namespace lariat
