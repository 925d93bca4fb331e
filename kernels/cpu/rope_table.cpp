#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rope_angles.h"

namespace lariat {

void CpuBackend::rope_table(int64_t first_position, std::span<const double> inv_freq,
                            const RopeTable& table) {
  const int64_t n = table.cos.rows;
  if (n == 0 || inv_freq.empty()) return;
  const RopeAngles angles(inv_freq, first_position, n);
  for_ranges(threads_, n, row_grain(table.cos.cols), [&](int64_t first, int64_t last) {
    angles.fill(first_position + first, table.cos.row_range(first, last - first),
                table.sin.row_range(first, last - first));
  });
}

}  // namespace lariat
