#pragma once
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/cpu/amx_pack.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/integers.h"
#include "kernels/quant.h"

// The product of matrices for many rows of x on tile registers (TDPBF16PS). Rows of x are the rows of a
// tile's left operand: rounded to bf16, they lie there as they come. Rows of w are the columns of its right
// operand, which wants pairs of values, so that w, in bf16, is transposed by words of 32 bits. A tile of sums
// is a piece of out.
//
// Quantised weights are rounded to bf16 from what they stand for, a panel at a time: a product is off
// by up to 2^-9 (x) and 2^-9 (w) of itself, where the product of integers rounds x to 1/254 of the largest
// of 32.
//
// The rates are of two cores of an Emerald Rapids, which multiply 4.8 to 5.6 TFLOP/s in registers.
// - 2 x 2 tiles of sums take 64 cycles for each 32 columns, and 4 KiB of operands. With one operand in the
//   first-level cache and the other in the second 5.2 TFLOP/s are possible, with both in the second 4, with
//   one of them further away 1 to 2.
// - So a panel of 32 rows of w by 256 columns (16 KiB) stays in the first level while the x of those columns,
//   512 rows (256 KiB), passes by from the second, a block of 32 rows at a time.
// - The sums of 512 rows of x by 256 of w, 512 KiB, wait in the second level from one block of columns to the
//   next. After the last they go to out past the caches (10 to 30 % faster: nothing is read to be
//   overwritten, and what the second level holds stays there).
// - While a panel is multiplied the next is transposed, a tile between two blocks of x, and the one after it
//   and the next columns of x are fetched, a few lines at each step: that costs little beside 64 cycles of
//   the tiles (left out, the one costs 5 to 15 %, the other 3 to 10).
namespace lariat::cpu {

constexpr int64_t kAmxBlock = 2 * kTileRows;  // rows of w and of x in a block of sums
constexpr int64_t kAmxBlockBytes = 4 * kTileBytes;
constexpr int64_t kAmxColumns = 8 * kTileColumns;  // in a block of columns
constexpr int64_t kAmxRows = 512;                  // of x at a time, at most
constexpr int64_t kAmxTaskRows = 256;              // of w in a task, at most
constexpr int64_t kStepBytes = 2 * kTileBytes;     // of 32 rows and columns
constexpr int64_t kAmxPanelBytes = kAmxBlock * kAmxColumns * 2;

// Memory that is fetched while a block is multiplied: at each step a line of some rows of the panel after
// next, and a few lines of the next block of columns of x.
struct AmxAhead {
  const char *w, *x;
  int64_t rows, stride, lines;  // of w: stride in bytes, lines of a row
  int64_t x_lines, x_step;      // of x, in all and at each step
};

template <class Tiles>
void fetch_step(const AmxAhead& ahead, int64_t step) {
  const int64_t rows = step < ahead.lines ? ahead.rows : 0;
  for (int64_t r = 0; r < rows; ++r) Tiles::fetch(ahead.w + r * ahead.stride + step * 64);
  const int64_t last = std::min((step + 1) * ahead.x_step, ahead.x_lines);
  for (int64_t l = step * ahead.x_step; l < last; ++l) Tiles::fetch(ahead.x + l * 64);
}

// sums (four tiles: x tile, w tile) += a block of 32 rows of x times a panel of 32 rows of w; both packed as
// [tile of columns][2 tiles].
template <class Tiles>
void multiply_amx_block(const char* x, const char* w, int64_t tiles, bool first, char* sums,
                        const AmxAhead& ahead) {
  char* const corners[4] = {sums, sums + kTileBytes, sums + 2 * kTileBytes, sums + 3 * kTileBytes};
  multiply_tiles<Tiles>({x, 64, kTileBytes, kStepBytes}, {w, 64, kTileBytes, kStepBytes}, tiles, first,
                        corners, 64, [&](int64_t t) { fetch_step<Tiles>(ahead, t); });
}

// How products of one x are cut. No sum depends on it.
struct AmxCut {
  int64_t k, x_rows, w_rows;  // x_rows: at a time; w_rows: in a task, at most

  AmxCut(const Matrix& x, std::span<const Product> products, int threads) : k(x.cols) {
    x_rows = round_up(ceil_div(x.rows, ceil_div(x.rows, kAmxRows)), kAmxBlock);
    const int64_t all = units_of(products, [](const Product& product) { return product.w.rows; });
    const int64_t tasks = round_up<int64_t>(ceil_div(all, kAmxTaskRows), threads);
    w_rows = round_up(ceil_div(all, tasks), kAmxBlock);
  }

  // Tasks of multiplying, in a product.
  int64_t tasks(const Product& product) const { return ceil_div(product.w.rows, w_rows); }

  int64_t column_blocks() const { return ceil_div(k, kAmxColumns); }
  int64_t columns(int64_t block) const { return std::min(kAmxColumns, k - block * kAmxColumns); }
  int64_t tiles(int64_t block) const { return ceil_div(columns(block), kTileColumns); }

  // Bytes for x_rows rows of x; for a thread's two panels of w and its sums.
  int64_t packed_bytes() const { return round_up(k, kTileColumns) * x_rows * 2; }
  int64_t thread_bytes() const { return 2 * kAmxPanelBytes + w_rows * x_rows * 4; }
};

// One product of at most cut.x_rows rows of x, all of which share what pack() makes of x. scratch:
// cut.packed_bytes(), then cut.thread_bytes() for each thread; aligned to 64 bytes.
template <class Tiles>
class AmxProduct {
 public:
  AmxProduct(const AmxCut& cut, const Matrix& x, const Product& product, char* scratch)
      : cut_(cut),
        x_(x),
        w_(product.w),
        bias_(product.bias),
        out_(product.out),
        of_block_(product.w),
        scratch_(scratch),
        x_blocks_(ceil_div(x.rows, kAmxBlock)) {}

  // First every task of packing, then every one of multiplying (cut.tasks), in any order and by any thread.
  int64_t pack_tasks() const { return x_blocks_ * cut_.column_blocks(); }

  // Rows that are missing in the last block stay what they were: they reach rows of sums that nobody stores.
  void pack(int64_t task) const {
    const int64_t block = task % cut_.column_blocks(), x_block = task / cut_.column_blocks();
    const Matrix x = x_.column_range(block * kAmxColumns, cut_.columns(block));
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t top = x_block * kAmxBlock + half * kTileRows;
      if (top >= x.rows) break;
      pack_rows(x.row_range(top, std::min(kTileRows, x.rows - top)),
                packed_x(block, x_block) + half * kTileBytes, kStepBytes);
    }
  }

  // Rows of w from task * cut.w_rows on: panel by panel, all of them for each block of columns.
  void multiply(int64_t task, int thread) const {
    const int64_t first = task * cut_.w_rows, count = std::min(cut_.w_rows, w_.rows - first);
    const int64_t panels = ceil_div(count, kAmxBlock), n = panels * cut_.column_blocks();
    char* panel = scratch_ + cut_.packed_bytes() + thread * cut_.thread_bytes();
    char* next = panel + kAmxPanelBytes;
    char* sums = next + kAmxPanelBytes;
    const auto panel_at = [&](int64_t i) {
      if (i >= n) return Panel();
      const int64_t block = i / panels, row = i % panels * kAmxBlock;
      return Panel{block,      first + row, std::min(kAmxBlock, count - row), 2 * cut_.tiles(block),
                   i % panels, panels};
    };
    Tiles::configure(full_tiles());
    for (int64_t tile = 0; tile < panel_at(0).tiles; ++tile) pack_w(panel_at(0), tile, panel);
    for (int64_t i = 0; i < n; ++i, std::swap(panel, next)) {
      multiply_panel({panel_at(i), panel_at(i + 1), panel_at(i + 2)}, panel, next,
                     sums + i % panels * x_blocks_ * kAmxBlockBytes);
    }
    Tiles::release();
    store_fence();
    add_bias(bias_, first, out_.column_range(first, count));
  }

 private:
  struct Panel {
    int64_t block = 0, row = 0, rows = 0, tiles = 0;  // tiles: of 16 rows each, of all its columns
    int64_t index = 0, count = 0;                     // in the task, of a block of columns
  };

  // A panel against all blocks of x, while the next is packed and the one after that fetched.
  void multiply_panel(const Panel (&panels)[3], const char* panel, char* next, char* sums) const {
    const auto& [now, after, ahead] = panels;
    const int64_t pack_step = ceil_div(after.tiles, x_blocks_);
    for (int64_t x = 0; x < x_blocks_; ++x, sums += kAmxBlockBytes) {
      for (int64_t t = x * pack_step; t < std::min(after.tiles, (x + 1) * pack_step); ++t) {
        pack_w(after, t, next);
      }
      const AmxAhead fetch = fetch_ahead(now, ahead, x);
      multiply_amx_block<Tiles>(packed_x(now.block, x), panel, now.tiles / 2, now.block == 0, sums, fetch);
      if (now.block + 1 < cut_.column_blocks()) continue;
      const Matrix rows = out_.row_range(x * kAmxBlock, std::min(kAmxBlock, x_.rows - x * kAmxBlock));
      store_tiles(sums, rows.column_range(now.row, now.rows));
    }
  }

  // A share of the panel `ahead` and of the x that follows, beside block x of panel `now`.
  AmxAhead fetch_ahead(const Panel& now, const Panel& ahead, int64_t x) const {
    const int64_t step = ceil_div(kAmxBlock, x_blocks_), row = std::min(ahead.rows, x * step);
    const int64_t steps = now.tiles / 2, shares = now.count * x_blocks_;
    const bool last = now.block + 1 == cut_.column_blocks();
    const int64_t lines = last ? 0 : x_blocks_ * cut_.tiles(now.block + 1) * (kStepBytes / 64);
    const int64_t share = ceil_div(lines, shares * steps) * steps;
    const int64_t first = std::min(lines, (now.index * x_blocks_ + x) * share);
    AmxAhead fetch{};
    if (!last) fetch.x = packed_x(now.block + 1, 0) + first * 64;
    fetch.x_lines = std::min(share, lines - first);
    fetch.x_step = share / steps;
    // Quantised, 16 rows lie in one stream, which the processor fetches ahead by itself.
    if (is_quantized(w_.dtype)) return fetch;
    fetch.w = w_at(ahead.row + row, ahead.block * kAmxColumns);
    fetch.rows = std::min(ahead.rows - row, step);
    fetch.stride = w_.stride * 2;
    fetch.lines = ahead.tiles / 2 * kTileColumns * 2 / 64;
    return fetch;
  }

  // Packed x: [block of columns][block of 32 rows][tile of columns][2 tiles].
  char* packed_x(int64_t block, int64_t x_block) const {
    const int64_t tiles = block * x_blocks_ * kAmxColumns / kTileColumns + x_block * cut_.tiles(block);
    return scratch_ + tiles * kStepBytes;
  }

  // A tile of a panel of w: [tile of columns][2 tiles] of [pair of columns][row]; what is missing is zero.
  void pack_w(const Panel& panel, int64_t tile, char* to) const {
    const int64_t row = tile % 2 * kTileRows, column = tile / 2 * kTileColumns;
    const int64_t rows = std::min(kTileRows, panel.rows - row);
    const int64_t columns = std::min(kTileColumns, cut_.columns(panel.block) - column);
    to += tile * kTileBytes;
    if (is_quantized(w_.dtype)) {
      return dequantize_w(panel.row + row, panel.block * kAmxColumns + column, rows, to);
    }
    char* const from = w_at(panel.row + row, panel.block * kAmxColumns + column);
    const bool words = (reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(w_.stride * 2)) % 4 == 0;
    if (words && rows == kTileRows && columns == kTileColumns) {
      return transpose_words(from, w_.stride / 2, to);
    }
    alignas(64) char part[kTileBytes] = {};
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(part + r * 64, from + r * w_.stride * 2, static_cast<size_t>(columns) * 2);
    }
    transpose_words(part, kTileRows, to);
  }

  // Rows and columns begin where a tile and a group of quantised weights do.
  void dequantize_w(int64_t row, int64_t column, int64_t rows, char* to) const {
    static_assert(kTileRows == kQuantRows && kTileColumns == kQuantGroup);
    if (rows <= 0) return static_cast<void>(std::memset(to, 0, kTileBytes));
    const QuantLayout layout(w_);
    const auto* block = static_cast<const uint8_t*>(w_.data) + row / kQuantRows * layout.tile_bytes() +
                        column / layout.block() * layout.block_bytes();
    dequantize_tile(of_block_, block, column % layout.block() / kQuantGroup, to);
  }

  char* w_at(int64_t row, int64_t column) const {
    return static_cast<char*>(w_.data) + (row * w_.stride + column) * 2;
  }

  const AmxCut cut_;
  const Matrix x_, w_, bias_, out_;
  const QuantBlock of_block_;  // of w, where it is quantised
  char* scratch_;
  int64_t x_blocks_;
};

inline size_t amx_scratch_bytes(const Matrix& x, std::span<const Product> products, int threads) {
  const AmxCut cut(x, products, threads);
  return static_cast<size_t>(cut.packed_bytes() + threads * cut.thread_bytes());
}

// gemm(). Subnormal values are taken for zero, as the instruction has it, and what an infinity takes part in
// may be NaN.
// for_each(count, body) calls body(task, thread) for each task in [0, count), with thread < threads, and
// returns when all are done.
template <class Tiles, class ForEach>
void amx_product(const Matrix& x, std::span<const Product> products, void* scratch, int threads,
                 const ForEach& for_each) {
  const AmxCut cut(x, products, threads);
  const auto tasks = [&](const Product& product) { return cut.tasks(product); };
  for (int64_t top = 0; top < x.rows; top += cut.x_rows) {
    const int64_t rows = std::min(cut.x_rows, x.rows - top);
    const auto part_of = [&](const Product& product) {
      return AmxProduct<Tiles>(cut, x.row_range(top, rows),
                               {product.w, product.bias, product.out.row_range(top, rows)},
                               static_cast<char*>(scratch));
    };
    const AmxProduct<Tiles> any = part_of(products[0]);
    for_each(any.pack_tasks(), [&](int64_t task, int) { any.pack(task); });
    for_each(units_of(products, tasks), [&](int64_t task, int thread) {
      for_products(products, task, task + 1, tasks, [&](const Product& product, int64_t its_task, int64_t) {
        part_of(product).multiply(its_task, thread);
      });
    });
  }
}

}  // namespace lariat::cpu
