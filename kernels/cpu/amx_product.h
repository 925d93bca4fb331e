#pragma once
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/cpu/amx_pack.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/glu.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/integers.h"
#include "kernels/quant.h"

// Matrix product for many rows of x on tile registers (TDPBF16PS): rows of x, rounded to bf16, times rows of
// w, in pairs of values (Matrix::tiled). The summation order does not depend on the number of rows of x.
//
// Quantized weights are dequantized to bf16, a panel at a time: a relative error of up to 2^-9 for x and for
// w. Integer products round x to 1/254 of the largest of 32.
//
// Throughput on two cores of an Emerald Rapids, which multiply 4.8 to 5.6 TFLOP/s in registers:
// - 2 x 2 tiles of sums take 64 cycles and 4 KiB of operands per 32 columns. Operands in L1 and L2 allow 5.2
// TFLOP/s, both in L2 4, and one further away 1 to 2. A panel of 32 rows of w by 256 columns (16 KiB)
// therefore stays in L1; 512 rows of x (256 KiB) stream from L2.
// - The sums, 512 KiB, stay in L2 between blocks of columns, then bypass the caches (10 to 30 % faster).
// - Prefetching the next panel gains 5 to 15 %, the next columns of x 3 to 10 %.
namespace lariat::cpu {

constexpr int64_t kAmxBlock = 2 * kTileRows;  // rows of w and of x
constexpr int64_t kAmxBlockBytes = 4 * kTileBytes;
constexpr int64_t kAmxColumns = 8 * kTileColumns;  // per block of columns
constexpr int64_t kAmxRows = 512;                  // most rows of x at a time
constexpr int64_t kAmxTaskRows = 256;              // most rows of w per task
constexpr int64_t kStepBytes = 2 * kTileBytes;     // 32 rows and columns
constexpr int64_t kAmxPanelBytes = kAmxBlock * kAmxColumns * 2;

struct AmxAhead {
  const char *w = nullptr, *x = nullptr;
  int64_t w_lines = 0, w_step = 0, x_lines = 0, x_step = 0;  // in total and per step
};

template <class Tiles>
void fetch_lines(const char* from, int64_t first, int64_t last) {
  for (int64_t l = first; l < last; ++l) Tiles::fetch(from + l * 64);
}
template <class Tiles>
void fetch_step(const AmxAhead& ahead, int64_t step) {
  fetch_lines<Tiles>(ahead.w, step * ahead.w_step, std::min((step + 1) * ahead.w_step, ahead.w_lines));
  fetch_lines<Tiles>(ahead.x, step * ahead.x_step, std::min((step + 1) * ahead.x_step, ahead.x_lines));
}

// sums (2 x 2 tiles: x, w) += a block of 32 rows of x times a panel of 32 rows of w, both packed as [step of
// columns][2 tiles]. The sums stay in tiles 0 to 3. The previous block's sums go to `before`, each just
// before the first product into its tile: four stores in a row would stall (8 % of a prefill).
template <class Tiles, class Beside>
void multiply_amx_block(const char* x, const char* w, int64_t steps, bool first, char* sums, char* before,
                        const Beside& beside) {
  const auto exchange = [&]<int kTile>(std::integral_constant<int, kTile>) {
    Tiles::template store<kTile>(before + kTile * kTileBytes, 64);
    if (first) {
      Tiles::template zero<kTile>();
    } else {
      Tiles::template load<kTile>(sums + kTile * kTileBytes, 64);
    }
  };
  for (int64_t t = 0; t < steps; ++t, x += kStepBytes, w += kStepBytes) {
    const bool begins = t == 0;
    Tiles::template load<4>(x, 64);
    Tiles::template load<6>(w, 64);
    if (begins) exchange(std::integral_constant<int, 0>());
    Tiles::template dot<0, 4, 6>();
    Tiles::template load<7>(w + kTileBytes, 64);
    if (begins) exchange(std::integral_constant<int, 1>());
    Tiles::template dot<1, 4, 7>();
    Tiles::template load<5>(x + kTileBytes, 64);
    if (begins) exchange(std::integral_constant<int, 2>());
    Tiles::template dot<2, 5, 6>();
    if (begins) exchange(std::integral_constant<int, 3>());
    Tiles::template dot<3, 5, 7>();
    beside(t);
  }
}

// Partition of the products of one x. No sum depends on the partition.
struct AmxCut {
  int64_t k, x_rows, w_rows;  // x_rows: at a time; w_rows: most per task
  int64_t matrices;           // per product: 2 for a gated unit

  AmxCut(const Matrix& x, std::span<const Product> products, int threads)
      : k(x.cols), matrices(products[0].up ? 2 : 1) {
    x_rows = round_up(ceil_div(x.rows, ceil_div(x.rows, kAmxRows)), kAmxBlock);
    const int64_t all = outputs_of(products);
    const int64_t tasks = round_up<int64_t>(ceil_div(matrices * all, kAmxTaskRows), threads);
    w_rows = round_up(ceil_div(all, tasks), kAmxBlock);
  }

  int64_t tasks(const Product& product) const { return ceil_div(product.w.rows, w_rows); }

  int64_t column_blocks() const { return ceil_div(k, kAmxColumns); }
  int64_t columns(int64_t block) const { return std::min(kAmxColumns, k - block * kAmxColumns); }
  int64_t tiles(int64_t block) const { return ceil_div(columns(block), kTileColumns); }

  // Bytes of packed x; of a thread's sums; of these sums, two panels of w and a dummy block.
  int64_t packed_bytes() const { return round_up(k, kTileColumns) * x_rows * 2; }
  int64_t sums_bytes() const { return matrices * w_rows * x_rows * 4; }
  int64_t thread_bytes() const { return 2 * kAmxPanelBytes + sums_bytes() + kAmxBlockBytes; }
};

// One product of at most cut.x_rows rows of x. scratch: cut.packed_bytes(), shared by all products, then
// cut.thread_bytes() per thread; aligned to 64 bytes.
template <class Tiles>
class AmxProduct {
 public:
  AmxProduct(const AmxCut& cut, const Matrix& x, const Product& product, char* scratch)
      : cut_(cut),
        x_(x),
        product_(product),
        of_blocks_{QuantBlock(product.w), QuantBlock(product.up ? product.up : product.w)},
        scratch_(scratch),
        x_blocks_(ceil_div(x.rows, kAmxBlock)) {}

  // All pack tasks first, then all multiply tasks, on any thread.
  int64_t pack_tasks() const { return x_blocks_ * cut_.column_blocks(); }

  // Missing rows of the last block stay uninitialised; their sums are never stored.
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

  void multiply(int64_t task, int thread) const {
    const int64_t first = task * cut_.w_rows, count = std::min(cut_.w_rows, product_.w.rows - first);
    const int64_t panels = cut_.matrices * ceil_div(count, kAmxBlock), n = panels * cut_.column_blocks();
    char* panel = scratch_ + cut_.packed_bytes() + thread * cut_.thread_bytes();
    char* next = panel + kAmxPanelBytes;
    char* const sums = next + kAmxPanelBytes;
    const auto panel_at = [&](int64_t i) {
      if (i >= n) return Panel();
      const int64_t block = i / panels, index = i % panels, row = index / cut_.matrices * kAmxBlock;
      return Panel{block, first + row, std::min(kAmxBlock, count - row), 2 * cut_.tiles(block),
                   index, panels};
    };
    Tiles::configure(full_tiles());
    Sums before{sums + cut_.sums_bytes(), {}};
    for (int64_t tile = 0; !product_.w.tiled && tile < panel_at(0).tiles; ++tile)
      make_tile(panel_at(0), tile, panel);
    for (int64_t i = 0; i < n; ++i, std::swap(panel, next)) {
      multiply_panel(panel_at(i), panel_at(i + 1), panel, next,
                     sums + i % panels * x_blocks_ * kAmxBlockBytes, before);
    }
    Tiles::template store<0>(before.at, 64);
    Tiles::template store<1>(before.at + kTileBytes, 64);
    Tiles::template store<2>(before.at + 2 * kTileBytes, 64);
    Tiles::template store<3>(before.at + 3 * kTileBytes, 64);
    store(before);
    Tiles::release();
    store_fence();
    add_bias(product_.bias, first, product_.out.column_range(first, count));
  }

 private:
  struct Panel {
    int64_t block = 0, row = 0, rows = 0, tiles = 0;  // tiles: 16 rows each, over all columns
    int64_t index = 0, count = 0;  // in the task, per block of columns; gate and up in turn
  };
  // Address of a block's sums, and their part of out once complete; of up, after gate's.
  struct Sums {
    char* at;
    Matrix out;
  };
  const Matrix& w_of(const Panel& panel) const {
    return panel.index % cut_.matrices == 0 ? product_.w : product_.up;
  }

  // Multiplies a panel by all blocks of x; prefetches or dequantizes the next panel.
  void multiply_panel(const Panel& now, const Panel& after, const char* panel, char* next, char* sums,
                      Sums& before) const {
    const bool tiled = product_.w.tiled;
    const int64_t make_step = tiled ? 0 : ceil_div(after.tiles, x_blocks_);
    if (tiled) panel = tiled_w(now);
    for (int64_t x = 0; x < x_blocks_; ++x, sums += kAmxBlockBytes) {
      for (int64_t t = x * make_step; t < std::min(after.tiles, (x + 1) * make_step); ++t) {
        make_tile(after, t, next);
      }
      const AmxAhead ahead = ahead_of(now, after, x);
      const int64_t steps = now.tiles / 2;
      const auto multiply = [&](const auto& beside) {
        multiply_amx_block<Tiles>(packed_x(now.block, x), panel, steps, now.block == 0, sums, before.at,
                                  beside);
      };
      // Usual block: constant line counts are 15 to 20 % faster.
      if (ahead.w_lines == 2 * steps && ahead.x_lines == 4 * steps) {
        multiply([&](int64_t t) {
          const char *w_lines = ahead.w + t * 2 * 64, *x_lines = ahead.x + t * 4 * 64;
          Tiles::fetch(w_lines);
          Tiles::fetch(w_lines + 64);
          Tiles::fetch(x_lines);
          Tiles::fetch(x_lines + 64);
          Tiles::fetch(x_lines + 128);
          Tiles::fetch(x_lines + 192);
        });
      } else {
        multiply([&](int64_t t) { fetch_step<Tiles>(ahead, t); });
      }
      store(before);
      before = {sums, {}};
      if (now.block + 1 < cut_.column_blocks() || now.index % cut_.matrices + 1 < cut_.matrices) continue;
      const Matrix rows = product_.out.row_range(x * kAmxBlock, std::min(kAmxBlock, x_.rows - x * kAmxBlock));
      before.out = rows.column_range(now.row, now.rows);
    }
  }

  void store(const Sums& sums) const {
    if (product_.up && sums.out) {
      auto* const up = reinterpret_cast<float*>(sums.at);
      const float* gate = up - x_blocks_ * kAmxBlockBytes / 4;
      glu_values(gate, up, kAmxBlockBytes / 4, product_.activation, up);
    }
    store_tiles(sums.at, sums.out);
  }

  AmxAhead ahead_of(const Panel& now, const Panel& after, int64_t x) const {
    const int64_t steps = now.tiles / 2;
    const auto share = [steps](int64_t lines, int64_t index, int64_t shares, int64_t& step, int64_t& count) {
      step = ceil_div(lines, shares * steps);
      const int64_t first = std::min(lines, index * step * steps);
      count = std::min(lines - first, step * steps);
      return first * 64;
    };
    AmxAhead ahead;
    if (now.block + 1 < cut_.column_blocks()) {
      const int64_t lines = x_blocks_ * cut_.tiles(now.block + 1) * (kStepBytes / 64);
      ahead.x = packed_x(now.block + 1, 0) +
                share(lines, now.index * x_blocks_ + x, now.count * x_blocks_, ahead.x_step, ahead.x_lines);
    }
    // The hardware prefetcher handles 16 quantized rows.
    if (product_.w.tiled && after.tiles > 0) {
      ahead.w =
          tiled_w(after) + share(after.tiles * (kTileBytes / 64), x, x_blocks_, ahead.w_step, ahead.w_lines);
    }
    return ahead;
  }

  const char* tiled_w(const Panel& panel) const {
    const Matrix& w = w_of(panel);
    return static_cast<const char*>(w.data) + panel.row * round_up(w.cols, kTiledBlock) * 2 +
           panel.block * kAmxColumns / kTileColumns * kStepBytes;
  }

  // Packed x: [block of columns][block of 32 rows][tile of columns][2 tiles].
  char* packed_x(int64_t block, int64_t x_block) const {
    const int64_t tiles = block * x_blocks_ * kAmxColumns / kTileColumns + x_block * cut_.tiles(block);
    return scratch_ + tiles * kStepBytes;
  }

  // Dequantizes a tile of a panel, [tile of columns][2 tiles] of [pair of columns][row]; missing rows are
  // zero.
  void make_tile(const Panel& panel, int64_t tile, char* to) const {
    static_assert(kTileRows == kQuantRows && kTileColumns == kQuantGroup);
    const int64_t row = panel.row + tile % 2 * kTileRows,
                  column = panel.block * kAmxColumns + tile / 2 * kTileColumns;
    to += tile * kTileBytes;
    if (row >= panel.row + panel.rows) return static_cast<void>(std::memset(to, 0, kTileBytes));
    const Matrix& w = w_of(panel);
    const QuantLayout layout(w);
    const auto* block = static_cast<const uint8_t*>(w.data) + row / kQuantRows * layout.tile_bytes() +
                        column / layout.block() * layout.block_bytes();
    const QuantBlock& of_block = of_blocks_[panel.index % cut_.matrices];
    dequantize_tile(of_block, block, column % layout.block() / kQuantGroup, to);
  }

  const AmxCut cut_;
  const Matrix x_;
  const Product product_;
  const QuantBlock of_blocks_[2];  // of quantized w and up
  char* scratch_;
  int64_t x_blocks_;
};

// Output columns of panels [first, last) of a tiled w for at most kTileRows bf16 rows of x from
// rounded_rows(). Bitwise identical to the product of many rows.
template <class Tiles>
void multiply_few_rows(const Matrix& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last) {
  constexpr int64_t kAhead = kTileBytes;
  TileConfig config = full_tiles();
  for (const int tile : {0, 1, 4}) config.rows[tile] = static_cast<uint8_t>(x.rows);
  Tiles::configure(config);
  const int64_t steps = ceil_div(w.cols, kTileColumns);
  const char* at = static_cast<const char*>(w.data) + first * steps * kStepBytes;
  for (int64_t panel = first; panel < last; ++panel) {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    for (int64_t t = 0; t < steps; ++t, at += kStepBytes) {
      Tiles::template load<4>(static_cast<const char*>(x.data) + t * kTileColumns * 2, x.stride * 2);
      for (int64_t line = 0; line < kStepBytes; line += 64) Tiles::fetch_near(at + kAhead + line);
      Tiles::template load<5>(at, 64);
      Tiles::template dot<0, 4, 5>();
      Tiles::template load<6>(at + kTileBytes, 64);
      Tiles::template dot<1, 4, 6>();
    }
    const Matrix to = out.column_range(panel * kAmxBlock, std::min(kAmxBlock, w.rows - panel * kAmxBlock));
    alignas(64) float part[kTileRows * kAmxBlock];
    const bool whole = to.cols == kAmxBlock;
    float* const sums = whole ? to.f32() : part;
    const int64_t stride = (whole ? to.stride : kAmxBlock) * 4;
    Tiles::template store<0>(sums, stride);
    Tiles::template store<1>(sums + kTileRows, stride);
    for (int64_t r = 0; !whole && r < to.rows; ++r) std::copy_n(part + r * kAmxBlock, to.cols, to.f32(r));
  }
  Tiles::release();
}

inline size_t amx_scratch_bytes(const Matrix& x, std::span<const Product> products, int threads) {
  const AmxCut cut(x, products, threads);
  return static_cast<size_t>(cut.packed_bytes() + threads * cut.thread_bytes());
}

// gemm() on AMX. Subnormals become zero; sums with an infinity may be NaN. for_each(count, body) calls
// body(task, thread) for each task in [0, count), thread < threads, and waits for all.
template <class Tiles, class ForEach>
void amx_product(const Matrix& x, std::span<const Product> products, void* scratch, int threads,
                 const ForEach& for_each) {
  const AmxCut cut(x, products, threads);
  const auto tasks = [&](const Product& product) { return cut.tasks(product); };
  for (int64_t top = 0; top < x.rows; top += cut.x_rows) {
    const int64_t rows = std::min(cut.x_rows, x.rows - top);
    const auto part_of = [&](const Product& product) {
      return AmxProduct<Tiles>(
          cut, x.row_range(top, rows),
          {product.w, product.bias, product.out.row_range(top, rows), product.up, product.activation},
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
