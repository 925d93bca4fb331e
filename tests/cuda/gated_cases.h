#pragma once
#include <ostream>

#include "tests/kernels/tensors.h"

// Gated units of bf16 weights that are written in bf16: of many tokens a GPU rounds gate and up to bf16, too
// (Backend::gated).
namespace lariat::test {

struct GatedShape {
  int64_t tokens, cols, rows;
};

// Where weights and products lie: each by itself, with products of two strides; products side by side, gate
// or up on the left; and gate's on the left and the weights one behind the other, so that cuBLAS makes one
// product of both.
enum class GatedLayout : uint8_t { kApart, kUpOnTheLeft, kBeside, kJoined };
inline constexpr GatedLayout kGatedLayouts[] = {GatedLayout::kApart, GatedLayout::kUpOnTheLeft,
                                                GatedLayout::kBeside, GatedLayout::kJoined};

struct GatedCase {
  GatedShape shape;
  GatedLayout layout;
  Activation activation = Activation::kSilu;
};

inline void PrintTo(const GatedCase& c, std::ostream* out) {
  *out << c.shape.tokens << " tokens, " << c.shape.cols << " to " << c.shape.rows << ", layout "
       << static_cast<int>(c.layout) << ", activation " << static_cast<int>(c.activation);
}

// Rows in whole vectors of 8 bf16, of 4, and in neither; one; and more than a block of the activation has.
inline std::vector<GatedCase> gated_cases() {
  std::vector<GatedCase> cases;
  for (const GatedLayout layout : kGatedLayouts) {
    for (const GatedShape& shape :
         {GatedShape{17, 72, 40}, {40, 67, 35}, {33, 128, 12}, {18, 31, 1}, {17, 8, 2056}, {17, 5, 2051}}) {
      cases.push_back({shape, layout});
    }
    cases.push_back({{19, 64, 33}, layout, Activation::kGeluTanh});
    cases.push_back({{19, 64, 48}, layout, Activation::kGelu});
  }
  return cases;
}

// What a gated unit works on, in one backend's memory.
struct GatedOperands {
  Tensor x, gate_w, up_w, gate_bias, products, up_products, out;
  Product gate, up;

  // bias: of the gate.
  GatedOperands(Backend& b, const GatedCase& c, DType weights = DType::kBF16, bool bias = false)
      : x(b, Rng(91).normals(c.shape.tokens * c.shape.cols), c.shape.tokens, c.shape.cols),
        out(b, c.shape.tokens, c.shape.rows, c.layout == GatedLayout::kApart ? 3 : 0, DType::kBF16) {
    const auto [tokens, cols, rows] = c.shape;
    std::vector<float> of_gate = Rng(1000000).normals(rows * cols, 0.2F);
    const std::vector<float> of_up = Rng(2000000).normals(rows * cols, 0.2F);
    if (c.layout == GatedLayout::kJoined) {
      of_gate.insert(of_gate.end(), of_up.begin(), of_up.end());
      gate_w = Tensor(b, of_gate, 2 * rows, cols, weights);
      gate.w = gate_w.view().row_range(0, rows);
      up.w = gate_w.view().row_range(rows, rows);
    } else {
      gate_w = Tensor(b, of_gate, rows, cols, weights, 5);
      up_w = Tensor(b, of_up, rows, cols, weights);
      gate.w = gate_w.view();
      up.w = up_w.view();
    }
    if (c.layout == GatedLayout::kApart) {
      products = Tensor(b, tokens, rows, 5);
      up_products = Tensor(b, tokens, rows);
      gate.out = products.view();
      up.out = up_products.view();
    } else {
      products = Tensor(b, tokens, 2 * rows);
      const bool up_on_the_left = c.layout == GatedLayout::kUpOnTheLeft;
      gate.out = products.view().column_range(up_on_the_left ? rows : 0, rows);
      up.out = products.view().column_range(up_on_the_left ? 0 : rows, rows);
    }
    if (bias) gate_bias = Tensor(b, Rng(92).normals(rows), 1, rows);
    gate.bias = gate_bias.view();
  }

  std::vector<float> run(Backend& b, Activation activation, DType compute = DType::kBF16) const {
    b.gated(x.view(), gate, up, activation, compute, out.view());
    return out.values();
  }
};

}  // namespace lariat::test
