#pragma once
#include <xmmintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/integers.h"

// The product of bf16 matrices for many rows of x on tile registers (TDPBF16PS). Rows of w are the rows of a
// tile's left operand, as they lie in memory; rows of x are the columns of its right operand, which wants
// pairs of values; a tile of sums is out^T.
//
// All figures are bytes per cycle of one core, for a core that starts a TDPBF16PS each 16 cycles, reads 55
// from a second-level cache of 2 MiB, 10 from the third level and some 6 from memory (two cores of a Sapphire
// Rapids at 2 GHz: 4.2 TFLOP/s in registers, 113 and 20 GB/s each, 26 GB/s both).
//
// - A block of 2 x 2 tiles of sums takes 64 cycles for each 32 columns, and 4 tiles of operands. 4096 / 64 =
//   64 is more than the second level gives: one operand has to come from the first.
// - So a panel of 64 rows of w by 192 columns (24 KiB, packed) stays in the first level while blocks of x
//   (32 rows, 12 KiB) pass by, each used by both halves of the panel. Between two uses of a line of w pass
//   24 KiB of w, 12 KiB of x and 8 KiB of sums: 44 of 48 KiB. From and to the second level go, per block of
//   x, those 12 KiB and 8 KiB of sums both ways, in 2 * 6 * 64 = 768 cycles: 37. With 256 columns and 32 rows
//   it would be 48; with more columns than that, w would not stay.
// - The sums of 512 rows of x by 512 rows of w, 1 MiB, wait in the second level from one block of columns to
//   the next; beside them lie that block's x (192 KiB) and the next one's. Each value of w comes from memory
//   once and is used for 512 rows: 1024 / 512 = 2. Each value of x comes from the third level for 512 rows of
//   w: 2 again.
// - Both are fetched a little at a time while the tiles multiply (FetchAhead): copying a panel of w that has
//   to be waited for takes 24 KiB / 6 = 4096 cycles, of 16 * 768 for its product.
//
// Tiles are packed: 1 KiB without gaps, so that their rows never meet in one set of a cache.
namespace lariat::cpu {

// --- one block of 2 x 2 tiles of sums, and its operands ---------------------------------------------

constexpr int64_t kAmxBlock = 2 * kTileRows;  // rows of w and of x in a block of sums
constexpr int64_t kAmxBlockBytes = 4 * kTileBytes;

// to[c][r] = from[r][c] for 16 x 16 words of 32 bits; strides in words.
inline void transpose_words(const void* from, int64_t from_stride, void* to, int64_t to_stride) {
  const auto* source = static_cast<const float*>(from);
  auto* target = static_cast<float*>(to);
  for (int64_t c = 0; c < 16; c += 4) {
    for (int64_t r = 0; r < 16; r += 4) {
      const float* s = source + r * from_stride + c;
      __m128 row[4];
      for (int i = 0; i < 4; ++i) row[i] = _mm_loadu_ps(s + i * from_stride);
      _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
      float* t = target + c * to_stride + r;
      for (int i = 0; i < 4; ++i) _mm_storeu_ps(t + i * to_stride, row[i]);
    }
  }
}

// Fetches rows of memory into the second-level cache, in equal parts.
template <class Tiles>
class FetchAhead {
 public:
  FetchAhead() = default;
  FetchAhead(const void* first, int64_t rows, int64_t bytes, int64_t stride, int64_t steps)
      : next_(static_cast<const char*>(first)),
        rows_(rows),
        bytes_(bytes),
        stride_(stride),
        step_(ceil_div(rows, steps)) {}

  void step() {
    const int64_t rows = std::min(step_, rows_);
    for (int64_t r = 0; r < rows; ++r, next_ += stride_) {
      const auto into_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(next_) % 64);
      for (int64_t b = -into_line; b < bytes_; b += 64) Tiles::fetch(next_ + b);
    }
    rows_ -= rows;
  }

 private:
  const char* next_ = nullptr;
  int64_t rows_ = 0, bytes_ = 0, stride_ = 0, step_ = 0;
};

// sums (four tiles: w tile, x tile) += a block of 32 rows of w times one of 32 rows of x; both packed as
// [tile of columns][2 tiles].
template <class Tiles>
void multiply_amx_block(const char* w, const char* x, int64_t tiles, bool first, char* sums) {
  constexpr int64_t kRow = 64;
  if (first) {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template zero<2>();
    Tiles::template zero<3>();
  } else {
    Tiles::template load<0>(sums, kRow);
    Tiles::template load<1>(sums + kTileBytes, kRow);
    Tiles::template load<2>(sums + 2 * kTileBytes, kRow);
    Tiles::template load<3>(sums + 3 * kTileBytes, kRow);
  }
  for (int64_t t = 0; t < tiles; ++t, w += 2 * kTileBytes, x += 2 * kTileBytes) {
    Tiles::template load<4>(w, kRow);
    Tiles::template load<6>(x, kRow);
    Tiles::template dot<0, 4, 6>();
    Tiles::template load<7>(x + kTileBytes, kRow);
    Tiles::template dot<1, 4, 7>();
    Tiles::template load<5>(w + kTileBytes, kRow);
    Tiles::template dot<2, 5, 6>();
    Tiles::template dot<3, 5, 7>();
  }
  Tiles::template store<0>(sums, kRow);
  Tiles::template store<1>(sums + kTileBytes, kRow);
  Tiles::template store<2>(sums + 2 * kTileBytes, kRow);
  Tiles::template store<3>(sums + 3 * kTileBytes, kRow);
}

// A block of sums -> out, which may have fewer rows and columns.
inline void store_amx_block(const char* sums, const Matrix& out) {
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t a = 0; a < 2; ++a) {
      const auto* tile = reinterpret_cast<const float*>(sums + (2 * a + b) * kTileBytes);
      const int64_t rows = std::min(kTileRows, out.rows - b * kTileRows);
      const int64_t cols = std::min(kTileRows, out.cols - a * kTileRows);
      if (rows <= 0 || cols <= 0) continue;
      float* to = out.f32(b * kTileRows) + a * kTileRows;
      if (rows == kTileRows && cols == kTileRows) {
        transpose_words(tile, kTileRows, to, out.stride);
      } else {
        store_transposed(tile, kTileRows, rows, cols, false, to, out.stride);
      }
    }
  }
}

// --- the product ------------------------------------------------------------------------------------

constexpr int64_t kAmxPanel = 2 * kAmxBlock;        // rows of w
constexpr int64_t kAmxColumns = 6 * kTileColumns;   // in a block of columns
constexpr int64_t kAmxRows = 512;                   // of x at a time, and of w in a task, at most
constexpr int64_t kAmxSmallX = int64_t{768} << 10;  // packed x of this size stays in the second level
constexpr int64_t kAmxPanelBytes = kAmxPanel * kAmxColumns * 2;

// How a product is cut. The sums depend on none of this but kAmxColumns.
struct AmxCut {
  int64_t k, x_rows, w_rows;  // w_rows: of w in a task
  bool small_x;

  AmxCut(const Matrix& x, const Matrix& w, int threads) : k(w.cols) {
    x_rows = round_up(ceil_div(x.rows, ceil_div(x.rows, kAmxRows)), kAmxBlock);
    small_x = packed_bytes() <= kAmxSmallX;
    // Without x to wait for, w is best read along its rows.
    const int64_t tasks = round_up<int64_t>(ceil_div(w.rows, small_x ? kAmxPanel : kAmxRows), threads);
    w_rows = round_up(ceil_div(w.rows, tasks), kAmxBlock);
  }

  int64_t column_blocks() const { return ceil_div(k, kAmxColumns); }
  int64_t columns(int64_t block) const { return std::min(kAmxColumns, k - block * kAmxColumns); }
  int64_t tiles(int64_t block) const { return ceil_div(columns(block), kTileColumns); }

  // Of x_rows rows of x; of a thread's panel of w and sums.
  int64_t packed_bytes() const { return round_up(k, kTileColumns) * x_rows * 2; }
  int64_t thread_bytes() const { return kAmxPanelBytes + w_rows * x_rows * 4; }
};

// One product of at most cut.x_rows rows of x. scratch: cut.packed_bytes(), then cut.thread_bytes() for each
// thread; aligned to 64 bytes.
template <class Tiles>
class AmxProduct {
 public:
  AmxProduct(const AmxCut& cut, const Matrix& x, const Matrix& w, const Matrix& bias, const Matrix& out,
             char* scratch)
      : cut_(cut),
        x_(x),
        w_(w),
        bias_(bias),
        out_(out),
        scratch_(scratch),
        x_blocks_(ceil_div(x.rows, kAmxBlock)) {}

  // First every task of packing, then every one of multiplying, in any order and by any thread.
  int64_t pack_tasks() const { return x_blocks_ * cut_.column_blocks(); }
  int64_t multiply_tasks() const { return ceil_div(w_.rows, cut_.w_rows); }

  void pack(int64_t task) const {
    const int64_t block = task / x_blocks_, first = task % x_blocks_ * kAmxBlock;
    const Matrix rows = x_.row_range(first, std::min(kAmxBlock, x_.rows - first));
    const Matrix x = rows.column_range(block * kAmxColumns, cut_.columns(block));
    char* to = packed_x(block, first / kAmxBlock);
    for (int64_t half = 0; half < 2; ++half) {
      alignas(64) uint16_t values[kTileRows * kAmxColumns] = {};
      const int64_t top = half * kTileRows, count = std::clamp<int64_t>(x.rows - top, 0, kTileRows);
      if (count > 0) {
        convert_rows(x.row_range(top, count), {values, DType::kBF16, count, x.cols, kAmxColumns});
      }
      for (int64_t t = 0; t < cut_.tiles(block); ++t) {
        transpose_words(values + t * kTileColumns, kAmxColumns / 2, to + (2 * t + half) * kTileBytes,
                        kTileRows);
      }
    }
  }

  // Rows of w from task * cut.w_rows on.
  void multiply(int64_t task, int thread) const {
    const int64_t first = task * cut_.w_rows, count = std::min(cut_.w_rows, w_.rows - first);
    char* panel = scratch_ + cut_.packed_bytes() + thread * cut_.thread_bytes();
    Tiles::configure(full_tiles());
    for (int64_t block = 0; block < cut_.column_blocks(); ++block) {
      Fetch x_ahead = next_x(block, ceil_div(count, kAmxBlock) * x_blocks_);
      for (int64_t p = 0; p < count; p += kAmxPanel) {
        pack_w(block, first + p, std::min(kAmxPanel, count - p), panel);
        multiply_panel(block, first, count, p, panel, x_ahead);
      }
    }
    Tiles::release();
    add_bias(bias_, first, out_.column_range(first, count));
  }

 private:
  using Fetch = FetchAhead<Tiles>;

  // The panel of w at row first + p against all blocks of x; sums lie behind the panel.
  void multiply_panel(int64_t block, int64_t first, int64_t count, int64_t p, char* panel,
                      Fetch& x_ahead) const {
    const int64_t tiles = cut_.tiles(block), end = std::min(count, p + kAmxPanel);
    Fetch w_ahead = next_w(block, first, count, p);
    for (int64_t x = 0; x < x_blocks_; ++x) {
      for (int64_t o = p; o < end; o += kAmxBlock) {
        w_ahead.step();
        x_ahead.step();
        char* sums = panel + kAmxPanelBytes + (o / kAmxBlock * x_blocks_ + x) * kAmxBlockBytes;
        const char* w = panel + (o - p) / kAmxBlock * tiles * 2 * kTileBytes;
        multiply_amx_block<Tiles>(w, packed_x(block, x), tiles, block == 0, sums);
        if (block + 1 < cut_.column_blocks()) continue;
        const Matrix rows = out_.row_range(x * kAmxBlock, std::min(kAmxBlock, x_.rows - x * kAmxBlock));
        store_amx_block(sums, rows.column_range(first + o, std::min(kAmxBlock, count - o)));
      }
    }
  }

  // Packed x: [block of columns][block of 32 rows][tile of columns][2 tiles].
  char* packed_x(int64_t block, int64_t x_block) const {
    return scratch_ +
           (block * x_blocks_ * kAmxColumns + x_block * cut_.tiles(block) * kTileColumns) * kAmxBlock * 2;
  }

  // Packed w: [32 rows][tile of columns][2 tiles]; what is missing in the last tiles is zero.
  void pack_w(int64_t block, int64_t first, int64_t count, char* to) const {
    const int64_t tiles = cut_.tiles(block), bytes = cut_.columns(block) * 2;
    for (int64_t r = 0; r < round_up(count, kAmxBlock); ++r) {
      const char* from = w_at(block, first + std::min(r, count - 1));
      char* row = to + (r / kAmxBlock * tiles * 2 + r / kTileRows % 2) * kTileBytes + r % kTileRows * 64;
      for (int64_t t = 0; t < tiles; ++t, row += 2 * kTileBytes) {
        const int64_t filled = r < count ? std::min<int64_t>(64, bytes - t * 64) : 0;
        if (filled == 64) {
          std::memcpy(row, from + t * 64, 64);
        } else {
          std::memset(row, 0, 64);
          if (filled > 0) std::memcpy(row, from + t * 64, static_cast<size_t>(filled));
        }
      }
    }
  }

  const char* w_at(int64_t block, int64_t row) const {
    return static_cast<const char*>(w_.data) + (row * w_.stride + block * kAmxColumns) * 2;
  }

  // What follows the panel at row first + p: the next panel, or the first one of the next block of columns.
  Fetch next_w(int64_t block, int64_t first, int64_t count, int64_t p) const {
    const int64_t rows = std::min(kAmxPanel, count - p);
    const int64_t steps = ceil_div(rows, kAmxBlock) * x_blocks_;
    const bool last = p + kAmxPanel >= count;
    if (last && block + 1 == cut_.column_blocks()) return {};
    const int64_t next_block = last ? block + 1 : block, next = last ? 0 : p + kAmxPanel;
    return {w_at(next_block, first + next), std::min(kAmxPanel, count - next), cut_.columns(next_block) * 2,
            w_.stride * 2, steps};
  }

  Fetch next_x(int64_t block, int64_t steps) const {
    if (cut_.small_x || block + 1 == cut_.column_blocks()) return {};
    return {packed_x(block + 1, 0), x_blocks_ * cut_.tiles(block + 1) * 2, kTileBytes, kTileBytes, steps};
  }

  const AmxCut cut_;
  const Matrix x_, w_, bias_, out_;
  char* scratch_;
  int64_t x_blocks_;
};

inline size_t amx_scratch_bytes(const Matrix& x, const Matrix& w, int threads) {
  const AmxCut cut(x, w, threads);
  return static_cast<size_t>(cut.packed_bytes() + threads * cut.thread_bytes());
}

// gemm() with x rounded to bf16, w in bf16. Subnormal values are taken for zero, as the instruction has it.
// for_each(count, body) calls body(task, thread) for each task in [0, count), with thread < threads, and
// returns when all are done.
template <class Tiles, class ForEach>
void amx_product(const Matrix& x, const Matrix& w, const Matrix& bias, const Matrix& out, void* scratch,
                 int threads, const ForEach& for_each) {
  const AmxCut cut(x, w, threads);
  for (int64_t top = 0; top < x.rows; top += cut.x_rows) {
    const int64_t rows = std::min(cut.x_rows, x.rows - top);
    const AmxProduct<Tiles> product(cut, x.row_range(top, rows), w, bias, out.row_range(top, rows),
                                    static_cast<char*>(scratch));
    for_each(product.pack_tasks(), [&](int64_t task, int) { product.pack(task); });
    for_each(product.multiply_tasks(), [&](int64_t task, int thread) { product.multiply(task, thread); });
  }
}

}  // namespace lariat::cpu
