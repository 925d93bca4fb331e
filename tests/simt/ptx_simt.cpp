#include "kernels/cuda/ptx.cuh"
#include "tests/simt/checked.h"

namespace lariat::cuda {
namespace {

struct MmaOperands {
  uint32_t a[4], b[2];
};

template <class T>
float product(uint32_t a, uint32_t b, unsigned at, T) {
  return to_float(T{static_cast<uint16_t>(a >> (16 * at))}) *
         to_float(T{static_cast<uint16_t>(b >> (16 * at))});
}
int product(uint32_t a, uint32_t b, unsigned at, int8_t) {
  return static_cast<int8_t>(a >> (8 * at)) * static_cast<int8_t>(b >> (8 * at));
}

// kPerWord elements per word, along A's columns and B's rows.
template <unsigned kPerWord, class T, class Sum>
void mma(Sum (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const MmaOperands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const simt::Lanes& lanes =
      simt::exchange("mma", kFullWarp, &mine, sizeof(mine), false, simt::Where::current());
  const unsigned g = simt::lane_id() / 4, t = simt::lane_id() % 4;
  for (unsigned word = 0; word < 8; ++word) {
    const unsigned quad = word % 4, upper = word / 4;
    const auto row = lanes.get<MmaOperands>(4 * g + quad);
    for (unsigned column = 0; column < 2; ++column) {
      const auto col = lanes.get<MmaOperands>(4 * (2 * t + column) + quad);
      for (unsigned at = 0; at < kPerWord; ++at) {
        d[column] += product(row.a[2 * upper], col.b[upper], at, T{});
        d[2 + column] += product(row.a[2 * upper + 1], col.b[upper], at, T{});
      }
    }
  }
}

}  // namespace

template <class T>
void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma<2, T>(d, a, b0, b1);
}
template void mma_16x8x16<Half>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t);
template void mma_16x8x16<BFloat16>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t);

void mma_16x8x32(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma<4, int8_t>(d, a, b0, b1);
}

void detail::simt_ldmatrix_x4(uint32_t* r, const void* shared_row, bool transposed) {
  if (reinterpret_cast<uintptr_t>(shared_row) % 16 != 0) simt::fault("ldmatrix of a misaligned row");
  if (!simt::touches_shared(shared_row, 16)) simt::fault("ldmatrix outside shared memory");
  simt::check_access(shared_row, 16, simt::Access::kRead);
  uint16_t row[8];
  std::memcpy(row, shared_row, sizeof(row));
  const simt::Lanes& lanes =
      simt::exchange("ldmatrix", kFullWarp, row, sizeof(row), false, simt::Where::current());
  const unsigned g = simt::lane_id() / 4, t = simt::lane_id() % 4;
  struct Row {
    uint16_t element[8];
  };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned first = 2 * t;
    const uint16_t low =
        transposed ? lanes.get<Row>(8 * i + first).element[g] : lanes.get<Row>(8 * i + g).element[first];
    const uint16_t high = transposed ? lanes.get<Row>(8 * i + first + 1).element[g]
                                     : lanes.get<Row>(8 * i + g).element[first + 1];
    r[i] = low | uint32_t{high} << 16;
  }
}

}  // namespace lariat::cuda
