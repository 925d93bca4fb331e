#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace lariat {
namespace {

struct Candidate {
  float logit;
  int32_t id;
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

class Draw {
 public:
  explicit Draw(std::span<const float> logits) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (std::isfinite(logits[i])) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
    }
  }

  int32_t token(const Sampling& how, double uniform) {
    sort(how.top_k);
    weigh(static_cast<double>(how.temperature));
    cut_top_p(static_cast<double>(how.top_p));
    const auto min_p = static_cast<double>(how.min_p);  // weights_[0] is exp(0) = 1
    while (weights_.back() < min_p) weights_.pop_back();
    double left = uniform * sum();
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (left < weights_[i]) return candidates_[i].id;
      left -= weights_[i];
    }
    return candidates_[weights_.size() - 1].id;
  }

 private:
  void sort(int32_t top_k) {
    if (top_k > 0 && static_cast<size_t>(top_k) < candidates_.size()) {
      const auto cut = candidates_.begin() + top_k;
      std::partial_sort(candidates_.begin(), cut, candidates_.end(), likelier);
      candidates_.erase(cut, candidates_.end());
    } else {
      std::sort(candidates_.begin(), candidates_.end(), likelier);
    }
  }

  void weigh(double temperature) {
    const auto largest = static_cast<double>(candidates_[0].logit);
    for (const Candidate& c : candidates_) {
      weights_.push_back(std::exp((static_cast<double>(c.logit) - largest) / temperature));
    }
  }

  void cut_top_p(double top_p) {
    if (top_p >= 1.0) return;
    const double wanted = top_p * sum();
    double reached = weights_[0];
    size_t keep = 1;
    while (keep < weights_.size() && reached < wanted) reached += weights_[keep++];
    weights_.resize(keep);
  }

  double sum() const {
    double total = 0;
    for (const double w : weights_) total += w;
    return total;
  }

  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace

void CpuBackend::draw(const Matrix& logits, std::span<const Sampling> how, std::span<const double> uniforms) {
  drawn_.resize(static_cast<size_t>(logits.rows));
  find_largest(logits, drawn_);
  for (int64_t t = 0; t < logits.rows; ++t) {
    const auto row = static_cast<size_t>(t);
    const std::span<const float> values(logits.f32(t), static_cast<size_t>(logits.cols));
    int32_t& id = drawn_[row];
    if (!std::isfinite(values[static_cast<size_t>(id)])) {
      id = -1 - id;
    } else if (!uniforms.empty() && how[row].temperature > 0.0F) {
      id = Draw(values).token(how[row], uniforms[row]);
    }
  }
}

void CpuBackend::read_drawn(std::span<int32_t> ids) { std::copy_n(drawn_.begin(), ids.size(), ids.begin()); }

}  // namespace lariat
