#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/parallel.h"
#include "models/io/json_fields.h"
#include "models/load/weights.h"

namespace lariat {
namespace {

int64_t count_not_finite(const HostWeight& rows) {
  std::atomic<int64_t> count = 0;
  for_ranges(cores(), rows.m.rows, 16, [&](int64_t first, int64_t last) {
    std::vector<float> values(static_cast<size_t>(rows.m.cols));
    for (int64_t row = first; row < last; ++row) {
      read_floats(rows, row, Matrix(values.data(), DType::kF32, 1, rows.m.cols));
      count += std::ranges::count_if(values, [](float value) { return !std::isfinite(value); });
    }
  });
  return count;
}

}  // namespace

std::optional<NotFinite> find_not_finite(const Tensors& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.all()) {
    if (name.ends_with(".attention.masked_bias")) continue;  // old GPT-NeoX files: -inf in f16, unused
    if (!tensor.reader && !has_name("F32 F16 BF16", tensor.dtype)) continue;
    const Matrix all = tensor.rows().m;
    // File elements may be unaligned: rows are copied.
    const int64_t found = count_not_finite(rows_of(tensor, all.rows, [](int64_t row) { return row; }));
    if (found > 0) return NotFinite{name, tensor.file, found, all.rows * all.cols};
  }
  return std::nullopt;
}

}  // namespace lariat
