#include "kernels/cpu/lay_out_rows.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/amx_pack.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/quant_matmul.h"
#include "kernels/parallel.h"
#include "kernels/quant.h"
#include "kernels/search_quant.h"

namespace lariat::cpu {
namespace {

void quantize_floats(const Matrix& from, const Matrix& to, int64_t first, int64_t last) {
  to.grouping.plain() ? quantize_tiles(from, to, first, last)
                      : lay_out_tiles(searched(from, to.format()), 0, to, first, last, put_codes);
}

// Tiles [first, last) of `to` from a reader of another format, via floats.
void quantize_rows(const HostWeight& from, int64_t first_row, const Matrix& to, int64_t first, int64_t last) {
  const QuantLayout layout(to);
  std::vector<float> made(static_cast<size_t>(kQuantRows * to.cols));
  for (int64_t tile = first; tile < last; ++tile) {
    const int64_t row = tile * kQuantRows, count = std::min(kQuantRows, to.rows - row);
    const Matrix floats(made.data(), DType::kF32, count, to.cols);
    read_floats(from, first_row + row, floats);
    quantize_floats(floats,
                    {static_cast<char*>(to.data) + tile * layout.tile_bytes(), to.format(), count, to.cols},
                    0, 1);
  }
}

void pack_panels(const HostWeight& from, int64_t first_row, const Matrix& to, int64_t first, int64_t last) {
  const bool reads = static_cast<bool>(from.read_row), converts = reads || from.m.dtype != DType::kBF16;
  std::vector<uint16_t> made(static_cast<size_t>(converts ? kTiledBlock * to.cols : 0));
  const int64_t panel_bytes = kTiledBlock * round_up(to.cols, kTiledBlock) * 2;
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t row = first_row + panel * kTiledBlock,
                  count = std::min(kTiledBlock, first_row + to.rows - row);
    Matrix rows(made.data(), DType::kBF16, count, to.cols);
    if (reads) {
      read_floats(from, row, rows);
    } else if (converts) {
      convert_rows(from.m.row_range(row, count), rows);
    } else {
      rows = from.m.row_range(row, count);
    }
    pack_panel(rows, static_cast<char*>(to.data) + panel * panel_bytes);
  }
}

}  // namespace

void lay_out_rows(const HostWeight& from, int64_t first_row, const Matrix& to, int threads) {
  const bool reads = static_cast<bool>(from.read_row);
  if (to.tiled) {
    return for_ranges(threads, ceil_div(to.rows, kTiledBlock), 1,
                      [&](int64_t first, int64_t last) { pack_panels(from, first_row, to, first, last); });
  }
  if (!is_quantized(to.dtype)) {
    return for_ranges(threads, to.rows, 1, [&](int64_t first, int64_t last) {
      const Matrix some = to.row_range(first, last - first);
      reads ? read_floats(from, first_row + first, some)
            : convert_rows(from.m.row_range(first_row + first, some.rows), some);
    });
  }
  for_ranges(threads, QuantLayout(to).tiles(), 1, [&](int64_t first, int64_t last) {
    if (!reads) return quantize_floats(from.m.row_range(first_row, to.rows), to, first, last);
    copies_codes(from, to) ? lay_out_tiles(from, first_row, to, first, last, put_codes)
                           : quantize_rows(from, first_row, to, first, last);
  });
}

}  // namespace lariat::cpu
