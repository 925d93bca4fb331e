#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "kernels/cpu/quant_matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quant_float.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/quant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Rows of x are `columns` floats apart.
struct FloatGroup {
  const cpu::QuantBlock& b;
  const uint8_t* block;
  int64_t place;
  const float* HWY_RESTRICT x;
  int64_t columns;

  const uint32_t* words() const {
    return reinterpret_cast<const uint32_t*>(block + b.scale_bytes + place * b.group_bytes);
  }
};
using Totals = float (*HWY_RESTRICT)[kQuantRows];

template <int kRows>
HWY_INLINE void AddScaled(const FloatGroup& group, int64_t first, int64_t count, int64_t lane, const VL* sum,
                          Totals total) {
  const DL d;
  const BlockScales at = ScalesAt(group.b, group.block, group.place * kQuantGroup + first, lane);
  Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
    VL whole = hn::MulAdd(sum[a], at.scale, hn::Load(d, total[a] + lane));
    if (group.b.minimum) {
      const float* x = group.x + a * group.columns + first;
      whole = hn::MulAdd(at.minimum, hn::Set(d, std::accumulate(x, x + count, 0.0F)), whole);
    }
    hn::Store(whole, d, total[a] + lane);
  });
}

// Each half of the group has its own sums: more chains of additions hide the latency.
template <int kRows, class Values>
HWY_INLINE void AddGroup(const Values& values, const FloatGroup& group, Totals total) {
  const DL d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(DL()));
  constexpr int kVectors = kRows <= 2 && kLanes < kQuantRows ? 2 : 1;  // the registers limit the sums
  for (int64_t lane = 0; lane < kQuantRows; lane += kVectors * kLanes) {
    VL sum[kVectors][2][kRows];
    for (auto& vector : sum) {
      for (int64_t a = 0; a < kRows; ++a) vector[0][a] = vector[1][a] = hn::Zero(d);
    }
    for (int64_t quad = 0; quad < kQuantGroup / 8; ++quad) {
      Unroll<kVectors>([&](auto v) LARIAT_INLINE_BODY {
        const auto add = [&](int64_t at, auto half, VLU codes) LARIAT_INLINE_BODY {
          Unroll<4>([&](auto i) LARIAT_INLINE_BODY {
            const VL weight = values.template at<i>(codes);
            Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
              const VL input = hn::Set(d, group.x[a * group.columns + 4 * at + i]);
              sum[v][half][a] = hn::MulAdd(weight, input, sum[v][half][a]);
            });
          });
        };
        ForHalves<Values::kBits>(group.words() + lane + v * kLanes, quad, add);
      });
    }
    Unroll<kVectors>([&](auto v) LARIAT_INLINE_BODY {
      const int64_t output = lane + v * kLanes;
      if (group.b.halves) {
        AddScaled<kRows>(group, 0, kQuantGroup / 2, output, sum[v][0], total);
        AddScaled<kRows>(group, kQuantGroup / 2, kQuantGroup / 2, output, sum[v][1], total);
        return;
      }
      Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY { sum[v][0][a] = hn::Add(sum[v][0][a], sum[v][1][a]); });
      AddScaled<kRows>(group, 0, kQuantGroup, output, sum[v][0], total);
    });
  }
}

#if HWY_TARGET != HWY_SCALAR
// Looks up each byte of a table of floats separately: four inputs of an output are adjacent, in 128-bit
// blocks of every fourth output.
struct ByteTables {
  HWY_ALIGN uint8_t bytes[4][16];
  explicit ByteTables(const TableValues& values) {
    for (int i = 0; i < 64; ++i) {
      const auto bits = std::bit_cast<uint32_t>(values.table[i / 4]);
      bytes[i % 4][i / 4] = static_cast<uint8_t>(bits >> i % 4 * 8);
    }
  }
};
template <int kRows>
HWY_INLINE void AddGroup(const ByteTables& tables, const FloatGroup& group, Totals total) {
  const DL d;
  const hn::Repartition<uint8_t, DLU> d8;
  const hn::Repartition<uint16_t, DLU> d16;
  const hn::Repartition<uint64_t, DLU> d64;
  const auto table0 = hn::LoadDup128(d8, tables.bytes[0]), table1 = hn::LoadDup128(d8, tables.bytes[1]);
  const auto table2 = hn::LoadDup128(d8, tables.bytes[2]), table3 = hn::LoadDup128(d8, tables.bytes[3]);
  for (int64_t lane = 0; lane < kQuantRows; lane += static_cast<int64_t>(hn::Lanes(d))) {
    VL sum[kRows][4];
    for (int64_t half = 0; half < 2; ++half) {
      if (half == 0 || group.b.halves) {
        for (auto& row : sum) row[0] = row[1] = row[2] = row[3] = hn::Zero(d);
      }
      const int64_t first = half * kQuantGroup / 2;
      for (int64_t quad = 0; quad < kQuantGroup / 8; ++quad) {
        VLU codes = hn::LoadU(DLU(), group.words() + lane + quad * kQuantRows);
        if (half == 1) codes = hn::ShiftRight<4>(codes);
        const auto nibbles = hn::BitCast(d8, hn::And(codes, hn::Set(DLU(), 0x0f0f0f0fU)));
        const auto byte0 = hn::TableLookupBytes(table0, nibbles);
        const auto byte1 = hn::TableLookupBytes(table1, nibbles);
        const auto byte2 = hn::TableLookupBytes(table2, nibbles);
        const auto byte3 = hn::TableLookupBytes(table3, nibbles);
        const auto low = [&](auto a, auto b)
                             HWY_ATTR { return hn::BitCast(d16, hn::InterleaveLower(d8, a, b)); };
        const auto high = [&](auto a, auto b)
                              HWY_ATTR { return hn::BitCast(d16, hn::InterleaveUpper(d8, a, b)); };
        const auto low01 = low(byte0, byte1), low23 = low(byte2, byte3);
        const auto high01 = high(byte0, byte1), high23 = high(byte2, byte3);
        const VL weights[4] = {hn::BitCast(d, hn::InterleaveLower(d16, low01, low23)),
                               hn::BitCast(d, hn::InterleaveUpper(d16, low01, low23)),
                               hn::BitCast(d, hn::InterleaveLower(d16, high01, high23)),
                               hn::BitCast(d, hn::InterleaveUpper(d16, high01, high23))};
        Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
          const VL inputs = hn::LoadDup128(d, group.x + a * group.columns + first + 4 * quad);
          Unroll<4>([&](auto j)
                        LARIAT_INLINE_BODY { sum[a][j] = hn::MulAdd(weights[j], inputs, sum[a][j]); });
        });
      }
      if (half == 0 && !group.b.halves) continue;
      VL of_outputs[kRows];
      Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
        const auto pairs = [&](VL one, VL other) HWY_ATTR {
          return hn::BitCast(d64,
                             hn::Add(hn::InterleaveLower(d, one, other), hn::InterleaveUpper(d, one, other)));
        };
        const auto low = pairs(sum[a][0], sum[a][1]), high = pairs(sum[a][2], sum[a][3]);
        of_outputs[a] = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, low, high)),
                                hn::BitCast(d, hn::InterleaveUpper(d64, low, high)));
      });
      const int64_t begin = group.b.halves ? first : 0;
      AddScaled<kRows>(group, begin, first + kQuantGroup / 2 - begin, lane, of_outputs, total);
    }
  }
}
#endif

template <class Values, int kRows>
HWY_NOINLINE void DotFloatTile(const cpu::QuantTask& task, const cpu::QuantBlock& b, const Values& values,
                               int64_t tile) {
  const QuantLayout layout(task.w);
  const auto* block = static_cast<const uint8_t*>(task.w.data) + tile * layout.tile_bytes();
  const float* x = task.x.floats + task.first_row * task.x.columns();
  HWY_ALIGN float total[kRows][kQuantRows] = {};
  for (int64_t g = 0; g < layout.groups(); g += b.groups, block += b.block_bytes) {
    for (int64_t place = 0; place < b.groups; ++place, x += kQuantGroup) {
      AddGroup<kRows>(values, {b, block, place, x, task.x.columns()}, total);
    }
  }
  for (int64_t a = 0; a < kRows; ++a) task.store(a, tile * kQuantRows, total[a]);
}

template <class Values>
HWY_INLINE void DotFloatsOf(const cpu::QuantTask& task, const cpu::QuantBlock& b, const Values& values) {
  with_count<cpu::kMaxQuantRows>(task.rows, [&](auto rows) HWY_ATTR {
    for (int64_t i = 0; i < task.tiles; ++i) {
      DotFloatTile<Values, rows>(task, b, values, task.first_tile + i * task.tile_distance);
    }
  });
}

void DotFloatTiles(const cpu::QuantTask& task) {
  const cpu::QuantBlock b(task.w);
  if (b.code == Code::kE4M3) return DotFloatsOf(task, b, E4M3Values());
  const TableValues values{code_table(b.code).data()};
#if HWY_TARGET == HWY_SCALAR
  DotFloatsOf(task, b, values);
#else
  DotFloatsOf(task, b, ByteTables(values));
#endif
}

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

void WidenTiles(const Matrix& from, int64_t first, const Matrix& to) {
  const QuantLayout narrow(from), wide(to);
  const auto* block = static_cast<const uint8_t*>(from.data) + first * narrow.tile_bytes();
  auto* to_block = static_cast<uint8_t*>(to.data);
  const VLU up = hn::Set(DLU(), static_cast<uint32_t>(wide.zero() - narrow.zero()) * 0x01010101U);
  WithBits(narrow.bits(), [&](auto bits) HWY_ATTR {
    const auto widen = [&](const uint8_t* group, uint8_t* to_group, int64_t lane) HWY_ATTR {
      auto* const words = reinterpret_cast<uint32_t*>(to_group) + lane;
      for (int64_t quad = 0; quad < kQuantGroup / 8; ++quad) {
        ForHalves<bits>(reinterpret_cast<const uint32_t*>(group) + lane, quad,
                        [&](int64_t at, auto half, VLU codes) LARIAT_INLINE_BODY {
                          VLU sum = hn::Add(codes, up);
                          uint32_t* const line = words + (bits > 4 ? at : quad) * kQuantRows;
                          if (bits <= 4 && half == 1)
                            sum = hn::Or(hn::ShiftLeft<4>(sum), hn::LoadU(DLU(), line));
                          hn::StoreU(sum, DLU(), line);
                        });
      }
    };
    for (int64_t b = 0; b < wide.tiles() * wide.blocks(); ++b) {
      std::memcpy(to_block, block, static_cast<size_t>(wide.scale_bytes()));
      block += narrow.scale_bytes();
      to_block += wide.scale_bytes();
      for (int64_t g = 0; g < wide.block() / kQuantGroup; ++g) {
        for (int64_t lane = 0; lane < kQuantRows; lane += static_cast<int64_t>(hn::Lanes(DL())))
          widen(block, to_block, lane);
        block += narrow.group_bytes();
        to_block += wide.group_bytes();
      }
    }
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(DotFloatTiles);
HWY_EXPORT(Dequantize);
HWY_EXPORT(WidenTiles);

namespace cpu {

void quant_dot_floats(const QuantTask& task) { HWY_DYNAMIC_DISPATCH(DotFloatTiles)(task); }

void dequantize(const Matrix& w, int64_t row, int64_t column, const Matrix& to) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(w, row, column, to);
}

void widen_tiles(const Matrix& from, int64_t first, const Matrix& to) {
  HWY_DYNAMIC_DISPATCH(WidenTiles)(from, first, to);
}

}  // namespace cpu
}  // namespace lariat
#endif
