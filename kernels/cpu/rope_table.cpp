#include "kernels/cpu/rope_angles.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope_table.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// (cos, sin) = (cos1, sin1) * (cos2, sin2) as complex numbers.
template <typename T>
void ComplexProduct(const double* cos1, const double* sin1, const double* cos2, const double* sin2, size_t n,
                    T* cos, T* sin) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<T, decltype(d)> dt;
  const auto store = [&](auto value, T* p) HWY_ATTR {
    if constexpr (sizeof(T) == sizeof(double)) {
      hn::StoreU(value, dt, p);
    } else {
      hn::StoreU(hn::DemoteTo(dt, value), dt, p);
    }
  };
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto c1 = hn::LoadU(d, cos1 + i), s1 = hn::LoadU(d, sin1 + i);
    const auto c2 = hn::LoadU(d, cos2 + i), s2 = hn::LoadU(d, sin2 + i);
    store(hn::NegMulAdd(s1, s2, hn::Mul(c1, c2)), cos + i);
    store(hn::MulAdd(s1, c2, hn::Mul(c1, s2)), sin + i);
  }
  for (; i < n; ++i) {
    cos[i] = static_cast<T>(cos1[i] * cos2[i] - sin1[i] * sin2[i]);
    sin[i] = static_cast<T>(cos1[i] * sin2[i] + sin1[i] * cos2[i]);
  }
}

void ProductF64(const double* cos1, const double* sin1, const double* cos2, const double* sin2, size_t n,
                double* cos, double* sin) {
  ComplexProduct(cos1, sin1, cos2, sin2, n, cos, sin);
}

void ProductF32(const double* cos1, const double* sin1, const double* cos2, const double* sin2, size_t n,
                float* cos, float* sin) {
  ComplexProduct(cos1, sin1, cos2, sin2, n, cos, sin);
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(ProductF64);
HWY_EXPORT(ProductF32);

void RopeAngles::prepare(std::span<const double> freq, int64_t first, int64_t count) {
  freq_.assign(freq.begin(), freq.end());
  for (Rows* rows : {&coarse_, &fine_}) {
    rows->cos.resize(16 * freq.size());
    rows->sin.resize(16 * freq.size());
  }
  const auto set = [&](Rows& rows, int64_t row, int64_t position) {
    const size_t at = static_cast<size_t>(row) * freq_.size();
    set_row(position, &rows.cos[at], &rows.sin[at]);
  };
  // A single position needs one row of each table, a long run all rows.
  for (int64_t position = first; position < first + std::min<int64_t>(count, 16); ++position) {
    set(fine_, position % 16, position % 16);
  }
  for (int64_t group = first / 16; group <= (first + count - 1) / 16 && group < first / 16 + 16; ++group) {
    set(coarse_, group % 16, 16 * (group % 16));
  }
}

void RopeAngles::set_row(int64_t position, double* cos, double* sin) const {
  for (size_t j = 0; j < freq_.size(); ++j) {
    const double angle = static_cast<double>(position) * freq_[j];
    cos[j] = std::cos(angle);
    sin[j] = std::sin(angle);
  }
}

void RopeAngles::fill(int64_t first, const Matrix& cos, const Matrix& sin, double* work) const {
  const size_t pairs = freq_.size();
  double* const start_cos = work;  // of 256 A
  double* const start_sin = work + pairs;
  double* const group_cos = work + 2 * pairs;  // of 256 A + 16 a
  double* const group_sin = work + 3 * pairs;
  int64_t current_start = -1, current_group = -1;
  for (int64_t i = 0; i < cos.rows; ++i) {
    const int64_t position = first + i;
    if (position / 256 != current_start) {
      current_start = position / 256;
      set_row(256 * current_start, start_cos, start_sin);
    }
    if (position / 16 != current_group) {
      current_group = position / 16;
      const size_t at = static_cast<size_t>(current_group % 16) * pairs;
      HWY_DYNAMIC_DISPATCH(ProductF64)
      (start_cos, start_sin, &coarse_.cos[at], &coarse_.sin[at], pairs, group_cos, group_sin);
    }
    const size_t at = static_cast<size_t>(position % 16) * pairs;
    HWY_DYNAMIC_DISPATCH(ProductF32)
    (group_cos, group_sin, &fine_.cos[at], &fine_.sin[at], pairs, cos.f32(i), sin.f32(i));
  }
}

void CpuBackend::rope_table(const Step& step, std::span<const SequenceRope> ropes, const RopeTable& table) {
  const int64_t pairs = table.cos.cols;
  const auto by_place = [](const SequenceRope& rope) {
    return rope.positions.empty() && rope.phases.empty();
  };
  if (angles_.size() < ropes.size()) angles_.resize(ropes.size());
  for (size_t s = 0; s < ropes.size(); ++s) {
    const StepSequence& sequence = step.sequences[s];
    if (sequence.n_tokens > 0 && pairs > 0 && by_place(ropes[s]))
      angles_[s].prepare(ropes[s].inv_freq, sequence.first_position, sequence.n_tokens);
  }
  const int64_t rows = table.cos.rows, work_size = RopeAngles::kWork * pairs;
  const int64_t ranges = std::clamp<int64_t>(rows / row_grain(pairs), 1, threads_);
  auto* work = static_cast<double*>(scratch(static_cast<size_t>(ranges * work_size) * sizeof(double)));
  run_team(static_cast<int>(ranges), [&](int r) {
    const int64_t first = rows * r / ranges, last = rows * (r + 1) / ranges;
    for_sequences(step.sequences, first, last, [&](size_t s, int64_t row, int64_t position, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        *table.q_scale.f32(row + i) = ropes[s].q_scale;
        if (table.whole_q_scale) {
          *table.whole_q_scale.f32(row + i) =
              ropes[s].whole_q_scale_of(position - step.sequences[s].first_position + i);
        }
      }
      if (pairs == 0) return;  // a model without RoPE
      const Matrix cos = table.cos.row_range(row, count), sin = table.sin.row_range(row, count);
      if (by_place(ropes[s])) {
        angles_[s].fill(position, cos, sin, work + r * work_size);
      } else {
        const int64_t first_token = position - step.sequences[s].first_position;
        fill_angles(cos, sin, [&](int64_t i, size_t pair) {
          return ropes[s].angle(first_token + i, position + i, pair);
        });
      }
    });
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
