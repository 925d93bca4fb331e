#pragma once
#include <array>
#include <cassert>
#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace lariat {

// Matrix [outputs, inputs] and its bias, one row or empty.
struct RowBlock {
  Matrix w, bias;
};

// Up to three matrices with the same inputs and concatenated outputs: q | k | v, gate | up. In
// grouped_linear: alternatives of one shape and dtype, such as experts or heads.
struct Weight {
  std::vector<RowBlock> blocks;
  // Rounding of inputs. kF32: none. kBF16: for any number of rows, so that prefill and decode agree.
  // Quantized blocks: see kernels/quant.h.
  DType compute = DType::kF32;
  // Preferred dtype of inputs: bf16 if the backend rounds to bf16 anyway (bitwise identical, less memory
  // traffic), else f32. f32 is always valid.
  DType input = DType::kF32;
  Matrix biases{};  // grouped_linear only: f32 [blocks, outputs], or empty

  explicit operator bool() const { return !blocks.empty(); }
  RowBlock group(size_t i) const {
    return {blocks[i].w, biases ? biases.row_range(static_cast<int64_t>(i), 1) : Matrix()};
  }
  int64_t rows() const {
    int64_t rows = 0;
    for (const RowBlock& block : blocks) rows += block.w.rows;
    return rows;
  }
};

inline Weight weight_of(const Matrix& w, DType compute = DType::kF32) { return {{{w, {}}}, compute}; }

// Activation of the gate or, without a gate, of the inner values.
enum class Activation : uint8_t {
  kSilu,      // x / (1 + exp(-x)): SwiGLU
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): GeGLU in Gemma
  kGelu,      // 0.5 x (1 + erf(x / sqrt(2))), arXiv 1606.08415
  // gpt-oss, glu with `up` only: g / (1 + exp(-1.702 g)) (1 + u), g = min(gate, 7), u = clamp(up, -7, 7).
  kClamped,
  kRelu2,  // max(x, 0)^2, arXiv 2109.08668
  kXielu,  // Backend::xielu, whose parameters belong to a layer; not for glu and Epilogue::gated
};
inline constexpr float kClampedLimit = 7.0F, kClampedSlope = 1.702F;

struct Xielu {
  float positive = 0.0F, negative = 0.0F, beta = 0.0F, eps = 0.0F;
};

struct Product {
  Matrix w, bias, out, up{};  // up: gated unit, out = activation(x w) * (x up) without bias
  Activation activation{};
};

// Products of the blocks of one linear call, side by side in `out`.
inline constexpr size_t kMaxBlocks = 3;
class Products {
 public:
  Products(const Weight& weight, const Matrix& out) {
    for (const auto& [w, bias] : weight.blocks) add(w, bias, out);
  }
  // The same products in other memory, without biases.
  Products(std::span<const Product> others, const Matrix& out) {
    for (const Product& other : others) add(other.w, {}, out);
  }
  operator std::span<const Product>() const { return {all_.data(), count_}; }  // NOLINT: what it stands for

 private:
  void add(const Matrix& w, const Matrix& bias, const Matrix& out) {
    assert(count_ < kMaxBlocks);
    all_[count_++] = {w, bias, out.column_range(columns_, w.rows)};
    columns_ += w.rows;
  }

  std::array<Product, kMaxBlocks> all_;
  size_t count_ = 0;
  int64_t columns_ = 0;
};

// Outputs of all products.
inline int64_t outputs_of(std::span<const Product> products) {
  int64_t outputs = 0;
  for (const Product& product : products) outputs += product.w.rows;
  return outputs;
}

}  // namespace lariat
