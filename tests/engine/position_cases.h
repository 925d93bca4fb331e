#pragma once
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/engine/relative_oracle.h"

namespace lariat::test {

// Formulas of docs/context-extension.md.
inline Distance dca_distance(int64_t s, int64_t w) {
  return [=](int64_t i, int64_t j) -> std::optional<double> {
    const int64_t c = s + w, chunks = i / s - j / s;
    if (chunks == 0) return i - j;
    if (chunks == 1) return std::min(i % s + s, c - 1) - j % s;
    return c - 1 - j % s;
  };
}

inline Distance string_distance(int64_t shift, int64_t w) {
  return [=](int64_t i, int64_t j) -> std::optional<double> {
    return i - j < shift ? i - j : i - j - shift + w;
  };
}

inline Distance sinks_distance(int64_t n, int64_t w) {
  return [=](int64_t i, int64_t j) -> std::optional<double> {
    if (j >= n && i - j >= w) return {};
    return j < n && i >= n + w ? n + w - 1 - j : i - j;
  };
}

inline Distance self_extend_distance(int64_t group, int64_t w) {
  return [=](int64_t i, int64_t j) -> std::optional<double> {
    return i - j < w ? i - j : i / group + w - w / group - j / group;
  };
}

inline Distance rerope_distance(double w, double k) {
  return [=](int64_t i, int64_t j) -> std::optional<double> {
    const auto d = static_cast<double>(i - j);
    return d < w ? d : w + (k > 0 ? (d - w) / k : 0);
  };
}

inline Distance lm_infinite_distance(int64_t n, int64_t w) {
  return [=](int64_t i, int64_t j) -> std::optional<double> {
    if (j >= n && i - j >= w) return {};
    return std::min(i - j, w);
  };
}

inline Distance jet_long_distance(int64_t group, int64_t w) {
  return [=](int64_t i, int64_t j) -> std::optional<double> {
    return i - j <= w ? i - j : i / group - j / group;
  };
}

// The caller gives keys beyond w other frequencies.
inline Distance plain_distance() {
  return [](int64_t i, int64_t j) -> std::optional<double> { return i - j; };
}

// jet-long-freq's far frequencies at a scale s, beyond a window.
struct Far {
  std::string name;
  double window, s;
  std::vector<double> factors{};  // of bands

  double ratio(const RopeScaling& rope, size_t pair) const {
    const auto d = static_cast<double>(rope.rotary_dim), i = static_cast<double>(pair);
    if (name == "linear") return 1 / s;
    if (name == "bands")
      return 1 / factors[static_cast<size_t>(i * static_cast<double>(factors.size()) / (d / 2))];
    if (name == "ntk")
      return std::pow(rope.theta * std::pow(s, d / (d - 2)), -2 * i / d) / std::pow(rope.theta, -2 * i / d);
    const auto turning = [&](double turns) {
      return d * std::log(static_cast<double>(rope.original_ctx) / (turns * 2 * std::acos(-1.0))) /
             (2 * std::log(rope.theta));
    };
    const double low = std::max(std::floor(turning(32)), 0.0),
                 high = std::min(std::ceil(turning(1)), d / 2 - 1);
    return 1 - std::clamp((i - low) / (high > low ? high - low : 0.001), 0.0, 1.0) * (1 - 1 / s);
  }
  Angle angle(const RopeScaling& rope, const RopeFrequencies& near) const {
    return [=, *this](double distance, size_t pair) {
      return (std::min(distance, window) + std::max(distance - window, 0.0) * ratio(rope, pair)) *
             near.inv_freq[pair];
    };
  }
  // YaRN's temperature, a factor of all logits.
  std::function<double(int64_t)> temperature() const {
    if (name != "yarn") return {};
    return [t = 0.1 * std::log(s) + 1](int64_t) { return t; };
  }
};

struct MethodCase {
  std::string method;
  Distance distance;
  std::string scaling = "none";
  std::function<double(int64_t)> temperature{};
  std::optional<Far> far{};
};

inline MethodCase far_case(const std::string& far, int window, double factor, const std::string& scaling) {
  const Far of{far, static_cast<double>(window), factor};
  return {"jet-long-freq/window=" + std::to_string(window) + "/far=" + far +
              "/factor=" + fmt::format("{}", factor),
          plain_distance(), scaling, of.temperature(), of};
}

// Length up to this token over the trained length, at least 1.
inline double beyond(int64_t i) { return std::max(static_cast<double>(i + 1) / 64, 1.0); }

inline std::vector<MethodCase> method_cases() {
  return {{"dca/chunk=24/window=10", dca_distance(24, 10)},
          {"dca/chunk=50/window=50", dca_distance(50, 50)},
          {"dca/window=1/chunk=64", dca_distance(64, 1)},
          {"dca/chunk=24/window=10", dca_distance(24, 10), "yarn"},
          {"string/shift=40/window=8", string_distance(40, 8)},
          {"string/shift=64/window=1", string_distance(64, 1), "yarn"},
          {"sinks/sinks=3/window=37", sinks_distance(3, 37)},
          {"sinks/sinks=70/window=9", sinks_distance(70, 9)},
          {"sinks/sinks=4/window=60", sinks_distance(4, 60), "yarn"},
          {"self-extend/group=4/window=24", self_extend_distance(4, 24)},
          {"self-extend/group=7/window=50", self_extend_distance(7, 50)},
          {"self-extend/group=30/window=20", self_extend_distance(30, 20)},
          {"self-extend/group=2/window=33", self_extend_distance(2, 33), "yarn"},
          {"rerope/window=30", rerope_distance(30, 0)},
          {"rerope/window=1", rerope_distance(1, 0), "yarn"},
          {"rerope/window=40/k=3", rerope_distance(40, 3)},
          {"lm-infinite/sinks=5/window=33", lm_infinite_distance(5, 33)},
          {"lm-infinite/sinks=50/window=20", lm_infinite_distance(50, 20), "yarn"},
          {"jet-long/group=4/window=24", jet_long_distance(4, 24)},
          {"jet-long/group=7/window=50", jet_long_distance(7, 50)},
          {"jet-long/group=2/window=1", jet_long_distance(2, 1), "yarn"},
          far_case("yarn", 24, 4, "none"),
          far_case("yarn", 1, 9, "yarn"),
          far_case("ntk", 50, 5, "none"),
          far_case("linear", 24, 2.5, "none"),
          far_case("linear", 30, 7, "yarn"),
          {"jet-long-freq/window=24/far=bands/factors=1,2.5,8",
           plain_distance(),
           "none",
           {},
           Far{"bands", 24, 1, {1, 2.5, 8}}},
          {"jet-long-freq/window=9/far=bands/factors=4,4,4,4,4,1,4,1e3",
           plain_distance(),
           "yarn",
           {},
           Far{"bands", 9, 1, {4, 4, 4, 4, 4, 1, 4, 1e3}}},
          {"jet-long-freq/window=9/factor=3/temperature=1.5", plain_distance(), "none",
           [](int64_t) { return 1.5; }, Far{"yarn", 9, 3}},
          {"rerope/window=30/temperature=log", rerope_distance(30, 0), "none",
           [](int64_t i) { return 1 + std::log(beyond(i)) / std::log(64.0); }},
          {"dca/temperature=length/chunk=24/window=10", dca_distance(24, 10), "yarn",
           [](int64_t i) { return std::pow(0.1 * std::log(beyond(i)) + 1, 2); }},
          {"string/shift=40/window=8/temperature=1.1434", string_distance(40, 8), "none",
           [](int64_t) { return 1.1434; }}};
}

}  // namespace lariat::test
