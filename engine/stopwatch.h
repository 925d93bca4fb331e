#pragma once
#include <chrono>

namespace lariat {

using Stopwatch = std::chrono::steady_clock;

inline double seconds_since(Stopwatch::time_point start) {
  return std::chrono::duration<double>(Stopwatch::now() - start).count();
}

}  // namespace lariat
