#include "kernels/cpu/gemm.h"

#include <omp.h>

#include <algorithm>

#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/integers.h"

namespace lariat::cpu {
namespace {

// What one core's second-level cache shall hold at a time: a panel of x over a block of columns, and a block
// of w. Half of the 1 MiB that most have, and all that the rest have.
constexpr int64_t kPanelBytes = 192 << 10;
constexpr int64_t kWeightBytes = 320 << 10;
constexpr int64_t kMaxRows = 1024;  // of x at a time: bounds the packed copy

// How a product is cut: `columns` of x and w at a time, `w_rows` rows of w at a time.
struct Blocks {
  const GemmKernel& kernel;
  int64_t x_rows, k, columns, w_rows;
  bool copies;  // blocks of w go through scratch

  Blocks(const Matrix& x, const Matrix& w, DType compute)
      : kernel(compute == DType::kBF16 && w.dtype == DType::kBF16 && has_avx512_bf16() ? gemm_bf16_kernel()
                                                                                       : gemm_f32_kernel()),
        x_rows(std::min(x.rows, kMaxRows)),
        k(w.cols),
        copies(w.dtype != kernel.dtype || rows_collide(w)) {
    const auto element = static_cast<int64_t>(size_of(kernel.dtype));
    const int64_t parts = std::max<int64_t>(1, ceil_div(k * kernel.panel * element, kPanelBytes));
    columns = std::max<int64_t>(64, round_up<int64_t>(ceil_div(k, parts), 64));
    const int64_t groups = kWeightBytes / (columns * element * kernel.w_rows);
    w_rows = std::max<int64_t>(1, groups) * kernel.w_rows;
  }

  int64_t panels(int64_t rows) const { return ceil_div(rows, kernel.panel); }
  int64_t column_blocks() const { return ceil_div(k, columns); }

  // A tile walks down several rows of w at once. Rows that lie a multiple of 4 KiB apart would all fall into
  // one set of the first-level cache, which has room for eight lines; a copy with another stride costs
  // little.
  static bool rows_collide(const Matrix& w) {
    return w.stride * static_cast<int64_t>(size_of(w.dtype)) % 4096 == 0;
  }

  // Packed x: [column block][panel], each of one size; then one block of w per thread.
  size_t panel_bytes() const { return static_cast<size_t>(columns * kernel.panel) * size_of(kernel.dtype); }
  size_t packed_bytes() const {
    return panel_bytes() * static_cast<size_t>(panels(x_rows) * column_blocks());
  }
  int64_t copy_stride() const { return columns + 64 / static_cast<int64_t>(size_of(kernel.dtype)); }
  size_t copy_bytes() const {
    return copies ? static_cast<size_t>(copy_stride() * w_rows) * size_of(kernel.dtype) : 0;
  }
};

// One product of at most kMaxRows rows; called by every thread of a team.
class Product {
 public:
  Product(const Blocks& blocks, const Matrix& x, const Matrix& w, const Matrix& out, char* scratch)
      : blocks_(blocks), x_(x), w_(w), out_(out), scratch_(scratch) {}

  int64_t pack_tasks() const { return blocks_.panels(x_.rows) * blocks_.column_blocks(); }

  void pack(int64_t task, bool round) const {
    const int64_t block = task / blocks_.panels(x_.rows), panel = task % blocks_.panels(x_.rows);
    const Matrix rows = x_.row_range(panel * blocks_.kernel.panel, panel_rows(panel));
    blocks_.kernel.pack(rows.column_range(block * blocks_.columns, block_columns(block)), round,
                        packed(block, panel));
  }

  // Rows [first, first + count) of w against all of x. The block of w stays in the second-level cache while
  // the panels of x pass by.
  void multiply(int64_t first, int64_t count, int thread) const {
    for (int64_t block = 0; block < blocks_.column_blocks(); ++block) {
      Matrix w = w_.row_range(first, count).column_range(block * blocks_.columns, block_columns(block));
      if (blocks_.copies) w = copied(w, thread);
      for (int64_t panel = 0; panel < blocks_.panels(x_.rows); ++panel) {
        const Matrix rows = out_.row_range(panel * blocks_.kernel.panel, panel_rows(panel));
        blocks_.kernel.multiply(packed(block, panel), w, block > 0, rows.column_range(first, count));
      }
    }
  }

 private:
  int64_t panel_rows(int64_t panel) const {
    return std::min(blocks_.kernel.panel, x_.rows - panel * blocks_.kernel.panel);
  }
  int64_t block_columns(int64_t block) const {
    return std::min(blocks_.columns, blocks_.k - block * blocks_.columns);
  }
  void* packed(int64_t block, int64_t panel) const {
    return scratch_ + static_cast<size_t>(block * blocks_.panels(x_.rows) + panel) * blocks_.panel_bytes();
  }
  Matrix copied(const Matrix& w, int thread) const {
    char* to = scratch_ + blocks_.packed_bytes() + static_cast<size_t>(thread) * blocks_.copy_bytes();
    const Matrix copy(to, blocks_.kernel.dtype, w.rows, w.cols, blocks_.copy_stride());
    convert_rows(w, copy);
    return copy;
  }

  const Blocks& blocks_;
  const Matrix x_, w_, out_;
  char* scratch_;
};

bool runs_on_amx(const Matrix& w, DType compute) {
  return compute == DType::kBF16 && w.dtype == DType::kBF16 && has_amx_bf16();
}

}  // namespace

size_t gemm_scratch_bytes(const Matrix& x, const Matrix& w, DType compute, int threads) {
  if (runs_on_amx(w, compute)) return gemm_amx_scratch_bytes(x, w, threads);
  const Blocks blocks(x, w, compute);
  return blocks.packed_bytes() + static_cast<size_t>(threads) * blocks.copy_bytes();
}

void gemm(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute, const Matrix& out,
          void* scratch, int threads) {
  if (runs_on_amx(w, compute)) return gemm_amx(x, w, bias, out, scratch, threads);
  const Blocks blocks(x, w, compute);
  // Small blocks when w has few rows, so that every thread gets some; the sums do not depend on the cut.
  const int64_t fair = round_up(ceil_div<int64_t>(w.rows, threads), blocks.kernel.w_rows);
  const int64_t step = std::min(blocks.w_rows, fair);
  for (int64_t top = 0; top < x.rows; top += kMaxRows) {
    const int64_t rows = std::min(kMaxRows, x.rows - top);
    const Matrix part = out.row_range(top, rows);
    const Product product(blocks, x.row_range(top, rows), w, part, static_cast<char*>(scratch));
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic)
      for (int64_t task = 0; task < product.pack_tasks(); ++task) product.pack(task, compute == DType::kBF16);
#pragma omp for schedule(dynamic)
      for (int64_t first = 0; first < w.rows; first += step) {
        const int64_t count = std::min(step, w.rows - first);
        product.multiply(first, count, omp_get_thread_num());
        add_bias(bias, first, part.column_range(first, count));
      }
    }
  }
}

}  // namespace lariat::cpu
