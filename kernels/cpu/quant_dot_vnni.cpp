#include <algorithm>
#include <cstring>

#include "kernels/cpu/fetch_ahead.h"
#include "kernels/cpu/quant_matmul.h"

// AVX-512 with VPDPBUSD: 64 products of unsigned with signed bytes per instruction, added in fours to exact
// 32-bit sums. Weights are the unsigned side; what their zero adds to a sum is where the sum begins.
#if defined(__x86_64__)
#include <immintrin.h>
#define LARIAT_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,fma")))

namespace lariat::cpu {
namespace {

constexpr int64_t kQuads = kQuantGroup / 4;

// Where the operands of a register tile lie: x rows are `columns` bytes apart, tiles of w `distance` bytes.
struct Operands {
  const int8_t* x;
  const float* x_scales;
  const int32_t* x_offsets;
  int64_t columns, groups;
  const uint8_t* w;
  int64_t distance;
};

template <int kX, int kW>
LARIAT_VNNI inline __attribute__((always_inline)) void multiply_quad(const int8_t* x, int64_t columns,
                                                                     const __m512i (&w)[kW],
                                                                     __m512i (&sum)[kX][kW]) {
  for (int a = 0; a < kX; ++a) {
    int32_t quad;
    std::memcpy(&quad, x + a * columns, sizeof(quad));
    const __m512i inputs = _mm512_set1_epi32(quad);
    for (int b = 0; b < kW; ++b) sum[a][b] = _mm512_dpbusd_epi32(sum[a][b], w[b], inputs);
  }
}

// The integer sums of one group. As many tiles as there are streams are read but once.
template <DType kType, int kX, int kW>
LARIAT_VNNI inline __attribute__((always_inline)) void multiply_group(const int8_t* x, int64_t columns,
                                                                      const uint8_t* w, int64_t distance,
                                                                      __m512i (&sum)[kX][kW]) {
  constexpr int64_t kVectors = kType == DType::kQ8 ? kQuads : kQuads / 2;
  for (int64_t v = 0; v < kVectors; ++v) {
    __m512i weights[kW];
    for (int b = 0; b < kW; ++b) {
      const uint8_t* vector = w + b * distance + v * kLineBytes;
      if constexpr (kW == kMaxQuantTiles) fetch_ahead<true>(vector);
      weights[b] = _mm512_loadu_si512(vector);
    }
    if constexpr (kType == DType::kQ8) {
      multiply_quad<kX, kW>(x + 4 * v, columns, weights, sum);
    } else {
      const __m512i low = _mm512_set1_epi8(15);
      __m512i nibbles[kW];
      for (int b = 0; b < kW; ++b) nibbles[b] = _mm512_and_si512(weights[b], low);
      multiply_quad<kX, kW>(x + 4 * v, columns, nibbles, sum);
      for (int b = 0; b < kW; ++b) {
        nibbles[b] = _mm512_and_si512(_mm512_maskz_srli_epi16(~__mmask32{0}, weights[b], 4), low);
      }
      multiply_quad<kX, kW>(x + 4 * (v + kVectors), columns, nibbles, sum);
    }
  }
}

template <DType kType, int kX, int kW>
LARIAT_VNNI void dot(const Operands& from, float* out, int64_t out_stride, int64_t out_distance,
                     const __mmask16* stored) {
  const QuantLayout layout(kType, 0, 0);
  const int64_t group_bytes = layout.group_bytes(), block_bytes = layout.block_bytes();
  __m512 total[kX][kW];
  for (auto& row : total) {
    for (auto& t : row) t = _mm512_setzero_ps();
  }
  const uint8_t* block = from.w;
  for (int64_t g = 0; g < from.groups; ++g) {
    const int64_t half = g % 2;
    __m512i sum[kX][kW];
    for (int a = 0; a < kX; ++a) {
      for (int b = 0; b < kW; ++b) sum[a][b] = _mm512_set1_epi32(from.x_offsets[a * from.groups + g]);
    }
    multiply_group<kType, kX, kW>(from.x + g * kQuantGroup, from.columns,
                                  block + layout.scale_bytes() + half * group_bytes, from.distance, sum);
    for (int b = 0; b < kW; ++b) {
      const auto* bits = reinterpret_cast<const __m256i*>(block + b * from.distance + half * kQuantRows * 2);
      constexpr __mmask16 kAll = 0xffff;
      const __m512i wide = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_loadu_si256(bits));
      const __m512 scale = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, wide, 16));
      for (int a = 0; a < kX; ++a) {
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(from.x_scales[a * from.groups + g]));
        const __m512 integers = _mm512_maskz_cvtepi32_ps(kAll, sum[a][b]);
        total[a][b] = _mm512_fmadd_ps(integers, both, total[a][b]);
      }
    }
    block += half * block_bytes;
  }
  for (int a = 0; a < kX; ++a) {
    for (int b = 0; b < kW; ++b) {
      _mm512_mask_storeu_ps(out + a * out_stride + b * out_distance, stored[b], total[a][b]);
    }
  }
}

template <DType kType>
void dot_task(const QuantTask& task) {
  const QuantLayout layout(task.w);
  const int64_t groups = task.x.groups();
  const Operands from{task.x.values + task.first_row * task.x.columns(),
                      task.x.scales + task.first_row * groups,
                      task.x.offsets + task.first_row * groups,
                      task.x.columns(),
                      groups,
                      static_cast<const uint8_t*>(task.w.data) + task.first_tile * layout.tile_bytes(),
                      task.tile_distance * layout.tile_bytes()};
  __mmask16 stored[kMaxQuantTiles];
  for (int64_t b = 0; b < task.tiles; ++b) {
    const int64_t rest = task.w.rows - (task.first_tile + b * task.tile_distance) * kQuantRows;
    stored[b] = static_cast<__mmask16>((1U << std::min(rest, kQuantRows)) - 1);
  }
  float* out = task.out.f32(task.first_row) + task.first_tile * kQuantRows;
  const int64_t distance = task.tile_distance * kQuantRows;
  const auto multiply = [&]<int kW>(std::integral_constant<int, kW>) {
    constexpr int kMostRows = kW <= 2 ? kMaxQuantRows : kFewQuantRows;  // that fit the registers
    with_count<kMostRows>(
        task.rows, [&](auto rows) { dot<kType, rows, kW>(from, out, task.out.stride, distance, stored); });
  };
  task.tiles == 4   ? multiply(std::integral_constant<int, 4>())
  : task.tiles == 2 ? multiply(std::integral_constant<int, 2>())
                    : multiply(std::integral_constant<int, 1>());
}

}  // namespace

void quant_dot_vnni(const QuantTask& task) {
  task.w.dtype == DType::kQ8 ? dot_task<DType::kQ8>(task) : dot_task<DType::kQ4>(task);
}

LARIAT_VNNI double vnni_multiply_adds(int64_t repetitions, float* sink) {
  constexpr int kSums = 12;
  __m512i sum[kSums];
  for (auto& s : sum) s = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi8(1);
  for (int64_t t = 0; t < repetitions; ++t) {
    for (auto& s : sum) s = _mm512_dpbusd_epi32(s, x, x);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
  int32_t lanes[kQuantRows];
  _mm512_storeu_si512(lanes, sum[0]);
  *sink = static_cast<float>(lanes[0]);
  return 2.0 * kSums * 64 * static_cast<double>(repetitions);
}

}  // namespace lariat::cpu

#endif
