#include "kernels/cpu/quant_matmul.h"

#include <algorithm>

#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/parallel.h"
#include "kernels/integers.h"

namespace lariat::cpu {
namespace {

// Of x at a time: bounds the quantised copy.
constexpr int64_t kRowsAtATime = 1024;
// Of w that stay in one core's second-level cache while the rows of x pass by.
constexpr int64_t kBlockBytes = 320 << 10;

class Product {
 public:
  Product(const QuantRows& x, const Matrix& w, const Matrix& bias, const Matrix& out)
      : x_(x), w_(w), bias_(bias), out_(out), layout_(w) {}

  // Few rows: four distant runs of tiles side by side, each a long sequential stream (see gemv_range.h).
  void stream(int64_t first, int64_t last) const {
    const int64_t run = (last - first) / kMaxQuantTiles;
    for (int64_t tile = first; tile < first + run; ++tile) dot(0, x_.rows, tile, run, kMaxQuantTiles);
    for (int64_t tile = first + run * kMaxQuantTiles; tile < last; ++tile) dot(0, x_.rows, tile, 1, 1);
    finish(first, last);
  }

  // Many rows: the tiles stay in the second-level cache.
  void block(int64_t first, int64_t last) const {
    for (int64_t row = 0; row < x_.rows; row += kMaxQuantRows) {
      const int64_t rows = std::min(kMaxQuantRows, x_.rows - row);
      int64_t tile = first;
      for (; tile + 2 <= last; tile += 2) dot(row, rows, tile, 1, 2);
      for (; tile < last; ++tile) dot(row, rows, tile, 1, 1);
    }
    finish(first, last);
  }

  int64_t tiles_per_block(int threads) const {
    const int64_t fair = ceil_div<int64_t>(layout_.tiles(), threads);
    const int64_t fit = std::max<int64_t>(2, kBlockBytes / layout_.tile_bytes() / 2 * 2);
    return std::clamp<int64_t>(fair, 1, fit);
  }
  const QuantLayout& layout() const { return layout_; }

 private:
  void dot(int64_t row, int64_t rows, int64_t tile, int64_t distance, int64_t tiles) const {
    const QuantTask task{x_, row, rows, w_, tile, distance, tiles, out_};
    has_avx512_vnni() ? quant_dot_vnni(task) : quant_dot(task);
  }
  void finish(int64_t first, int64_t last) const {
    const int64_t from = first * kQuantRows, to = std::min(last * kQuantRows, out_.cols);
    add_bias(bias_, from, out_.column_range(from, to - from));
  }

  const QuantRows& x_;
  const Matrix& w_;
  const Matrix& bias_;
  const Matrix& out_;
  const QuantLayout layout_;
};

// Waking a thread is worth it for some 2^18 products, three microseconds of work.
int team_for(const QuantRows& x, const QuantLayout& w, int threads) {
  return static_cast<int>(std::clamp<int64_t>((x.rows * w.rows * w.cols) >> 18, 1, threads));
}

}  // namespace

size_t quant_matmul_scratch_bytes(const Matrix& x, const Matrix& w) {
  return QuantRows::bytes(std::min(x.rows, kRowsAtATime), QuantLayout(w).blocks());
}

void quant_tiles(const QuantRows& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last) {
  const Matrix no_bias;
  const Product product(x, w, no_bias, out);
  if (x.rows <= kFewQuantRows) return product.stream(first, last);
  const int64_t step = product.tiles_per_block(1);
  for (; first < last; first += step) product.block(first, std::min(first + step, last));
}

void quant_matmul(const Matrix& x, const Matrix& w, const Matrix& bias, const Matrix& out, void* scratch,
                  int threads) {
  for (int64_t top = 0; top < x.rows; top += kRowsAtATime) {
    const int64_t rows = std::min(kRowsAtATime, x.rows - top);
    const Matrix some_x = x.row_range(top, rows), some_out = out.row_range(top, rows);
    const QuantRows quantized(scratch, rows, QuantLayout(w).blocks());
    const Product product(quantized, w, bias, some_out);
    const QuantLayout& layout = product.layout();
    for_ranges(threads, rows, row_grain(x.cols), [&](int64_t first, int64_t last) {
      quantize_rows(some_x, layout.zero(), quantized, first, last);
    });
    const int team = team_for(quantized, layout, threads);
    if (rows <= kFewQuantRows) {
      for_ranges(team, layout.tiles(), 1, [&](int64_t first, int64_t last) { product.stream(first, last); });
      continue;
    }
    const int64_t step = product.tiles_per_block(team);
    for_tasks(team, ceil_div(layout.tiles(), step), [&](int64_t task, int) {
      product.block(task * step, std::min((task + 1) * step, layout.tiles()));
    });
  }
}

}  // namespace lariat::cpu
