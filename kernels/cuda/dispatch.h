#pragma once
#include <span>

#include "kernels/cuda/device.h"
#include "kernels/error.h"

// From run-time dtypes to template arguments.
namespace lariat::cuda {

// Calls f(T{}) with the element type of `dtype`.
template <class F>
void with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF16:
      return f(Half{});
    case DType::kBF16:
      return f(BFloat16{});
    case DType::kQ8:
    case DType::kQ4:
      throw Error("quantised weights do not run on a GPU yet; use --device cpu");
  }
}

template <class T>
T* typed(const Matrix& m) {
  return static_cast<T*>(m.data);
}

// Whether every row of m starts at a multiple of 16 bytes.
inline bool rows_aligned16(const Matrix& m) {
  return reinterpret_cast<uintptr_t>(m.data) % 16 == 0 &&
         (m.rows <= 1 || m.stride * static_cast<int64_t>(size_of(m.dtype)) % 16 == 0);
}

// Host values that travel as a kernel argument: no copy to device memory to wait for.
template <class T, int kN>
struct ByValue {
  T value[kN];
};

template <class T, int kN, class Span>
ByValue<T, kN> by_value(const Span& values, size_t first, size_t count) {
  ByValue<T, kN> out = {};
  for (size_t i = 0; i < count; ++i) out.value[i] = static_cast<T>(values[first + i]);
  return out;
}

// inv_freq, or its change, for every rotated pair of a head.
inline constexpr int kMaxPairs = 256;
using PairFrequencies = ByValue<double, kMaxPairs>;
inline PairFrequencies pair_frequencies(std::span<const double> values) {
  if (values.size() > kMaxPairs) throw Error("the CUDA backend rotates at most 512 dimensions of a head");
  return by_value<double, kMaxPairs>(values, 0, values.size());
}

inline unsigned to_unsigned(int64_t x) { return static_cast<unsigned>(x); }

}  // namespace lariat::cuda
