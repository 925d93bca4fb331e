#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"

namespace lariat {

void CpuBackend::rope_table(int64_t first_position, std::span<const double> inv_freq,
                            const RopeTable& table) {
  const int64_t n = table.cos.rows;
  if (n == 0 || inv_freq.empty()) return;
  angles_.prepare(inv_freq, first_position, n);
  const auto work_size = RopeAngles::kWork * static_cast<int64_t>(inv_freq.size());
  auto* work = static_cast<double*>(
      grown(*this, scratch_, static_cast<size_t>(threads_ * work_size) * sizeof(double)));
  for_ranges(threads_, n, row_grain(table.cos.cols), [&](int64_t first, int64_t last) {
    angles_.fill(first_position + first, table.cos.row_range(first, last - first),
                 table.sin.row_range(first, last - first), work + omp_get_thread_num() * work_size);
  });
}

}  // namespace lariat
