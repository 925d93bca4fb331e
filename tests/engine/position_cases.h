#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "tests/engine/relative_oracle.h"

// Position methods and what they compute.
namespace lariat::test {

// The formulas of docs/context-extension.md.
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

// Without an offset: beyond the window the distance falls back.
inline Distance jet_long_distance(int64_t group, int64_t w) {
  return [=](int64_t i, int64_t j) -> std::optional<double> {
    return i - j <= w ? i - j : i / group - j / group;
  };
}

struct MethodCase {
  std::string method;
  Distance distance;
  std::string scaling = "none";
  std::function<double(int64_t)> temperature{};
};

// How many times the trained length, 1 at least, a text is that ends with the token.
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
          {"rerope/window=30/temperature=log", rerope_distance(30, 0), "none",
           [](int64_t i) { return 1 + std::log(beyond(i)) / std::log(64.0); }},
          {"dca/temperature=length/chunk=24/window=10", dca_distance(24, 10), "yarn",
           [](int64_t i) { return std::pow(0.1 * std::log(beyond(i)) + 1, 2); }},
          {"string/shift=40/window=8/temperature=1.1434", string_distance(40, 8), "none",
           [](int64_t) { return 1.1434; }}};
}

}  // namespace lariat::test
