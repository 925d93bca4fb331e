#pragma once
#include <array>
#include <cassert>
#include <span>
#include <vector>

#include "kernels/tensor.h"

// Weights, which Backend::linear multiplies by. A format of weights is a DType and what load_weight makes of
// it; the ops do not change with it.
namespace lariat {

// A matrix [outputs, inputs] in a backend's memory, and its bias: one row of as many outputs, or nothing.
struct RowBlock {
  Matrix w, bias;
};

// One matrix or up to three of the same inputs, whose outputs lie side by side: q | k | v, gate | up. In
// grouped_linear they are alternatives of one shape and dtype: experts, or heads.
struct Weight {
  std::vector<RowBlock> blocks;
  // Inputs are rounded to this: kF32, as they are; kBF16, for any number of rows, so that a prefill and a
  // decode step see the same numbers. Quantised blocks round them as kernels/quant.h says.
  DType compute = DType::kF32;
  // Inputs had best be stored as this: bf16 where this backend reads them so and they are rounded to it
  // anyway, which changes no bit and saves memory traffic; else f32, which is right for any weight.
  DType input = DType::kF32;
  Matrix biases{};  // of grouped_linear alone: f32 [blocks, outputs], or nothing

  explicit operator bool() const { return !blocks.empty(); }
  // For grouped_linear: a block with its row of biases.
  RowBlock group(size_t i) const {
    return {blocks[i].w, biases ? biases.row_range(static_cast<int64_t>(i), 1) : Matrix()};
  }
  int64_t rows() const {
    int64_t rows = 0;
    for (const RowBlock& block : blocks) rows += block.w.rows;
    return rows;
  }
};

// One matrix that belongs to somebody else.
inline Weight weight_of(const Matrix& w, DType compute = DType::kF32) { return {{{w, {}}}, compute}; }

// A kernel's work for one block: out = x w^T + bias.
struct Product {
  Matrix w, bias, out;
};

// Those of all blocks of a weight that linear multiplies by, side by side in its `out`.
inline constexpr size_t kMaxBlocks = 3;
class Products {
 public:
  Products(const Weight& weight, const Matrix& out) {
    assert(weight.blocks.size() <= kMaxBlocks);
    int64_t first = 0;
    for (const auto& [w, bias] : weight.blocks) {
      all_[count_++] = {w, bias, out.column_range(first, w.rows)};
      first += w.rows;
    }
  }
  operator std::span<const Product>() const { return {all_.data(), count_}; }  // NOLINT: what it stands for

 private:
  std::array<Product, kMaxBlocks> all_;
  size_t count_ = 0;
};

}  // namespace lariat
