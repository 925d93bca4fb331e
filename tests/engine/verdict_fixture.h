#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/eval/verdict.h"
#include "tests/engine/sweep_fixture.h"

namespace lariat::test {

// A model trained at 100 tokens; texts of 640 tokens share their hard parts.
class Verdicts : public testing::Test {
 protected:
  Verdicts() {
    log_.plan.original_ctx = 100;
    log_.plan.passkey.depths = {0, 1};
    log_.plan.passkey.trials = 10;
    log_.plan.speed.measured = false;
    std::mt19937 random(3);
    std::exponential_distribution<float> hardness(0.5F);
    for (int i = 0; i < kTokens; ++i) text_.push_back(hardness(random));
  }

  std::vector<float> losses(double above, double noise = 0.2) {
    std::normal_distribution<double> own(above, noise);
    std::vector<float> all;
    for (const float hard : text_) all.push_back(hard + static_cast<float>(own(random_)));
    return all;
  }
  static LossSum sum_of(const std::vector<float>& losses) {
    LossSum sum;
    for (const float loss : losses) sum.add(static_cast<double>(loss));
    return sum;
  }
  void add_losses(const char* scaling, int64_t length, const std::vector<float>& of) {
    const LossSum sum = sum_of(of);
    add_record(log_, "perplexity", scaling, length,
               {{"tokens", sum.tokens},
                {"nll", sum.nll},
                {"ppl", sum.ppl()},
                {"stderr", sum.standard_error()},
                {"blocks", block_sums(of)}});
  }
  // A context of 400; the last three quarters are `above`.
  void add_grown(const char* column, double above, double noise = 0.2) {
    std::vector<float> all = losses(0, noise);
    all.resize(400);
    std::vector<PositionBucket> buckets;
    for (int64_t i = 0; i < 400; ++i) {
      if (i >= 100) all[static_cast<size_t>(i)] += static_cast<float>(above);
      if (i % 25 == 0) buckets.push_back({{}, i, i + 25});
      buckets.back().add(static_cast<double>(all[static_cast<size_t>(i)]));
    }
    add_growing(log_, column, 400,
                {{"text_tokens", 400},
                 {"holds", 400},
                 {"positions", losses_of(buckets)},
                 {"blocks", block_sums(all)}},
                512);
  }
  void add_found(const char* scaling, int64_t length, double share, int64_t trials = 10) {
    for (const double depth : {0.0, 1.0}) {
      const auto found = static_cast<int64_t>(std::lround(share * static_cast<double>(trials)));
      add_record(log_, "passkey", scaling, length,
                 {{"depth", depth}, {"trials", trials}, {"correct", found}});
    }
  }
  std::vector<std::string> sentences() const { return conclusions(tabulate(log_)); }
  std::string last() const { return sentences().empty() ? "" : sentences().back(); }
  testing::AssertionResult said(const std::string& words) const {
    for (const auto& sentence : sentences()) {
      if (names(sentence, words)) return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << words << " is not in " << Json(sentences()).dump(1);
  }
  bool none_wins() const { return !names(last(), "none") && !names(last(), "ntk") && !names(last(), "yarn"); }

  static constexpr int kTokens = 640;
  std::vector<float> text_;
  std::mt19937 random_{11};
  Measurements log_ = empty_log({"none", "ntk", "yarn"}, {100, 200, 400});
};

}  // namespace lariat::test
