#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/error.h"

namespace lariat {

// A setting of a file; get() throws Error if the value is invalid.
template <class T>
struct Setting {
  T value{};
  std::string error{};  // empty: valid; otherwise `value` is the default
  const T& get() const {
    if (!error.empty()) throw Error(error);
    return value;
  }
};

// generation_config.json, with transformers' defaults.
struct GenerationDefaults {
  Setting<float> temperature;  // 0: greedy decoding, ignoring the next three
  Setting<int32_t> top_k;
  Setting<float> top_p{1.0F}, min_p;
  Setting<float> repetition_penalty{1.0F};
  Setting<std::vector<std::string>> stop;
  std::vector<std::string> warnings;  // for generation only
};

}  // namespace lariat
