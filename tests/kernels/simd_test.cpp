// simd-inl.h vs convert.h, bitwise; exp and soft cap vs double; on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/simd_test.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

template <typename From, typename To>
void Convert(const From* from, To* to, size_t count) {
  ForVectors(count,
             [&](size_t i, size_t n) LARIAT_INLINE_BODY { StoreUpTo(LoadUpTo(from + i, n), to + i, n); });
}

void Widen(DType dtype, const uint16_t* from, float* to, size_t count) {
  WithDType(const_cast<uint16_t*>(from), dtype,
            [&](const auto* source) HWY_ATTR { Convert(source, to, count); });
}

void Narrow(DType dtype, const float* from, uint16_t* to, size_t count) {
  WithDType(to, dtype, [&](auto* target) HWY_ATTR { Convert(from, target, count); });
}

void ExpOf(const float* from, float* to, size_t count) {
  const F32 d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(Exp(hn::LoadU(d, from + i)), d, to + i);
}

void SoftCapOf(const float* from, float* to, size_t count, float cap) {
  const F32 d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    hn::StoreU(SoftCap(hn::LoadU(d, from + i), cap), d, to + i);
  }
}

int64_t CurrentTarget() { return HWY_TARGET; }

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);
HWY_EXPORT(ExpOf);
HWY_EXPORT(SoftCapOf);
HWY_EXPORT(CurrentTarget);

namespace {

class Simd : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ASSERT_EQ(HWY_DYNAMIC_DISPATCH(CurrentTarget)(), GetParam());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

TEST_P(Simd, WidensEverySixteenBitValue) {
  std::vector<uint16_t> bits(0x10000 - 3);  // a tail for any vector length
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i * 7);  // odd: all differ
  std::vector<float> wide(bits.size());
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    HWY_DYNAMIC_DISPATCH(Widen)(dtype, bits.data(), wide.data(), bits.size());
    for (size_t i = 0; i < bits.size(); ++i) {
      const float expected = load_f32(bits.data(), dtype, static_cast<int64_t>(i));
      ASSERT_EQ(std::memcmp(&wide[i], &expected, 4), 0) << name_of(dtype) << " bits " << bits[i];
    }
  }
}

TEST_P(Simd, NarrowsLikeTheScalarCode) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < 0x100000000; bits += 0x1001) {  // exponents, rounding cases, NaNs
    for (uint32_t low : {0U, 0x7fffU, 0x8000U, 0x1000U, 0x3000U}) {
      values.push_back(std::bit_cast<float>((static_cast<uint32_t>(bits) & 0xffff0000U) | low));
    }
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  std::vector<uint16_t> narrow(values.size());
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    HWY_DYNAMIC_DISPATCH(Narrow)(dtype, values.data(), narrow.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t expected = dtype == DType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      ASSERT_EQ(narrow[i], expected) << name_of(dtype) << " of bits " << std::bit_cast<uint32_t>(values[i]);
    }
  }
}

TEST_P(Simd, ExpIsWithinTwoUlpAndKeepsNan) {
  std::vector<float> x;
  for (uint32_t bits = 0x2f800000; bits < 0x42b00000; bits += 0x301) x.push_back(std::bit_cast<float>(bits));
  for (size_t i = x.size(); i > 0; --i) x.push_back(-x[i - 1]);  // [-88, 88] without values next to 0
  for (float special : {0.0F, -0.0F, 88.0F, -87.3F, -87.4F, -1000.0F, -HUGE_VALF, NAN}) x.push_back(special);
  x.resize((x.size() + 63) / 64 * 64);
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(ExpOf)(x.data(), y.data(), x.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else if (x[i] < -87.3F) {
      EXPECT_EQ(y[i], 0.0F) << x[i];
    } else {
      int exponent = 0;
      std::frexp(exact, &exponent);
      worst = std::max(worst, std::abs(y[i] - exact) / std::ldexp(1.0, exponent - 24));
    }
  }
  EXPECT_LE(worst, 2.0);
}

TEST_P(Simd, SoftCapIsWithinItsBoundAndKeepsNan) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 0x3001) x.push_back(std::bit_cast<float>(bits));
  for (size_t i = x.size(); i > 0; --i) x.push_back(-x[i - 1]);
  for (float special : {HUGE_VALF, -HUGE_VALF, NAN}) x.push_back(special);
  x.resize((x.size() + 63) / 64 * 64);
  std::vector<float> y(x.size());
  for (float cap : {0.5F, 30.0F, 50.0F}) {
    HWY_DYNAMIC_DISPATCH(SoftCapOf)(x.data(), y.data(), x.size(), cap);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::isnan(x[i]), std::isnan(y[i])) << x[i];
      if (!std::isnan(x[i])) {
        worst = std::max(worst, std::abs(y[i] - cap * std::tanh(static_cast<double>(x[i]) / cap)));
      }
    }
    EXPECT_LE(worst, cap * 5 * 0x1p-24);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Simd, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

}  // namespace
}  // namespace lariat
#endif
