#include "kernels/cpu/attention_tiles.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tiles.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

constexpr int64_t kPairLanes = hn::MaxLanes(F32());
constexpr int64_t kPairParts = cpu::kTileRows / kPairLanes;  // vectors in a row of a tile

void PackValuePairs(const uint16_t* from, int64_t stride, void* to) {
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<uint16_t, F32> d16;
  auto* pairs = static_cast<uint32_t*>(to);
  for (int64_t i = 0; i < cpu::kTileRows; ++i) {
    for (int64_t d = 0; d < cpu::kTileRows; d += kPairLanes, pairs += kPairLanes) {
      const uint16_t* p = from + i * stride + d;
      const auto low = hn::PromoteTo(du, hn::LoadU(d16, p));
      const auto high = hn::PromoteTo(du, hn::LoadU(d16, p + cpu::kTileRows * stride));
      hn::Store(hn::Or(low, hn::ShiftLeft<16>(high)), du, pairs);
    }
  }
}

// 2^(s - max) for an integer max >= s, with relative error 1.1e-4 (later rounded to 2^-8); 0 below 2^-126.
// Only integers are subtracted: the result of the fraction does not depend on max.
HWY_INLINE VF32 Power(VF32 s, VF32 max) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const VF32 floor = hn::Floor(s), f = hn::Sub(s, floor);
  VF32 p = hn::MulAdd(hn::Set(d, 0.0790195F), f, hn::Set(d, 0.2241270F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6966961F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.9998929F));
  const VF32 exponent = hn::Max(hn::Sub(floor, max), hn::Set(d, -127.0F));
  // Adding a small integer to 1.5 * 2^23 puts it into the low bits.
  const VF32 biased = hn::Add(exponent, hn::Set(d, 12582912.0F + 127.0F));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, biased))));
}

// Rounds to bf16, half away from zero. Sums use rounded weights: a single key returns its value.
HWY_INLINE VF32 RoundWeight(VF32 weight) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const auto bits = hn::Add(hn::BitCast(du, weight), hn::Set(du, 0x8000));
  return hn::BitCast(d, hn::And(bits, hn::Set(du, 0xffff0000)));
}

HWY_INLINE void StorePairs(VF32 low, VF32 high, uint32_t* pairs) {
  const hn::RebindToUnsigned<F32> du;
  hn::StoreU(hn::Or(hn::ShiftRight<16>(hn::BitCast(du, low)), hn::BitCast(du, high)), du, pairs);
}

// Raises the row's maximum to `max`, an integer, and rescales the sums.
HWY_NOINLINE void RaiseMaximum(const AttentionTask& task, int64_t row, float max, float* sums) {
  const float factor = std::exp2(task.max[row] - max);  // 0 at first, as are the sums
  task.max[row] = max;
  for (int64_t i = 0; i < cpu::kTileRows; ++i) sums[i] *= factor;
  float* acc = task.acc + row * task.stride;
  for (int64_t i = 0; i < task.value_stride; ++i) acc[i] *= factor;
}

// Converts scores at `keys` positions to weights and adds them to the row's 16 sums.
HWY_NOINLINE void Weigh(const float* scores, int64_t keys, float row_max, uint32_t* weights, float* sums) {
  const F32 d;
  const VF32 max = hn::Set(d, row_max);
  VF32 sum[kPairParts];
  Unroll<kPairParts>([&](auto i) LARIAT_INLINE_BODY { sum[i] = hn::LoadU(d, sums + i * kPairLanes); });
  for (int64_t key = 0; key < keys; key += 2 * cpu::kTileRows, weights += cpu::kTileRows) {
    Unroll<kPairParts>([&](auto i) LARIAT_INLINE_BODY {
      const float* s = scores + key + i * kPairLanes;
      const VF32 first = RoundWeight(Power(hn::LoadU(d, s), max));
      const VF32 second = RoundWeight(Power(hn::LoadU(d, s + cpu::kTileRows), max));
      StorePairs(first, second, weights + i * kPairLanes);
      sum[i] = hn::Add(hn::Add(sum[i], first), second);
    });
  }
  Unroll<kPairParts>([&](auto i) LARIAT_INLINE_BODY { hn::StoreU(sum[i], d, sums + i * kPairLanes); });
}

// Applies soft cap and ALiBi, in log2 units.
HWY_NOINLINE void AdjustScores(const AttentionTask& task, int64_t row, int64_t base, int64_t keys,
                               float* scores) {
  const F32 d;
  const float slope = task.slopes == nullptr ? 0.0F : cpu::kLog2E * task.slopes[row % task.group];
  const auto lanes = static_cast<float>(kPairLanes);
  VF32 distance = hn::Iota(d, static_cast<float>(base - task.position(row)));
  for (int64_t i = 0; i < keys; i += kPairLanes, distance = hn::Add(distance, hn::Set(d, lanes))) {
    VF32 s = hn::LoadU(d, scores + i);
    if (task.softcap > 0.0F) s = SoftCap(s, cpu::kLog2E * task.softcap);
    hn::StoreU(hn::MulAdd(hn::Set(d, slope), distance, s), d, scores + i);
  }
}

void TiledSoftmax(const AttentionTask& task, const cpu::TiledMemory& memory, int64_t first, int64_t base,
                  int64_t keys) {
  const F32 d;
  for (int64_t r = 0; r < cpu::kTiledRows; ++r) {
    const int64_t row = first + r;
    const auto within = [&](int64_t position) { return std::clamp<int64_t>(position - base, 0, keys); };
    float* scores = memory.scores + r * cpu::kScoreStride;
    uint32_t* weights = memory.weights + r * cpu::kWeightStride;
    const int64_t seen = row < task.rows ? within(std::min(task.end(row), task.last_key)) : 0;
    const int64_t unseen = row < task.rows ? within(task.begin(row)) : 0;
    if (seen <= unseen) {
      std::fill_n(weights, keys / 2, 0U);
      continue;
    }
    if (task.softcap > 0.0F || task.slopes != nullptr) AdjustScores(task, row, base, keys, scores);
    std::fill(scores, scores + unseen, -1e30F);  // finite, for a finite fraction
    std::fill(scores + seen, scores + keys, -1e30F);
    VF32 largest = hn::LoadU(d, scores), other = largest;  // two dependency chains
    for (int64_t i = 0; i < keys; i += 2 * kPairLanes) {
      largest = hn::Max(largest, hn::LoadU(d, scores + i));
      other = hn::Max(other, hn::LoadU(d, scores + i + kPairLanes));
    }
    largest = hn::Max(largest, other);
    float* sums = memory.sums + row * cpu::kTileRows;
    const float top = std::ceil(hn::GetLane(hn::MaxOfLanes(d, largest)));
    if (!(top <= task.max[row])) RaiseMaximum(task, row, top, sums);
    Weigh(scores, keys, task.max[row], weights, sums);
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(PackValuePairs);
HWY_EXPORT(TiledSoftmax);

namespace cpu {

void pack_value_pairs(const uint16_t* from, int64_t stride, void* to) {
  HWY_DYNAMIC_DISPATCH(PackValuePairs)(from, stride, to);
}

void tiled_softmax(const AttentionTask& task, const TiledMemory& memory, int64_t row, int64_t base,
                   int64_t keys) {
  HWY_DYNAMIC_DISPATCH(TiledSoftmax)(task, memory, row, base, keys);
}

}  // namespace cpu
}  // namespace lariat
#endif  // HWY_ONCE
