#include "engine/eval/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace lariat {
namespace {

constexpr size_t kFewestBlocks = 8;
constexpr double kLevel = 0.01;
constexpr double kSure = 2.576;  // standard errors of a 99 % interval

std::vector<Difference> all_pairs(const SweepTable& table);

// Column name in a sentence, where "none" would be misread.
std::string name_in_text(const Column& column) {
  return column == Column() ? "the unscaled model" : column.name();
}

std::string names_of(const std::vector<Column>& columns) {
  std::vector<std::string> names(columns.size());
  std::ranges::transform(columns, names.begin(), name_in_text);
  return joined(names);
}

// Suffix of "scaling" or "scalings" for columns with methods.
std::string and_method(const std::vector<Column>& columns, const char* plural = "") {
  const auto has_method = [](const Column& column) { return !column.method.empty(); };
  return std::ranges::any_of(columns, has_method) ? std::string(" and method") + plural : "";
}

double two_sided(double errors) { return std::erfc(errors / std::numbers::sqrt2); }

std::string percent(double share) { return fmt::format("{} %", std::llround(100 * share)); }

// "4.8 % ± 0.5 % more", "2.1 % ± 0.4 % less" or "9.13 ± 0.31 times that".
std::string more(const Gap& gap) {
  const double ratio = std::exp(gap.value), error = ratio * gap.error;
  if (ratio >= 2) return fmt::format("{} ± {} times that", compact(ratio), compact(error));
  return fmt::format("{:.{}f} % ± {:.{}f} % {}", 100 * std::abs(ratio - 1), error < 0.01 ? 2 : 1, 100 * error,
                     error < 0.01 ? 2 : 1, ratio < 1 ? "less" : "more");
}

// Largest p that Holm's procedure rejects among the table's differences; 0: none. The i-th smallest of n is
// rejected, if all before it are, up to kLevel / (n - i + 1).
double largest_shown_p(const SweepTable& table) {
  std::vector<double> all;
  for (const Difference& difference : all_pairs(table)) all.push_back(difference.gap.p);
  std::erase_if(all, [](double p) { return std::isnan(p); });
  std::ranges::sort(all);
  double shown = 0;
  for (size_t i = 0; i < all.size() && all[i] <= kLevel / static_cast<double>(all.size() - i); ++i)
    shown = all[i];
  return shown;
}

struct LossColumn {
  Column column;
  double value = 0, error = 0;   // mean loss, standard error
  std::vector<double> blocks{};  // NaN: nothing scored
  double block_tokens = 0;       // tokens per block
};
struct ShareColumn : RetrievalValue {
  Column column;
  double value = 0;  // less is better
};

Gap gap(const LossColumn& a, const LossColumn& b) {
  Gap result{.value = b.value - a.value, .error = std::hypot(a.error, b.error)};
  double n = 0, sum = 0, squares = 0;
  for (size_t i = 0; a.blocks.size() == b.blocks.size() && i < a.blocks.size(); ++i) {
    const double difference = b.blocks[i] - a.blocks[i];
    if (!std::isfinite(difference)) continue;
    n += 1;
    sum += difference;
    squares += difference * difference;
  }
  if (n >= kFewestBlocks)
    result.error = std::sqrt(std::max(squares / n - sum * sum / n / n, 0.0) / (n - 1)) /
                   std::min(a.block_tokens, b.block_tokens);
  result.low = result.value - kSure * result.error;
  result.high = result.value + kSure * result.error;
  result.low_95 = result.value - k95 * result.error;
  result.high_95 = result.value + k95 * result.error;
  result.p = result.value == 0 ? 1 : two_sided(std::abs(result.value) / result.error);
  return result;
}

// Columns at one point, best first.
template <class Value>
struct Ranked {
  std::vector<Value> all;
  size_t next = 0;  // first column shown worse than the best (by `ahead`); 0: none
  Gap ahead{};
  Standing standing{};

  // most_p: largest_shown_p of the table.
  Ranked(std::vector<Value> columns, const std::vector<Column>& order, double most_p)
      : all(std::move(columns)) {
    std::ranges::stable_sort(all, {}, &Value::value);
    for (size_t i = all.size(); i-- > 1;) {
      if (const Gap found = gap(all[0], all[i]); found.p <= most_p)
        std::tie(next, ahead) = std::tuple(i, found);
    }
    for (const Column& column : order) {
      const auto found = std::ranges::find(all, column, &Value::column);
      if (found == all.end()) {
        standing.missing.push_back(column);
      } else if (next > 0 && !(gap(all[0], *found).p <= most_p)) {
        (gap(*found, all[next]).p <= most_p ? standing.best : standing.undecided).push_back(column);
      }
    }
  }
  std::vector<Column> leaders() const {
    std::vector<Column> columns = standing.best;
    std::erase_if(columns, [&](const Column& column) { return find(column).value != all[0].value; });
    return columns;
  }
  // ", and yarn (83 %) is within ..."
  template <class Text>
  std::string within_noise(const Text& number) const {
    std::vector<std::string> names;
    for (const Column& column : standing.best) {
      if (find(column).value != all[0].value)
        names.push_back(fmt::format("{} ({})", name_in_text(column), number(find(column))));
    }
    if (names.empty()) return "";
    return fmt::format(", and {} {} within noise of the best", joined(names),
                       names.size() == 1 ? "is" : "are");
  }
  const Value& find(const Column& column) const { return *std::ranges::find(all, column, &Value::column); }
  // Adds the sentence, unless only one column was measured.
  Standing said(const std::string& sentence) {
    if (all.size() < 2) return standing;
    standing.sentence = sentence;
    if (!standing.undecided.empty())
      standing.sentence += " Not decided: " + names_of(standing.undecided) + ".";
    if (!standing.missing.empty())
      standing.sentence += " No result there: " + names_of(standing.missing) + ".";
    return standing;
  }
};

// where: start of the sentence, e.g. "At 512 tokens".
Standing stand(const std::string& where, std::vector<LossColumn> columns, const std::vector<Column>& order,
               double most_p) {
  Ranked ranked(std::move(columns), order, most_p);
  const auto& all = ranked.all;
  if (all.empty()) return ranked.standing;
  const std::string lowest = compact(std::exp(all.front().value)),
                    highest = compact(std::exp(all.back().value));
  if (all.front().value == all.back().value)
    return ranked.said(
        fmt::format("{} every scaling{} reads alike (perplexity {}).", where, and_method(order), lowest));
  if (ranked.next == 0) {
    return ranked.said(fmt::format("{} no difference is shown (perplexity {}).", where,
                                   lowest == highest ? lowest : lowest + " to " + highest));
  }
  const auto best = ranked.leaders();
  const auto number = [](const LossColumn& column) { return compact(std::exp(column.value)); };
  return ranked.said(fmt::format("{} {} {} the lowest perplexity, {}{}; {} has {}.", where, names_of(best),
                                 best.size() == 1 ? "has" : "have", lowest, ranked.within_noise(number),
                                 name_in_text(all[ranked.next].column), more(ranked.ahead)));
}

// --- over all lengths ---

// Scalings that are best at the most lengths beyond the original.
struct Winners {
  std::vector<Column> columns;
  int compared = 0;
  std::string where;  // " at 2 of 3 lengths"
};

Winners winners(const SweepTable& table, Standing (*stand_at)(const SweepTable&, int64_t)) {
  std::map<Column, int> wins;
  Winners result;
  int most = 0;
  for (const int64_t length : table.lengths) {
    if (length <= table.original_ctx) continue;
    const Standing standing = stand_at(table, length);
    result.compared += standing.sentence.empty() ? 0 : 1;
    for (const Column& column : standing.best) most = std::max(most, ++wins[column]);
  }
  for (const Column& column : table.columns) {
    if (most > 0 && wins[column] == most) result.columns.push_back(column);
  }
  result.where = result.columns.size() > 1 ? ", within noise," : "";
  result.where += result.compared == 1 ? " at the one length compared"
                                       : fmt::format(" at {} of {} lengths", most, result.compared);
  return result;
}

std::string overall_sentence(const SweepTable& table) {
  const Winners read = winners(table, by_perplexity), found = winners(table, by_retrieval);
  if (read.compared + found.compared == 0) return "";
  const std::string beyond = fmt::format("{} {} tokens ", kOverall, table.original_ctx);
  const std::string things = needles_noun(table.task);
  const auto verb = [](const Winners& by, const char* word) {
    return fmt::format("{} {}{}", names_of(by.columns), word, by.columns.size() == 1 ? "s" : "");
  };
  if (read.columns.empty() && found.columns.empty())
    return beyond + "no difference between scalings" + and_method(table.columns, "s") + " is shown.";
  if (read.columns == found.columns) {
    return beyond + fmt::format("{}: lowest perplexity{}, most {}{}.", verb(read, "win"), read.where, things,
                                found.where);
  }
  std::vector<std::string> parts;
  if (!read.columns.empty()) parts.push_back(verb(read, "read") + " best" + read.where);
  if (!found.columns.empty()) parts.push_back(verb(found, "find") + " the most " + things + found.where);
  return beyond + fmt::format("{}.", fmt::join(parts, ", and "));
}

// --- a growing context ---

std::optional<LossColumn> growing_column(const SweepTable& table, const Column& column,
                                         const PositionRange& range) {
  const auto sum = growing_sum(table, column, range);
  if (!sum) return std::nullopt;
  const GrowingValue& grown = table.growing.at(column);
  LossColumn result{column, sum->mean(), sum->mean_error()};
  const int64_t n = std::ssize(grown.blocks), holds = grown.holds, bos = table.lengths.back() - holds;
  result.block_tokens = static_cast<double>(grown.text_tokens) / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    // Tokens [first, end) of the block, all of one stretch, and their positions.
    const int64_t first = grown.text_tokens * i / n, end = grown.text_tokens * (i + 1) / n;
    const int64_t begin = first / holds * holds - bos;
    if (first - begin >= range.from && end - begin <= std::min(range.to, holds + bos))
      result.blocks.push_back(grown.blocks[static_cast<size_t>(i)]);
  }
  return result;
}

std::string stale_sentence(const SweepTable& table, const PositionRange& range) {
  std::vector<std::string> parts;
  const double most_p = largest_shown_p(table);
  for (const Column& column : table.growing_columns) {
    if (!column.stale) continue;
    const auto stale = growing_column(table, column, range),
               fresh = growing_column(table, column.fresh(), range);
    if (!stale || !fresh) continue;
    const Gap found = gap(*fresh, *stale);
    parts.push_back(fmt::format("under {} {}", column.fresh().name(),
                                found.p <= most_p ? more(found) : "no difference is shown"));
  }
  if (parts.empty()) return "";
  return fmt::format("Perplexity with stale keys from position {} on, relative to re-rotated keys: {}.",
                     range.from, joined(parts));
}

}  // namespace

std::vector<double> block_sums(const std::vector<float>& losses) {
  const size_t n = losses.size(), blocks = std::min(n, kMostBlocks);
  std::vector<double> sums;
  for (size_t i = 0; i < blocks; ++i) {
    double sum = 0;
    bool scored = false;
    for (size_t at = n * i / blocks; at < n * (i + 1) / blocks; ++at) {
      if (std::isnan(losses[at])) continue;
      scored = true;
      sum += static_cast<double>(losses[at]);
    }
    sums.push_back(scored ? std::round(1e4 * sum) / 1e4 : std::nan(""));
  }
  return sums;
}

Gap gap(const RetrievalValue& a, const RetrievalValue& b) {
  const double p = a.share(), q = b.share();
  const auto newcombe = [&](double errors) {
    const auto [p_low, p_high] = a.interval(errors);
    const auto [q_low, q_high] = b.interval(errors);
    return std::pair(p - q - std::hypot(p - p_low, q_high - q), p - q + std::hypot(p_high - p, q - q_low));
  };
  const auto [low, high] = newcombe(kSure);
  const auto [low_95, high_95] = newcombe(k95);
  double inside = 0, outside = 40;  // standard errors of the interval that ends at zero
  for (int i = 0; i < 60; ++i) {
    const double errors = (inside + outside) / 2;
    const auto [from, to] = newcombe(errors);
    (from > 0 || to < 0 ? inside : outside) = errors;
  }
  return {p - q, low, high, NAN, low_95, high_95, two_sided(inside)};
}

namespace {

std::vector<LossColumn> perplexity_columns(const SweepTable& table, int64_t length) {
  std::vector<LossColumn> columns;
  int64_t most = 0;  // tokens; columns with fewer scored another text
  for (const auto& [cell, value] : table.perplexity)
    most = std::max(most, cell.second == length ? value.tokens : 0);
  for (const Column& column : table.columns) {
    const auto* value = find_cell(table.perplexity, {column, length});
    if (value == nullptr || value->tokens != most) continue;
    columns.push_back({column, std::log(value->ppl), value->error / value->ppl, value->blocks, 0});
    const auto scored = std::ranges::count_if(value->blocks, [](double sum) { return !std::isnan(sum); });
    columns.back().block_tokens = static_cast<double>(most) / static_cast<double>(scored);
  }
  return columns;
}

std::vector<ShareColumn> share_columns(const SweepTable& table, int64_t length) {
  std::vector<ShareColumn> columns;
  for (const Column& column : table.columns) {
    const auto value = table.retrieval(column, length);
    if (value && value->trials == table.trials) columns.push_back({*value, column, -value->share()});
  }
  return columns;
}

std::vector<LossColumn> growing_columns(const SweepTable& table, const PositionRange& range) {
  std::vector<LossColumn> columns;
  for (const Column& column : table.growing_columns) {
    if (auto found = growing_column(table, column, range)) columns.push_back(std::move(*found));
  }
  return columns;
}

// difference: template without a, b and gap.
template <class Value>
void add_pairs(const std::vector<Value>& columns, Difference difference, std::vector<Difference>& to) {
  for (size_t b = 1; b < columns.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      difference.a = columns[a].column;
      difference.b = columns[b].column;
      // Lower losses are better, but higher shares.
      difference.gap =
          difference.kind == Kind::kPasskey ? gap(columns[b], columns[a]) : gap(columns[a], columns[b]);
      to.push_back(difference);
    }
  }
}

}  // namespace

std::vector<Difference> growing_differences(const SweepTable& table, const PositionRange& range) {
  std::vector<Difference> all;
  add_pairs(growing_columns(table, range), {Kind::kGrowing, {}, {}, table.lengths.back(), range, {}}, all);
  return all;
}

namespace {

std::vector<Difference> all_pairs(const SweepTable& table) {
  std::vector<Difference> all;
  for (const PositionRange& range : growing_ranges(table)) {
    const auto there = growing_differences(table, range);
    all.insert(all.end(), there.begin(), there.end());
  }
  for (const int64_t length : table.lengths) {
    add_pairs(perplexity_columns(table, length), {Kind::kPerplexity, {}, {}, length, {}, {}}, all);
    add_pairs(share_columns(table, length), {Kind::kPasskey, {}, {}, length, {}, {}}, all);
  }
  return all;
}

}  // namespace

std::vector<Difference> differences(const SweepTable& table) {
  std::vector<Difference> all = all_pairs(table);
  const double most_p = largest_shown_p(table);
  for (Difference& difference : all) difference.shown = difference.gap.p <= most_p;
  return all;
}

std::string text_of(const Difference& difference) {
  const Gap& gap = difference.gap;
  const double ratio = std::exp(gap.value), error = 100 * ratio * gap.error;
  const std::string text =
      difference.kind == Kind::kPasskey ? fmt::format("{:+} points", std::llround(100 * gap.value))
      : ratio >= 2 ? fmt::format("{} ± {} times", compact(ratio), compact(ratio * gap.error))
                   : fmt::format("{:+.{}f} % ± {:.{}f} %", 100 * (ratio - 1), error < 1 ? 2 : 1, error,
                                 error < 1 ? 2 : 1);
  return text + (difference.shown ? " *" : "");
}

Standing by_perplexity(const SweepTable& table, int64_t length) {
  return stand(fmt::format("At {} tokens", length), perplexity_columns(table, length), table.columns,
               largest_shown_p(table));
}

Standing by_retrieval(const SweepTable& table, int64_t length) {
  Ranked ranked(share_columns(table, length), table.columns, largest_shown_p(table));
  if (ranked.all.empty()) return ranked.standing;
  const double most = ranked.all.front().share(), fewest = ranked.all.back().share();
  const std::string where = fmt::format("At {} tokens", length), things = needles_noun(table.task);
  if (most == 0) return ranked.said(fmt::format("{} none of the {} are found.", where, things));
  if (most == fewest)
    return ranked.said(fmt::format("{} every scaling{} finds {} of the {}.", where, and_method(table.columns),
                                   percent(most), things));
  if (ranked.next == 0) {
    return ranked.said(fmt::format("{} no difference is shown in the {} found ({} to {} of {}).", where,
                                   things, percent(fewest), percent(most), table.trials));
  }
  const auto best = ranked.leaders();
  const auto number = [](const ShareColumn& column) { return percent(column.share()); };
  const auto points = [](double share) { return std::llround(100 * share); };
  return ranked.said(fmt::format("{} {} {} the most {}, {} of {}{}; {} finds {} points fewer ({} to {}).",
                                 where, names_of(best), best.size() == 1 ? "finds" : "find", things,
                                 percent(most), table.trials, ranked.within_noise(number),
                                 name_in_text(ranked.all[ranked.next].column), points(ranked.ahead.value),
                                 points(ranked.ahead.low), points(ranked.ahead.high)));
}

Standing by_growing(const SweepTable& table, const PositionRange& range) {
  const std::string where =
      range.from == 0 ? fmt::format("Before position {} of a growing context", range.to)
                      : fmt::format("From position {} to {} of a growing context", range.from, range.to);
  return stand(where, growing_columns(table, range), table.growing_columns, largest_shown_p(table));
}

std::vector<std::string> conclusions(const SweepTable& table) {
  std::vector<std::string> sentences;
  for (const int64_t length : table.lengths) sentences.push_back(by_perplexity(table, length).sentence);
  for (const int64_t length : table.lengths) sentences.push_back(by_retrieval(table, length).sentence);
  const auto ranges = growing_ranges(table);
  if (!table.view.ranges.empty()) {
    for (const PositionRange& range : ranges) sentences.push_back(by_growing(table, range).sentence);
  } else if (ranges.size() >= 2) {
    const PositionRange after{ranges.front().to, ranges.back().to};
    sentences.push_back(by_growing(table, ranges.front()).sentence);
    sentences.push_back(by_growing(table, after).sentence);
    sentences.push_back(stale_sentence(table, after));
  }
  sentences.push_back(overall_sentence(table));
  std::erase(sentences, "");
  return sentences;
}

}  // namespace lariat
