// kernels/cpu/simd-inl.h against kernels/convert.h, bit by bit, on every instruction set this machine has.
#include <gtest/gtest.h>

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

template <typename T>
void WidenAs(const uint16_t* from, float* to, size_t count) {
  const F32 d;
  const T* source = reinterpret_cast<const T*>(from);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) hn::StoreU(LoadF32(d, source + i), d, to + i);
  if (i < count) StoreTailF32(d, LoadTailF32(d, source + i, count - i), to + i, count - i);
}

template <typename T>
void NarrowAs(const float* from, uint16_t* to, size_t count) {
  const F32 d;
  T* target = reinterpret_cast<T*>(to);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) StoreF32(d, LoadF32(d, from + i), target + i);
  if (i < count) StoreTailF32(d, LoadTailF32(d, from + i, count - i), target + i, count - i);
}

void Widen(DType dtype, const uint16_t* from, float* to, size_t count) {
  dtype == DType::kF16 ? WidenAs<hwy::float16_t>(from, to, count) : WidenAs<hwy::bfloat16_t>(from, to, count);
}

int64_t CurrentTarget() { return HWY_TARGET; }

void Narrow(DType dtype, const float* from, uint16_t* to, size_t count) {
  dtype == DType::kF16 ? NarrowAs<hwy::float16_t>(from, to, count)
                       : NarrowAs<hwy::bfloat16_t>(from, to, count);
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);
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
  std::vector<uint16_t> bits(0x10000 - 3);  // not a multiple of any vector's length: the tail is tested too
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i * 7);  // 7 is odd: all differ
  std::vector<float> wide(bits.size());
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    HWY_DYNAMIC_DISPATCH(Widen)(dtype, bits.data(), wide.data(), bits.size());
    for (size_t i = 0; i < bits.size(); ++i) {
      const float expected = load_f32(bits.data(), dtype, static_cast<int64_t>(i));
      ASSERT_EQ(std::memcmp(&wide[i], &expected, 4), 0) << name_of(dtype) << " bits " << bits[i];
    }
  }
}

TEST_P(Simd, NarrowsAsTheScalarCodeDoes) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < 0x100000000; bits += 0x1001) {  // every exponent, all rounding cases, NaNs
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

INSTANTIATE_TEST_SUITE_P(Targets, Simd, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

}  // namespace
}  // namespace lariat
#endif
