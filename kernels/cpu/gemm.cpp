#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/amx_product.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/quant_matmul.h"
#include "kernels/parallel.h"

namespace lariat::cpu {
namespace {

// L2 budget of one core (of the usual 1 MiB): a panel of x over a block of columns, and a block of w.
constexpr int64_t kPanelBytes = 192 << 10;
constexpr int64_t kWeightBytes = 400 << 10;
constexpr int64_t kMaxRows = 1024;  // rows of x at a time: bounds the packed copy

// Partition of the products of one x: `columns` of x and w, and `w_rows` rows of w at a time.
struct Blocks {
  const GemmKernel& kernel;
  int64_t x_rows, k, columns, unit, w_rows;  // w_rows: a multiple of `unit`
  bool copies;                               // blocks of some w are copied to scratch

  Blocks(const Matrix& x, std::span<const Product> products, DType compute)
      : kernel(kernel_for(products[0].w.dtype, compute)),
        x_rows(std::min(x.rows, kMaxRows)),
        k(x.cols),
        copies(std::any_of(products.begin(), products.end(), [&](const Product& p) { return copied(p.w); })) {
    const auto element = static_cast<int64_t>(size_of(kernel.dtype));
    const int64_t parts = std::max<int64_t>(1, ceil_div(k * kernel.panel * element, kPanelBytes));
    columns = std::max<int64_t>(64, round_up<int64_t>(ceil_div(k, parts), 64));
    unit = is_quantized(products[0].w.dtype) ? std::lcm(kernel.w_rows, kQuantRows) : kernel.w_rows;
    w_rows = std::max<int64_t>(1, kWeightBytes / (columns * element * unit)) * unit;
  }

  static const GemmKernel& kernel_for(DType w, DType compute) {
    const bool bf16 = compute == DType::kBF16 && w == DType::kBF16 && has_avx512_bf16();
    return bf16 ? gemm_bf16_kernel() : gemm_f32_kernel();
  }

  int64_t panels(int64_t rows) const { return ceil_div(rows, kernel.panel); }
  int64_t column_blocks() const { return ceil_div(k, columns); }

  // Rows a multiple of 4 KiB apart, read at once, would share one L1 set of eight lines.
  bool copied(const Matrix& w) const {
    return w.dtype != kernel.dtype || w.stride * static_cast<int64_t>(size_of(w.dtype)) % 4096 == 0;
  }

  // Packed x: [column block][panel]; then one block of w per thread.
  size_t panel_bytes() const { return static_cast<size_t>(columns * kernel.panel) * size_of(kernel.dtype); }
  size_t packed_bytes() const {
    return panel_bytes() * static_cast<size_t>(panels(x_rows) * column_blocks());
  }
  int64_t copy_stride() const { return columns + 64 / static_cast<int64_t>(size_of(kernel.dtype)); }
  size_t copy_bytes() const {
    return copies ? static_cast<size_t>(copy_stride() * w_rows) * size_of(kernel.dtype) : 0;
  }
};

// Products of at most kMaxRows rows of x, by every thread of a team.
class PanelProduct {
 public:
  PanelProduct(const Blocks& blocks, const Matrix& x, char* scratch)
      : blocks_(blocks), x_(x), scratch_(scratch) {}

  int64_t pack_tasks() const { return blocks_.panels(x_.rows) * blocks_.column_blocks(); }

  void pack(int64_t task, bool round) const {
    const int64_t block = task / blocks_.panels(x_.rows), panel = task % blocks_.panels(x_.rows);
    const Matrix rows = x_.row_range(panel * blocks_.kernel.panel, panel_rows(panel));
    blocks_.kernel.pack(rows.column_range(block * blocks_.columns, block_columns(block)), round,
                        packed(block, panel));
  }

  // Some rows of w times all of x. The block of w stays in L2 while x streams.
  void multiply(const Matrix& w, int64_t first, const Matrix& out, int thread) const {
    for (int64_t block = 0; block < blocks_.column_blocks(); ++block) {
      const Matrix part = part_of(w, first, out.cols, block, thread);
      for (int64_t panel = 0; panel < blocks_.panels(x_.rows); ++panel) {
        blocks_.kernel.multiply(packed(block, panel), part, block > 0,
                                out.row_range(panel * blocks_.kernel.panel, panel_rows(panel)));
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
  Matrix part_of(const Matrix& w, int64_t first, int64_t rows, int64_t block, int thread) const {
    const int64_t column = block * blocks_.columns, columns = block_columns(block);
    char* to = scratch_ + blocks_.packed_bytes() + static_cast<size_t>(thread) * blocks_.copy_bytes();
    const Matrix copy(to, blocks_.kernel.dtype, rows, columns, blocks_.copy_stride());
    if (is_quantized(w.dtype)) {
      dequantize(w, first, column, copy);
      return copy;
    }
    const Matrix part = w.row_range(first, rows).column_range(column, columns);
    if (!blocks_.copied(w)) return part;
    convert_rows(part, copy);
    return copy;
  }

  const Blocks& blocks_;
  const Matrix x_;
  char* scratch_;
};

}  // namespace

bool on_tiles(const Matrix& w) { return w.tiled || (is_quantized(w.dtype) && has_amx_bf16()); }

size_t gemm_scratch_bytes(const Matrix& x, std::span<const Product> products, DType compute, int threads) {
  if (on_tiles(products[0].w)) return amx_scratch_bytes(x, products, threads);
  const Blocks blocks(x, products, compute);
  return blocks.packed_bytes() + static_cast<size_t>(threads) * blocks.copy_bytes();
}

void gemm(const Matrix& x, std::span<const Product> products, DType compute, void* scratch, int threads) {
  if (on_tiles(products[0].w)) return gemm_amx(x, products, scratch, threads);
  const Blocks blocks(x, products, compute);
  // Every thread gets work; sums do not depend on the partition.
  const int64_t all = outputs_of(products);
  const int64_t fair = round_up(ceil_div<int64_t>(all, threads), blocks.unit);
  const int64_t step = std::min(blocks.w_rows, fair);
  const auto tasks = [step](const Product& product) { return ceil_div(product.w.rows, step); };
  const int64_t n_tasks = units_of(products, tasks);
  const bool round = compute == DType::kBF16 && !is_quantized(products[0].w.dtype);
  for (int64_t top = 0; top < x.rows; top += kMaxRows) {
    const int64_t rows = std::min(kMaxRows, x.rows - top);
    const PanelProduct panels(blocks, x.row_range(top, rows), static_cast<char*>(scratch));
    for_tasks(threads, panels.pack_tasks(), [&](int64_t task, int) { panels.pack(task, round); });
    for_tasks(threads, n_tasks, [&](int64_t one, int thread) {
      for_products(products, one, one + 1, tasks, [&](const Product& product, int64_t task, int64_t) {
        const int64_t first = task * step, count = std::min(step, product.w.rows - first);
        const Matrix out = product.out.row_range(top, rows).column_range(first, count);
        panels.multiply(product.w, first, out, thread);
        add_bias(product.bias, first, out);
      });
    });
  }
}

}  // namespace lariat::cpu
