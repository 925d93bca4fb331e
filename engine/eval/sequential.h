#pragma once
#include <cstdint>
#include <utility>
#include <vector>

// Comparisons of two columns that may be read after every row and stopped at any of them. A fixed-size
// interval read after every row errs five to fourteen times as often as it says.
namespace lariat {

// Evidence that two columns differ, from the rows that only one of them answers: 2^n b! c! / (n + 1)!, with
// n = b + c. Without a difference it reaches 1 / alpha with a probability of at most alpha, however often it
// is read (Ville's inequality; Beta(1, 1) mixture against 1/2, arXiv 2106.02693).
double discordant_e_value(int64_t only_a, int64_t only_b);

// A column compared with the first one, after some rows.
struct SequencePoint {
  double difference = 0, low = -1, high = 1;  // mean, and its confidence sequence
  double e_value = 1;
};

// Confidence sequence for the mean difference of paired shares (arXiv 2010.09686, hedged capital): all its
// intervals hold together with a probability of at least 1 - alpha.
class PairedSequence {
 public:
  explicit PairedSequence(double alpha) : alpha_(alpha) {}

  void add(double a, double b);  // shares in [0, 1] of one row
  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  std::pair<double, double> interval() const;  // of the mean of a - b
  double e_value() const;                      // evidence that the mean is not 0
  bool excluded(double margin) const;          // its size is less than `margin`, in (0, 1)

 private:
  struct Row {
    double y, bet;  // (a - b + 1) / 2, and the bet before it was known
  };
  double capital_above(double mean) const;  // grows if y's mean is larger
  double capital_below(double mean) const;

  double alpha_;
  double sum_ = 0.5, squares_ = 0.25;  // of y and of its deviations, with one row of prior
  std::vector<Row> rows_{};
};

}  // namespace lariat
