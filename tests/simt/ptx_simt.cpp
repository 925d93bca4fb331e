#include "kernels/cuda/ptx.cuh"
#include "tests/simt/checked.h"

namespace lariat::cuda::detail {

void simt_ldmatrix_x4(uint32_t* r, const void* shared_row, bool transposed) {
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

}  // namespace lariat::cuda::detail
