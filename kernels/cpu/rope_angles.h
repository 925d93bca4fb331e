#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace lariat {

// cos and sin of position * freq for runs of positions, without a cosine per value. With p = 256 A + 16 a + b
// the addition theorem gives
//   R(p f) = R(256 A f) R(16 a f) R(b f),
// two complex products in double with tables of 16 rows. The result is within 4e-16 of the exact value at any
// position. The split uses absolute positions: a row is bitwise identical in every run.
class RopeAngles {
 public:
  // Prepares positions [first, first + count).
  void prepare(std::span<const double> freq, int64_t first, int64_t count);

  // Sets row i of cos and sin (f32) to position first + i. work: kWork doubles per pair.
  static constexpr int64_t kWork = 4;
  void fill(int64_t first, const Matrix& cos, const Matrix& sin, double* work) const;

 private:
  struct Rows {  // [16][pairs]
    std::vector<double> cos, sin;
  };
  void set_row(int64_t position, double* cos, double* sin) const;

  std::vector<double> freq_;
  Rows coarse_, fine_;  // offsets 16 a and b
};

// angle(i, j) of pair j of row i, with one cosine per value.
template <class Angle>
void fill_angles(const Matrix& cos, const Matrix& sin, const Angle& angle) {
  for (int64_t i = 0; i < cos.rows; ++i) {
    for (int64_t j = 0; j < cos.cols; ++j) {
      const double a = angle(i, static_cast<size_t>(j));
      cos.f32(i)[j] = static_cast<float>(std::cos(a));
      sin.f32(i)[j] = static_cast<float>(std::sin(a));
    }
  }
}

}  // namespace lariat
