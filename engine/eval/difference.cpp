#include "engine/eval/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lariat {
namespace {

constexpr size_t kFewestBlocks = 8;
constexpr double kLevel = 0.01;
constexpr double kSure = 2.576;  // standard errors of a 99 % interval

double two_sided(double errors) { return std::erfc(errors / std::numbers::sqrt2); }

int64_t count_of(const LossColumn& column) { return column.tokens; }
int64_t count_of(const ShareColumn& column) { return column.trials; }

// difference: template without a, b, gap and count.
template <class Value>
void add_pairs(const std::vector<Value>& columns, Difference difference, std::vector<Difference>& to) {
  for (size_t b = 1; b < columns.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      difference.a = columns[a].column;
      difference.b = columns[b].column;
      // Lower losses are better, but higher shares.
      difference.gap =
          difference.kind == Kind::kPasskey ? gap(columns[b], columns[a]) : gap(columns[a], columns[b]);
      difference.count = std::min(count_of(columns[a]), count_of(columns[b]));
      to.push_back(difference);
    }
  }
}

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

std::vector<LossColumn> perplexity_columns(const SweepTable& table, int64_t length) {
  std::vector<LossColumn> columns;
  int64_t most = 0;  // tokens; columns with fewer scored another text
  for (const auto& [cell, value] : table.perplexity)
    most = std::max(most, cell.second == length ? value.tokens : 0);
  for (const Column& column : table.columns) {
    const auto* value = find_cell(table.perplexity, {column, length});
    if (value == nullptr || value->tokens != most) continue;
    columns.push_back({column, std::log(value->ppl), value->error / value->ppl, value->blocks, 0, most});
    const auto scored = std::ranges::count_if(value->blocks, [](double sum) { return !std::isnan(sum); });
    columns.back().block_tokens = static_cast<double>(most) / static_cast<double>(scored);
  }
  return columns;
}

std::vector<ShareColumn> share_columns(const SweepTable& table, int64_t length) {
  std::vector<ShareColumn> columns;
  if (table.tasks.size() != 1) return columns;  // their difficulty differs
  for (const Column& column : table.columns) {
    const auto value = table.retrieval(column, table.tasks.front(), length);
    if (value && value->trials == table.trials) columns.push_back({*value, column, -value->share()});
  }
  return columns;
}

std::optional<LossColumn> growing_column(const SweepTable& table, const Column& column,
                                         const PositionRange& range) {
  const auto sum = growing_sum(table, column, range);
  if (!sum) return std::nullopt;
  const GrowingValue& grown = table.growing.at(column);
  LossColumn result{
      .column = column, .value = sum->mean(), .error = sum->mean_error(), .tokens = sum->tokens};
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

std::vector<LossColumn> growing_columns(const SweepTable& table, const PositionRange& range) {
  std::vector<LossColumn> columns;
  for (const Column& column : table.growing_columns) {
    if (auto found = growing_column(table, column, range)) columns.push_back(std::move(*found));
  }
  return columns;
}

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

// Holm's procedure: the i-th smallest p of n is rejected, if all before it are, up to kLevel / (n - i + 1).
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

std::vector<Difference> growing_differences(const SweepTable& table, const PositionRange& range) {
  std::vector<Difference> all;
  add_pairs(growing_columns(table, range), {Kind::kGrowing, {}, {}, table.lengths.back(), range, {}}, all);
  return all;
}

std::vector<Difference> differences(const SweepTable& table) {
  std::vector<Difference> all = all_pairs(table);
  for (Difference& difference : all) difference.shown = difference.gap.p <= table.shown_p;
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

}  // namespace lariat
