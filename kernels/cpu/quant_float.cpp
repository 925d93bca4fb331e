#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/quant_matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quant_float.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/quant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Adds a group to the sums of kRows rows and kVectors vectors of outputs, from `lane` on. x: of the first
// row, at the group. Each half of a group has a sum of its own, which is as many chains of additions as hide
// their latency.
template <class Values, int kRows, int kVectors>
HWY_INLINE void AddGroup(const Values& values, const cpu::QuantBlock& b, const uint8_t* block, int64_t place,
                         const float* HWY_RESTRICT x, int64_t columns, int64_t lane,
                         float (*HWY_RESTRICT total)[kQuantRows]) {
  const DL d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(DL()));
  const auto* words = reinterpret_cast<const uint32_t*>(block + b.scale_bytes + place * b.group_bytes);
  VL sum[kRows][kVectors][2];
  for (auto& row : sum) {
    for (auto& halves : row) halves[0] = halves[1] = hn::Zero(d);
  }
  for (int64_t quad = 0; quad < kQuantGroup / 8; ++quad) {
    Unroll<kVectors>([&](auto v) LARIAT_INLINE_BODY {
      ForHalves<Values>(words + lane + v * kLanes, quad,
                        [&](int64_t at, auto half, VLU codes) LARIAT_INLINE_BODY {
                          Unroll<4>([&](auto i) LARIAT_INLINE_BODY {
                            const VL weight = values.template at<i>(codes);
                            Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
                              const VL input = hn::Set(d, x[a * columns + 4 * at + i]);
                              sum[a][v][half] = hn::MulAdd(weight, input, sum[a][v][half]);
                            });
                          });
                        });
    });
  }
  const int64_t first = place * kQuantGroup;
  Unroll<kVectors>([&](auto v) LARIAT_INLINE_BODY {
    const int64_t output = lane + v * kLanes;
    const BlockScales low = ScalesAt(b, block, first, output);
    const BlockScales high = b.halves ? ScalesAt(b, block, first + kQuantGroup / 2, output) : low;
    Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
      float* const to = total[a] + output;
      VL whole = hn::Load(d, to);
      if (b.halves || b.minimum) {
        whole = hn::MulAdd(sum[a][v][0], low.scale, hn::MulAdd(sum[a][v][1], high.scale, whole));
      } else {
        whole = hn::MulAdd(hn::Add(sum[a][v][0], sum[a][v][1]), low.scale, whole);
      }
      for (int64_t i = 0; b.minimum && i < kQuantGroup; ++i) {
        const VL minimum = i < kQuantGroup / 2 ? low.minimum : high.minimum;
        whole = hn::MulAdd(minimum, hn::Set(d, x[a * columns + i]), whole);
      }
      hn::Store(whole, d, to);
    });
  });
}

template <class Values, int kRows>
HWY_NOINLINE void DotFloatTile(const cpu::QuantTask& task, const cpu::QuantBlock& b, const Values& values,
                               int64_t tile) {
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(DL()));
  constexpr int kVectors = kRows <= 2 && kLanes < kQuantRows ? 2 : 1;  // as many sums as registers hold
  const QuantLayout layout(task.w);
  const auto* block = static_cast<const uint8_t*>(task.w.data) + tile * layout.tile_bytes();
  const float* x = task.x.floats + task.first_row * task.x.columns();
  HWY_ALIGN float total[kRows][kQuantRows] = {};
  for (int64_t g = 0; g < layout.groups(); g += b.groups, block += b.block_bytes) {
    for (int64_t place = 0; place < b.groups; ++place, x += kQuantGroup) {
      for (int64_t lane = 0; lane < kQuantRows; lane += kVectors * kLanes) {
        AddGroup<Values, kRows, kVectors>(values, b, block, place, x, task.x.columns(), lane, total);
      }
    }
  }
  const int64_t first = tile * kQuantRows, count = std::min(kQuantRows, task.w.rows - first);
  for (int64_t a = 0; a < kRows; ++a) {
    std::copy(total[a], total[a] + count, task.out.f32(task.first_row + a) + first);
  }
}

void DotFloatTiles(const cpu::QuantTask& task) {
  const cpu::QuantBlock b(task.w);
  WithValues(b, [&](const auto& values) HWY_ATTR {
    with_count<cpu::kMaxQuantRows>(task.rows, [&](auto rows) HWY_ATTR {
      for (int64_t i = 0; i < task.tiles; ++i) {
        DotFloatTile<std::decay_t<decltype(values)>, rows>(task, b, values,
                                                           task.first_tile + i * task.tile_distance);
      }
    });
  });
}

// A group of a tile of weights, row by row.
void GroupRows(const cpu::QuantBlock& b, const uint8_t* block, int64_t place,
               float (*HWY_RESTRICT rows)[kQuantGroup]) {
  const F32 d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
  HWY_ALIGN float columns[kQuantGroup][kQuantRows];
  ForWeights(b, block, place, [&](int64_t i, int64_t lane, VL w0, VL w1, VL w2, VL w3) LARIAT_INLINE_BODY {
    hn::Store(w0, DL(), columns[i] + lane);
    hn::Store(w1, DL(), columns[i + 1] + lane);
    hn::Store(w2, DL(), columns[i + 2] + lane);
    hn::Store(w3, DL(), columns[i + 3] + lane);
  });
  for (int64_t r = 0; r < kQuantRows; r += kLanes) {
    for (int64_t c = 0; c < kQuantGroup; c += kLanes) {
      VF32 square[kLanes];
      Unroll<kLanes>([&](auto i) LARIAT_INLINE_BODY { square[i] = hn::LoadU(d, columns[c + i] + r); });
      Transpose(square);
      Unroll<kLanes>([&](auto i) LARIAT_INLINE_BODY { hn::StoreU(square[i], d, rows[r + i] + c); });
    }
  }
}

void Dequantize(const Matrix& w, int64_t row, int64_t column, const Matrix& to) {
  const QuantLayout layout(w);
  const cpu::QuantBlock b(layout);
  HWY_ALIGN float rows[kQuantRows][kQuantGroup];
  for (int64_t r = 0; r < to.rows;) {
    const int64_t in_tile = (row + r) % kQuantRows, count = std::min(kQuantRows - in_tile, to.rows - r);
    const auto* tile = static_cast<const uint8_t*>(w.data) + (row + r) / kQuantRows * layout.tile_bytes();
    for (int64_t c = 0; c < to.cols; c += kQuantGroup) {
      const int64_t group = (column + c) / kQuantGroup;
      GroupRows(b, tile + group / b.groups * b.block_bytes, group % b.groups, rows);
      const auto bytes = static_cast<size_t>(std::min(kQuantGroup, to.cols - c)) * sizeof(float);
      for (int64_t i = 0; i < count; ++i) std::memcpy(to.f32(r + i) + c, rows[in_tile + i], bytes);
    }
    r += count;
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(DotFloatTiles);
HWY_EXPORT(Dequantize);

namespace cpu {

void quant_dot_floats(const QuantTask& task) { HWY_DYNAMIC_DISPATCH(DotFloatTiles)(task); }

void dequantize(const Matrix& w, int64_t row, int64_t column, const Matrix& to) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(w, row, column, to);
}

}  // namespace cpu
}  // namespace lariat
#endif
