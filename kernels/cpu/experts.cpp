// Experts with many rows use gemm; products of few rows share a parallel region.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemv.h"
#include "kernels/cpu/quant_matmul.h"
#include "kernels/error.h"
#include "kernels/integers.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/experts.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// out = (add ? shared out : 0) + sum_j weights[j] x[j].
void CombineRows(const Matrix& x, const float* HWY_RESTRICT weights, bool add, float shared,
                 float* HWY_RESTRICT out) {
  const F32 d;
  ForVectors(static_cast<size_t>(x.cols), [&](size_t i, size_t count) LARIAT_INLINE_BODY {
    VF32 sum = add ? hn::Mul(hn::Set(d, shared), LoadUpTo(out + i, count)) : hn::Zero(d);
    for (int64_t j = 0; j < x.rows; ++j) {
      sum = hn::MulAdd(hn::Set(d, weights[j]), LoadUpTo(x.f32(j) + i, count), sum);
    }
    StoreUpTo(sum, out + i, count);
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(CombineRows);

namespace {

constexpr size_t kMaxExperts = 512;
constexpr double kLargest = std::numeric_limits<double>::max();    // finite limit: sums are never NaN
constexpr double kOut = -std::numeric_limits<double>::infinity();  // excluded from selection
constexpr double kTaken = std::numeric_limits<double>::quiet_NaN();

// Index of the first largest value; at least one value must not be NaN.
size_t first_of_largest(std::span<const double> values) {
  size_t best = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isnan(values[i]) && (best == values.size() || values[i] > values[best])) best = i;
  }
  return best;
}

size_t take_largest(std::span<double> values) {
  const size_t best = first_of_largest(values);
  values[best] = kTaken;
  return best;
}

// Expert selection of one token, in double: different logits stay different.
class Token {
 public:
  Token(std::span<const float> logits, const Router& router) : n_(logits.size()), router_(router) {
    double largest = -HUGE_VAL, sum = 0;
    for (const float logit : logits) largest = std::max(largest, static_cast<double>(logit));
    for (size_t e = 0; e < n_; ++e) {
      const double logit = logits[e];
      scores_[e] = router.sigmoid ? 1.0 / (1.0 + std::exp(-logit)) : std::exp(logit - largest);
      sum += scores_[e];
    }
    for (size_t e = 0; e < n_; ++e) {
      if (!router.sigmoid) scores_[e] /= sum;
      const double value = scores_[e] + (router.choice_bias ? router.choice_bias.f32()[e] : 0.0F);
      const double clamped = std::clamp(value, -kLargest, kLargest);
      choice_[e] = std::isnan(value) ? -kLargest : clamped;
    }
    if (router.kept_groups < router.n_groups) leave_groups();
  }

  void choose(int32_t* experts, float* weights) {
    const auto n_chosen = static_cast<size_t>(router_.n_chosen);
    double sum = 0;
    for (size_t j = 0; j < n_chosen; ++j) {
      const size_t e = take_largest({choice_.data(), n_});
      experts[j] = static_cast<int32_t>(e);
      sum += scores_[e];
    }
    for (size_t j = 0; j < n_chosen; ++j) {
      const double score = scores_[static_cast<size_t>(experts[j])];
      weights[j] = static_cast<float>(score / (router_.normalise ? sum : 1.0) * router_.scale);
    }
  }

 private:
  void leave_groups() {
    const auto n_groups = static_cast<size_t>(router_.n_groups);
    const size_t size = n_ / n_groups;
    std::array<double, kMaxExperts> best;
    std::array<bool, kMaxExperts> kept = {};
    for (size_t g = 0; g < n_groups; ++g) {
      const std::span<double> group(choice_.data() + g * size, size);
      const size_t first = first_of_largest(group);
      best[g] = group[first];
      if (!router_.choice_bias || size == 1) continue;
      const double largest = std::exchange(group[first], kTaken);
      best[g] += group[first_of_largest(group)];
      group[first] = largest;
    }
    for (int64_t i = 0; i < router_.kept_groups; ++i) kept[take_largest({best.data(), n_groups})] = true;
    for (size_t e = 0; e < n_; ++e) {
      if (!kept[e / size]) choice_[e] = kOut;
    }
  }

  size_t n_;
  const Router& router_;
  std::array<double, kMaxExperts> scores_, choice_;
};

// Products of experts with few rows. Outputs are counted in units: a row of weights, or a tile if quantized.
class FewRows {
 public:
  FewRows(const Matrix& x, const Weight& weight, const GroupedRows& rows, int bits, const Matrix& out)
      : x_(x),
        weight_(weight),
        rows_(rows),
        out_(out),
        layout_(weight.blocks[0].w),
        parts_(cpu::parts_for(layout_.format.grouping.code, bits)),
        widened_(cpu::widened_bytes(weight.blocks[0].w)) {}

  int64_t units() const { return units_per_expert() * static_cast<int64_t>(rows_.few.size()); }
  int64_t weights() const { return static_cast<int64_t>(rows_.few.size()) * layout_.rows * layout_.cols; }
  size_t thread_bytes() const { return x_bytes() + prepared_bytes() + out_bytes() + widened_; }

  // Multiplies units [first, last). memory: thread_bytes().
  void multiply(int64_t first, int64_t last, char* memory) const {
    while (first < last) {
      const auto expert = static_cast<size_t>(rows_.few[static_cast<size_t>(first / units_per_expert())]);
      const int64_t from = first % units_per_expert();
      const int64_t to = std::min(units_per_expert(), from + last - first);
      multiply(expert, from, to, memory);
      first += to - from;
    }
  }

 private:
  void multiply(size_t expert, int64_t first, int64_t last, char* memory) const {
    const auto [w, bias] = weight_.group(expert);
    const std::span<const int32_t> ids = rows_.of(expert);
    const auto count = static_cast<int64_t>(ids.size());
    const int64_t per_x = out_.rows / x_.rows;
    Matrix some_x = x_.row_range(ids[0] / per_x, 1), some_out = out_.row_range(ids[0], 1);
    if (count > 1) {
      some_x = Matrix(memory, DType::kF32, count, x_.cols);
      some_out = Matrix(memory + x_bytes() + prepared_bytes(), DType::kF32, count, out_.cols);
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(some_x.f32(i), x_.f32(ids[static_cast<size_t>(i)] / per_x), row_bytes(x_.cols));
      }
    }
    char* const prepared = memory + x_bytes();
    if (is_quantized(w.dtype)) {
      const cpu::QuantRows quantized(prepared, count, layout_.groups(), parts_);
      cpu::quantize_rows(some_x, quantized, 0, count);
      cpu::quant_tiles(quantized, w, some_out, first, last, memory + thread_bytes() - widened_);
      first *= kQuantRows;
      last = std::min(last * kQuantRows, out_.cols);
    } else {
      if (weight_.compute == DType::kBF16) some_x = cpu::rounded_rows(some_x, prepared);
      first *= cpu::gemv_unit(w);
      last = std::min(last * cpu::gemv_unit(w), out_.cols);
      cpu::gemv_columns(some_x, w, some_out, first, last);
    }
    cpu::add_bias(bias, first, some_out.column_range(first, last - first));
    for (int64_t i = 0; i < count && count > 1; ++i) {
      std::memcpy(out_.f32(ids[static_cast<size_t>(i)]) + first, some_out.f32(i) + first,
                  row_bytes(last - first));
    }
  }

  static size_t row_bytes(int64_t cols) { return static_cast<size_t>(cols) * sizeof(float); }
  static size_t rows_bytes(int64_t cols) { return round_up(cpu::kGemvRows * row_bytes(cols), size_t{64}); }
  size_t x_bytes() const { return rows_bytes(x_.cols); }
  size_t prepared_bytes() const {  // rounded or quantized
    const size_t quantized = cpu::QuantRows::bytes(cpu::kGemvRows, layout_.groups(), parts_);
    if (!is_quantized(layout_.format.dtype))
      return round_up(cpu::rounded_bytes(cpu::kGemvRows, x_.cols), size_t{64});
    return round_up(quantized, size_t{64});
  }
  size_t out_bytes() const { return rows_bytes(out_.cols); }
  int64_t units_per_expert() const {
    if (is_quantized(layout_.format.dtype)) return layout_.tiles();
    return ceil_div(layout_.rows, cpu::gemv_unit(weight_.blocks[0].w));
  }

  const Matrix& x_;
  const Weight& weight_;
  const GroupedRows& rows_;
  const Matrix& out_;
  const QuantLayout layout_;  // shape and format of the experts
  const int64_t parts_;       // see QuantRows
  const size_t widened_;      // bytes
};

}  // namespace

void GroupedRows::sort(std::span<const int32_t> chosen, size_t n_blocks) {
  few.reserve(n_blocks);
  first.assign(n_blocks + 1, 0);
  rows.resize(chosen.size());
  for (const int32_t e : chosen) ++first[static_cast<size_t>(e) + 1];
  few.clear();
  for (size_t e = 0; e < n_blocks; ++e) {
    const int32_t count = first[e + 1];
    if (count > 0 && count <= cpu::kGemvRows) few.push_back(static_cast<int32_t>(e));
    first[e + 1] += first[e];
  }
  // first[e] advances to the next block and is shifted back below.
  for (size_t i = 0; i < chosen.size(); ++i) {
    rows[static_cast<size_t>(first[static_cast<size_t>(chosen[i])]++)] = static_cast<int32_t>(i);
  }
  std::copy_backward(first.begin(), first.end() - 1, first.end());
  first[0] = 0;
}

void CpuBackend::route(const Matrix& logits, const Router& router, const Routing& routing) {
  const auto n_experts = static_cast<size_t>(logits.cols);
  if (n_experts > kMaxExperts) {
    throw Error(std::to_string(n_experts) + " experts; at most " + std::to_string(kMaxExperts) + " fit");
  }
  const int64_t grain = ceil_div<int64_t>(kMaxExperts, logits.cols);
  for_ranges(threads_, logits.rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      Token({logits.f32(t), n_experts}, router)
          .choose(routing.experts + t * router.n_chosen, routing.weights.f32(t));
    }
  });
}

void CpuBackend::grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                                const Matrix& out) {
  if (out.rows == 0) return;
  const auto& blocks = weight.blocks;
  grouped_rows_.sort({routing.experts, static_cast<size_t>(out.rows)}, blocks.size());
  for (size_t e = 0; e < blocks.size(); ++e) {
    if (grouped_rows_.count(e) > cpu::kGemvRows)
      multiply_group(x, weight.group(e), grouped_rows_.of(e), weight.compute, out);
  }
  if (grouped_rows_.few.empty()) return;
  const FewRows few(x, weight, grouped_rows_, activation_bits_, out);
  if (!is_quantized(blocks[0].w.dtype)) paths_.gemv += static_cast<int64_t>(grouped_rows_.few.size());
  // One thread per 2^17 weights, three microseconds of work. Up to four tasks per thread compensate delays;
  // 2^19 weights are a long stream.
  const int64_t team = team_for(few.weights(), 1 << 17, threads_);
  const int64_t tasks = team * std::clamp<int64_t>((few.weights() >> 19) / team, 1, 4);
  const size_t bytes = few.thread_bytes();
  char* const memory = static_cast<char*>(scratch(static_cast<size_t>(team) * bytes));
  for_tasks(static_cast<int>(team), tasks, [&](int64_t task, int thread) {
    few.multiply(few.units() * task / tasks, few.units() * (task + 1) / tasks,
                 memory + static_cast<size_t>(thread) * bytes);
  });
}

// Gathers rows `ids` of x; writes rows `ids` of out.
void CpuBackend::multiply_group(const Matrix& x, const RowBlock& block, std::span<const int32_t> ids,
                                DType compute, const Matrix& out) {
  const auto count = static_cast<int64_t>(ids.size()), per_x = out.rows / x.rows;
  const auto bytes = static_cast<size_t>(count * (x.cols + out.cols)) * sizeof(float);
  const Matrix some_out(at_least(gathered_, bytes), DType::kF32, count, out.cols);
  const Matrix some_x(some_out.f32(count), DType::kF32, count, x.cols);
  const auto id = [&](int64_t i) { return ids[static_cast<size_t>(i)]; };
  const auto copy_rows = [&](int64_t cols, const auto& from, const auto& to) {
    for_ranges(threads_, count, row_grain(cols), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        std::memcpy(to(i), from(i), static_cast<size_t>(cols) * sizeof(float));
      }
    });
  };
  copy_rows(
      x.cols, [&](int64_t i) { return x.f32(id(i) / per_x); }, [&](int64_t i) { return some_x.f32(i); });
  const Product product{block.w, block.bias, some_out};
  // Prefill chunks split an expert's rows: integer codes always use integers.
  is_quantized(block.w.dtype) && is_integer(block.w.grouping.code)
      ? multiply_codes(some_x, {&product, 1})
      : multiply_alike(some_x, {&product, 1}, compute);
  copy_rows(
      out.cols, [&](int64_t i) { return some_out.f32(i); }, [&](int64_t i) { return out.f32(id(i)); });
}

void CpuBackend::combine_experts(const Matrix& x, const Routing& routing, bool add, const Matrix& out) {
  const int64_t n = routing.weights.cols;
  for_ranges(threads_, out.rows, row_grain(n * out.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const Matrix& logits = routing.shared_logits;
      const float shared = logits ? 1.0F / (1.0F + std::exp(-*logits.f32(t))) : 1.0F;
      HWY_DYNAMIC_DISPATCH(CombineRows)
      (x.row_range(t * n, n), routing.weights.f32(t), add, shared, out.f32(t));
    }
  });
}

}  // namespace lariat
#endif
