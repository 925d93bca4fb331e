#include "kernels/cpu/quant_matmul.h"

#include <algorithm>

#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/integers.h"
#include "kernels/parallel.h"

namespace lariat::cpu {
namespace {

// Rows of x at a time bound the quantized copy.
constexpr int64_t kRowsAtATime = 1024;
// Bytes of w that stay in L2 while the rows of x stream.
constexpr int64_t kBlockBytes = 320 << 10;

// widened: memory for tiles of Grouping::bits, widened_bytes().
class TileProduct {
 public:
  TileProduct(const QuantRows& x, const Matrix& w, const Matrix& out, char* widened)
      : x_(x), w_(w), out_(out), widened_(widened) {}

  // Few rows: four distant runs of tiles, each one long stream (gemv.h).
  void stream(int64_t first, int64_t last) const {
    const int64_t run = (last - first) / kMaxQuantTiles;
    for (int64_t tile = first; tile < first + run; ++tile) dot(0, x_.rows, tile, run, kMaxQuantTiles);
    for (int64_t tile = first + run * kMaxQuantTiles; tile < last; ++tile) dot(0, x_.rows, tile, 1, 1);
  }

  // Many rows: the tiles stay in L2.
  void block(int64_t first, int64_t last) const {
    if (w_.grouping.bits > 0) {
      const int64_t row = first * kQuantRows, rows = std::min(w_.rows, last * kQuantRows) - row;
      const Matrix wide(widened_, w_.format().widened(), rows, w_.cols), out = out_.column_range(row, rows);
      widen_tiles(w_, first, wide);
      return TileProduct(x_, wide, out, nullptr).block(0, last - first);
    }
    for (int64_t row = 0; row < x_.rows; row += kMaxQuantRows) {
      const int64_t rows = std::min(kMaxQuantRows, x_.rows - row);
      int64_t tile = first;
      for (; tile + 2 <= last; tile += 2) dot(row, rows, tile, 1, 2);
      for (; tile < last; ++tile) dot(row, rows, tile, 1, 1);
    }
  }

 private:
  void dot(int64_t row, int64_t rows, int64_t tile, int64_t distance, int64_t tiles) const {
    const QuantTask task{x_, row, rows, w_, tile, distance, tiles, out_};
    x_.floats           ? quant_dot_floats(task)
    : has_avx512_vnni() ? quant_dot_vnni(task)
    : has_avx2()        ? quant_dot_avx2(task)
                        : quant_dot(task);
  }

  const QuantRows& x_;
  const Matrix& w_;
  const Matrix& out_;
  char* widened_;
};

int64_t tiles_of(const Product& product) { return QuantLayout(product.w).tiles(); }
int64_t groups_of(const Matrix& w) { return QuantLayout(w).groups(); }

template <class T>
T most_of(std::span<const Product> products, T (*what)(const Matrix& w)) {
  T most = 0;
  for (const Product& product : products) most = std::max(most, what(product.w));
  return most;
}

int64_t wide_tile_bytes(const Matrix& w) {
  return QuantLayout(w.format().widened(), w.rows, w.cols).tile_bytes();
}

int64_t tiles_in_cache(int64_t tile_bytes) { return std::max<int64_t>(2, kBlockBytes / tile_bytes / 2 * 2); }

int64_t tiles_per_block(int64_t tile_bytes, int64_t tiles, int threads) {
  return std::clamp<int64_t>(ceil_div<int64_t>(tiles, threads), 1, tiles_in_cache(tile_bytes));
}

// Whether few rows read a weight as one long stream.
bool streams(const Matrix& w, int64_t rows) {
  return rows <= kFewQuantRows && (w.grouping.bits == 0 || reads_planes(w));
}

}  // namespace

bool reads_planes(const Matrix& w) {
  const QuantBlock block(w);
  return (has_avx512_vnni() || has_avx2()) && unpacks(block.bits, block.halves, block.scales);
}

size_t widened_bytes(const Matrix& w) {
  if (w.grouping.bits == 0) return 0;
  return static_cast<size_t>(tiles_in_cache(wide_tile_bytes(w)) * wide_tile_bytes(w));
}

size_t quant_matmul_scratch_bytes(const Matrix& x, std::span<const Product> products, int bits, int threads) {
  return static_cast<size_t>(threads) * most_of(products, widened_bytes) +
         QuantRows::bytes(std::min(x.rows, kRowsAtATime), most_of(products, groups_of),
                          parts_for(products[0].w.grouping.code, bits));
}

void quant_tiles(const QuantRows& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last,
                 char* widened) {
  const TileProduct product(x, w, out, widened);
  if (streams(w, x.rows)) return product.stream(first, last);
  const int64_t step = tiles_per_block(wide_tile_bytes(w), QuantLayout(w).tiles(), 1);
  for (; first < last; first += step) product.block(first, std::min(first + step, last));
}

void quant_matmul(const Matrix& x, std::span<const Product> products, int bits, void* scratch, int threads) {
  const int64_t tiles = units_of(products, tiles_of), groups = most_of(products, groups_of);
  const size_t widened = most_of(products, widened_bytes);
  auto* const memory = static_cast<char*>(scratch);
  for (int64_t top = 0; top < x.rows; top += kRowsAtATime) {
    const int64_t rows = std::min(kRowsAtATime, x.rows - top);
    const Matrix some_x = x.row_range(top, rows);
    const QuantRows quantized(memory + static_cast<size_t>(threads) * widened, rows, groups,
                              parts_for(products[0].w.grouping.code, bits));
    for_ranges(threads, rows, row_grain(x.cols),
               [&](int64_t first, int64_t last) { quantize_rows(some_x, quantized, first, last); });
    const bool few =
        std::ranges::all_of(products, [&](const Product& p) { return streams(p.w, quantized.rows); });
    const auto multiply = [&](const Product& product, int64_t first, int64_t last, int thread) {
      const Matrix out = product.out.row_range(top, rows);
      const TileProduct of_tiles(quantized, product.w, out, memory + static_cast<size_t>(thread) * widened);
      few ? of_tiles.stream(first, last) : of_tiles.block(first, last);
      const int64_t from = first * kQuantRows, to = std::min(last * kQuantRows, out.cols);
      add_bias(product.bias, from, out.column_range(from, to - from));
    };
    const int team = team_for(quantized.rows * tiles * kQuantRows * quantized.columns(), 1 << 18, threads);
    if (few) {
      for_ranges(team, tiles, 1, [&](int64_t first, int64_t last) {
        for_products(products, first, last, tiles_of, [&](const Product& product, int64_t from, int64_t to) {
          multiply(product, from, to, 0);
        });
      });
      continue;
    }
    const int64_t step = tiles_per_block(most_of(products, wide_tile_bytes), tiles, team);
    for_tasks(team, ceil_div(tiles, step), [&](int64_t task, int thread) {
      for_products(
          products, task * step, (task + 1) * step, tiles_of,
          [&](const Product& product, int64_t from, int64_t to) { multiply(product, from, to, thread); });
    });
  }
}

}  // namespace lariat::cpu
