#pragma once
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/grouped.cuh"

// Arguments for products of few tokens (gemv.cu, gemv_tiles.cu): up to three products of one x, or a gated
// unit of two.
namespace lariat::cuda {

inline constexpr int kMostProducts = kMaxBlocks;

struct GemvProduct {
  const void* w;     // [rows][cols], or tiles (kernels/quant.h)
  const void* bias;  // one row, or null
  void* out;         // f32; bf16 for a gated unit with g.bf16_out
  int64_t w_stride, out_stride;
  int rows;
  DType bias_dtype;
  unsigned first_block;  // ~0: no blocks
};

struct Gemv {
  GemvProduct product[kMostProducts];
  int tokens;
  const void* x;  // float weights: f32 or bf16; float codes: f32 [tokens][blocks * 64]
  int x_stride, cols;
  const int8_t* groups;       // integer codes: x in groups, [tokens][blocks * 64]
  const float* group_scales;  // [tokens][blocks * 2]
  int blocks;                 // of 64 inputs
  int parts;                  // gemv.cu: warps that share the columns of a row: 1, 2 or 4
  bool gated;                 // out of product 0 = activation(product 0) * product 1
  Activation activation;
  bool bf16_out;
  Codes codes;  // gemv_codes.cu: of all products
};

__device__ __forceinline__ int product_of_block(const Gemv& g) {
  int p = 0;
#pragma unroll
  for (int i = 1; i < kMostProducts; ++i) p += blockIdx.x >= g.product[i].first_block ? 1 : 0;
  return p;
}

__device__ __forceinline__ float bias_of(const GemvProduct& p, int64_t row) {
  return p.bias == nullptr ? 0.0F : load_any(p.bias, p.bias_dtype, row);
}

__device__ __forceinline__ void store_output(const Gemv& g, const GemvProduct& p, int64_t at, float value) {
  if (g.bf16_out) {
    static_cast<BFloat16*>(p.out)[at] = from_float<BFloat16>(value);
  } else {
    static_cast<float*>(p.out)[at] = value;
  }
}

// Tokens after the last repeat the last and are not stored.
__device__ __forceinline__ int token_or_last(const Gemv& g, int token) {
  return token < g.tokens ? token : g.tokens - 1;
}

// Loads 16 bytes of weights past L1. Unlike load16_streaming, the compiler may reorder this load: no kernel
// writes weights.
__device__ __forceinline__ uint4 load16_weights(const void* address) {
#ifdef __CUDACC__
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(__cvta_generic_to_global(address)));
  return v;
#else
  return load16(address);
#endif
}

// Assigns blocks of rows_per_block rows to the products; returns their number. A gated unit's products share
// blocks.
inline unsigned share_blocks(Gemv& g, int n_products, int rows_per_block) {
  int64_t blocks = 0;
  for (int i = 0; i < kMostProducts; ++i) {
    const bool has_blocks = i < (g.gated ? 1 : n_products);
    g.product[i].first_block = has_blocks ? to_unsigned(blocks) : ~0U;
    if (has_blocks) blocks += ceil_div(g.product[i].rows, rows_per_block);
  }
  return to_unsigned(blocks);
}

// All fields that do not depend on x.
inline Gemv gemv_of(std::span<const Product> products, const Activation* activation) {
  Gemv g = zeroed<Gemv>();
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    GemvProduct& p = g.product[i];
    p.w = product.w.data;
    p.bias = product.bias.data;
    p.out = product.out.data;
    p.w_stride = product.w.stride;
    p.out_stride = product.out.stride;
    p.rows = static_cast<int>(product.w.rows);
    p.bias_dtype = product.bias.dtype;
  }
  g.gated = activation != nullptr;
  if (g.gated) g.activation = *activation;
  g.bf16_out = products[0].out.dtype == DType::kBF16;
  return g;
}

// Products by tiles of 16 rows, up to 16 tokens. bf16: x is bf16 too, in rows aligned to 16 bytes, of a
// multiple of 8 elements. Quantized: formats of quantize(), not gated.
void gemv_tiles(Gemv& g, DType w, int n_products, int multiprocessors, LaunchQueue& queue);
// The same for any format of integer codes, or of float codes.
void gemv_codes(Gemv& g, int n_products, LaunchQueue& queue);
void gemv_float_codes(Gemv& g, int n_products, LaunchQueue& queue);
// The same for grouped_linear. tokens: approximate number of rows per expert.
void grouped_codes(const Gemv& g, const Grouped& p, const Experts& experts, LaunchQueue& queue);
void grouped_float_codes(const Gemv& g, const Grouped& p, const Experts& experts, LaunchQueue& queue);

}  // namespace lariat::cuda
