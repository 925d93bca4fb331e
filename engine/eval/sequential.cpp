#include "engine/eval/sequential.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lariat {
namespace {

// Most of the capital that a row may cost.
constexpr double kMostBet = 0.75;

// Where `falls`, a function from true to false over [0, 1], changes.
template <class Predicate>
double last_true(const Predicate& falls) {
  double low = 0, high = 1;
  if (!falls(low)) return low;
  for (int i = 0; i < 40; ++i) (falls((low + high) / 2) ? low : high) = (low + high) / 2;
  return low;
}

}  // namespace

double discordant_e_value(int64_t only_a, int64_t only_b) {
  const auto b = static_cast<double>(only_a), c = static_cast<double>(only_b);
  return std::exp((b + c) * std::numbers::ln2 + std::lgamma(b + 1) + std::lgamma(c + 1) -
                  std::lgamma(b + c + 2));
}

void PairedSequence::add(double a, double b) {
  const double y = (a - b + 1) / 2, i = static_cast<double>(rows_.size()) + 1;
  const double bet = std::sqrt(2 * std::log(2 / alpha_) / (squares_ * std::log(1 + i)));
  rows_.push_back({y, bet});
  sum_ += y;
  const double mean = sum_ / (i + 1);
  squares_ += (y - mean) * (y - mean);
}

// The bets never risk more than kMostBet, so a product is positive.
double PairedSequence::capital_above(double mean) const {
  double log = 0;
  for (const Row& row : rows_) log += std::log1p(std::min(row.bet, kMostBet / mean) * (row.y - mean));
  return std::exp(log);
}

double PairedSequence::capital_below(double mean) const {
  double log = 0;
  for (const Row& row : rows_) log += std::log1p(-std::min(row.bet, kMostBet / (1 - mean)) * (row.y - mean));
  return std::exp(log);
}

// capital_above falls with the mean, capital_below rises.
std::pair<double, double> PairedSequence::interval() const {
  const double low = last_true([&](double mean) { return capital_above(mean) >= 2 / alpha_; });
  const double high = last_true([&](double mean) { return capital_below(mean) < 2 / alpha_; });
  return {2 * low - 1, 2 * high - 1};
}

double PairedSequence::e_value() const { return (capital_above(0.5) + capital_below(0.5)) / 2; }

bool PairedSequence::excluded(double margin) const {
  return capital_below((1 + margin) / 2) >= 1 / alpha_ && capital_above((1 - margin) / 2) >= 1 / alpha_;
}

}  // namespace lariat
