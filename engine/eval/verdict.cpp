#include "engine/eval/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lariat {
namespace {

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

std::string percent(double share) { return fmt::format("{} %", std::llround(100 * share)); }

// "4.8 % ± 0.5 % more", "2.1 % ± 0.4 % less" or "9.13 ± 0.31 times that".
std::string more(const Gap& gap) {
  const double ratio = std::exp(gap.value), error = ratio * gap.error;
  if (ratio >= 2) return fmt::format("{} ± {} times that", compact(ratio), compact(error));
  return fmt::format("{:.{}f} % ± {:.{}f} % {}", 100 * std::abs(ratio - 1), error < 0.01 ? 2 : 1, 100 * error,
                     error < 0.01 ? 2 : 1, ratio < 1 ? "less" : "more");
}

// Columns at one point, best first.
template <class Value>
struct Ranked {
  std::vector<Value> all;
  size_t next = 0;  // first column shown worse than the best (by `ahead`); 0: none
  Gap ahead{};
  Standing standing{};

  // most_p: SweepTable::shown_p.
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
  // ", not decided against yarn (83 %)"
  template <class Text>
  std::string not_decided(const Text& number) const {
    std::vector<std::string> names;
    for (const Column& column : standing.best) {
      if (find(column).value != all[0].value)
        names.push_back(fmt::format("{} ({})", name_in_text(column), number(find(column))));
    }
    if (names.empty()) return "";
    return ", not decided against " + joined(names);
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
                                 best.size() == 1 ? "has" : "have", lowest, ranked.not_decided(number),
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
  result.where = result.columns.size() > 1 ? ", not decided," : "";
  result.where += result.compared == 1 ? " at the one length compared"
                                       : fmt::format(" at {} of {} lengths", most, result.compared);
  return result;
}

std::string overall_sentence(const SweepTable& table) {
  const Winners read = winners(table, by_perplexity), found = winners(table, by_retrieval);
  if (read.compared + found.compared == 0) return "";
  const std::string beyond = fmt::format("{} {} tokens ", kOverall, table.original_ctx);
  const std::string things = needles_noun(table.tasks.front());
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

// --- prefills that columns share ---

Column reused(Column column) {
  column.reused = true;
  return column;
}

// Reused cells next to true prefills, and how many pairs keep their order.
std::string reuse_sentence(const SweepTable& table, int64_t length) {
  const auto columns = perplexity_columns(table, length);
  const auto find = [&](const Column& column) {
    const auto found = std::ranges::find(columns, column, &LossColumn::column);
    return found == columns.end() ? nullptr : &*found;
  };
  std::vector<std::pair<const LossColumn*, const LossColumn*>> pairs;  // prefilled, reused
  std::vector<std::string> parts;
  if (std::ranges::none_of(table.columns, &Column::reused)) return "";
  for (const LossColumn& column : columns) {
    if (column.column.reused || !column.column.method.empty()) continue;
    const LossColumn* copy = find(reused(column.column));
    if (copy != nullptr)
      parts.push_back(fmt::format("{} {}", name_in_text(column.column), more(gap(column, *copy))));
    // The column that prefills stands for itself.
    const bool prefills = std::ranges::count(table.columns, reused(column.column)) == 0;
    if (copy != nullptr || prefills) pairs.emplace_back(&column, prefills ? &column : copy);
  }
  if (parts.empty()) return "";
  int all = 0, kept = 0, shown = 0, shown_kept = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const auto& [a, copy_a] = pairs[i];
      const auto& [b, copy_b] = pairs[k];
      const bool same = (a->value < b->value) == (copy_a->value < copy_b->value);
      const bool differ = gap(*a, *b).p <= table.shown_p;
      all += 1;
      kept += same ? 1 : 0;
      shown += differ ? 1 : 0;
      shown_kept += differ && same ? 1 : 0;
    }
  }
  return fmt::format(
      "At {} tokens, perplexity after a reused prefill, relative to the column's own: {}. {} of {} pairs "
      "keep their order, {} of the {} shown to differ.",
      length, joined(parts), kept, all, shown_kept, shown);
}

// --- a growing context ---

std::string stale_sentence(const SweepTable& table, const PositionRange& range) {
  std::vector<std::string> parts;
  for (const Column& column : table.growing_columns) {
    if (!column.stale) continue;
    const auto stale = growing_column(table, column, range),
               fresh = growing_column(table, column.fresh(), range);
    if (!stale || !fresh) continue;
    const Gap found = gap(*fresh, *stale);
    parts.push_back(fmt::format("under {} {}", column.fresh().name(),
                                found.p <= table.shown_p ? more(found) : "no difference is shown"));
  }
  if (parts.empty()) return "";
  return fmt::format("Perplexity with stale keys from position {} on, relative to re-rotated keys: {}.",
                     range.from, joined(parts));
}

}  // namespace

Standing by_perplexity(const SweepTable& table, int64_t length) {
  const auto checks = [&](const Column& column) {
    return !column.reused && std::ranges::count(table.columns, reused(column)) > 0;
  };
  auto columns = perplexity_columns(table, length);
  auto order = table.columns;
  std::erase_if(columns, [&](const LossColumn& found) { return checks(found.column); });
  std::erase_if(order, checks);
  return stand(fmt::format("At {} tokens", length), columns, order, table.shown_p);
}

Standing by_retrieval(const SweepTable& table, int64_t length) {
  Ranked ranked(share_columns(table, length), table.columns, table.shown_p);
  if (ranked.all.empty()) return ranked.standing;
  const double most = ranked.all.front().share(), fewest = ranked.all.back().share();
  const std::string where = fmt::format("At {} tokens", length), things = needles_noun(table.tasks.front());
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
                                 percent(most), table.trials, ranked.not_decided(number),
                                 name_in_text(ranked.all[ranked.next].column), points(ranked.ahead.value),
                                 points(ranked.ahead.low), points(ranked.ahead.high)));
}

Standing by_growing(const SweepTable& table, const PositionRange& range) {
  const std::string where =
      range.from == 0 ? fmt::format("Before position {} of a growing context", range.to)
                      : fmt::format("From position {} to {} of a growing context", range.from, range.to);
  return stand(where, growing_columns(table, range), table.growing_columns, table.shown_p);
}

std::vector<std::string> conclusions(const SweepTable& table) {
  std::vector<std::string> sentences;
  for (const int64_t length : table.lengths) sentences.push_back(by_perplexity(table, length).sentence);
  for (const int64_t length : table.lengths) sentences.push_back(reuse_sentence(table, length));
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
