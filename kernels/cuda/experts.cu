#include <algorithm>
#include <cfloat>
#include <iterator>
#include <span>
#include <string>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/grouped.cuh"

namespace lariat {
namespace {

using namespace cuda;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

// --- route -----------------------------------------------------------------------------------------------
constexpr int kMaxExperts = 512;
constexpr int32_t kNobody = INT32_MAX;

struct Route {
  const float* logits;
  const float* bias;  // or null
  int32_t* experts;
  float* weights;
  int64_t logits_stride, weights_stride;
  int n_experts, n_chosen, n_groups, kept_groups;
  float scale;
  bool sigmoid, normalise;
};

// NaNs are skipped; kNobody if all are NaN. By a warp.
__device__ int32_t first_of_largest(const float* values, int n) {
  float best = 0.0F;
  int32_t index = kNobody;
  const auto meet = [&](float value, int32_t i) {
    if (i == kNobody || value != value) return;
    if (index == kNobody || value > best || (value == best && i < index)) {
      best = value;
      index = i;
    }
  };
  for (int i = lane_index(); i < n; i += kWarpSize) meet(values[i], i);
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const float value = __shfl_xor_sync(kFullWarp, best, lanes);
    const int32_t i = __shfl_xor_sync(kFullWarp, index, lanes);
    meet(value, i);
  }
  return index;
}

// Removes the first largest value and returns its index, for the whole warp.
__device__ int32_t take_largest(float* values, int n) {
  const int32_t index = first_of_largest(values, n);
  __syncwarp();  // all lanes have read
  if (lane_index() == 0) values[index] = NAN;
  __syncwarp();
  return index;
}

// choice: the values for selection, finite so that sums of two are never NaN. Without a bias they are the
// logits, in the same order.
__device__ void score(const Route& r, const float* logits, float* scores, float* choice) {
  float largest = -INFINITY, sum = 0.0F;
  for (int e = lane_index(); e < r.n_experts; e += kWarpSize) largest = fmaxf(largest, logits[e]);
  largest = warp_max(largest);
  for (int e = lane_index(); e < r.n_experts; e += kWarpSize) {
    const float power = expf(r.sigmoid ? -fabsf(logits[e]) : logits[e] - largest);  // at most 1
    scores[e] = !r.sigmoid ? power : (logits[e] < 0.0F ? power : 1.0F) / (1.0F + power);
    sum += scores[e];
  }
  sum = warp_sum(sum);
  for (int e = lane_index(); e < r.n_experts; e += kWarpSize) {
    if (!r.sigmoid) scores[e] /= sum;
    const float value = r.bias == nullptr ? logits[e] : scores[e] + r.bias[e];
    choice[e] = value > FLT_MAX ? FLT_MAX : value >= -FLT_MAX ? value : -FLT_MAX;
  }
  __syncwarp();
}

// Sets experts of skipped groups to -inf. best: shared memory.
__device__ void leave_groups(const Route& r, float* choice, float* best) {
  const int size = r.n_experts / r.n_groups;
  for (int g = lane_index(); g < r.n_groups; g += kWarpSize) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < size; ++i) {
      const float value = choice[g * size + i];
      second = fmaxf(second, fminf(first, value));
      first = fmaxf(first, value);
    }
    best[g] = r.bias != nullptr && size > 1 ? first + second : first;
  }
  __syncwarp();
  for (int i = 0; i < r.kept_groups; ++i) take_largest(best, r.n_groups);
  for (int e = lane_index(); e < r.n_experts; e += kWarpSize) {
    if (best[e / size] == best[e / size]) choice[e] = -INFINITY;  // not taken
  }
  __syncwarp();
}

// Grid: one warp per token. Bound by latency: n_chosen searches of the experts.
__global__ void route_kernel(const __grid_constant__ Route r) {
  LARIAT_SHARED(float, scores, kMaxExperts);
  LARIAT_SHARED(float, choice, kMaxExperts);
  LARIAT_SHARED(float, groups, kMaxExperts);
  LARIAT_SHARED(int32_t, chosen, kMaxExperts);
  start_in_turn();
  score(r, r.logits + blockIdx.x * r.logits_stride, scores, choice);
  if (r.kept_groups < r.n_groups) leave_groups(r, choice, groups);
  float sum = 0.0F;
  for (int j = 0; j < r.n_chosen; ++j) {
    const int32_t e = take_largest(choice, r.n_experts);
    if (lane_index() == 0) chosen[j] = e;
    sum += scores[e];
  }
  __syncwarp();
  for (int j = lane_index(); j < r.n_chosen; j += kWarpSize) {
    r.experts[int64_t{blockIdx.x} * r.n_chosen + j] = chosen[j];
    r.weights[blockIdx.x * r.weights_stride + j] = scores[chosen[j]] / (r.normalise ? sum : 1.0F) * r.scale;
  }
}

// --- grouped_linear --------------------------------------------------------------------------------------
constexpr int kRows = 2;  // of the weights, per warp

struct ExpertProduct : Grouped {  // of floats, [n][k]
  const float* x;
  int64_t w_stride, x_stride, k;
};

// Outputs of kRows rows of w for kTokens of the rows `ids`. C: type that x is rounded to.
template <class W, class C, int kTokens, int kStep>
__device__ __forceinline__ void multiply(const ExpertProduct& p, const W* w, int32_t expert,
                                         int64_t first_row, const int32_t* ids, int n_ids) {
  const float* x[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) x[t] = p.x + ids[t < n_ids ? t : n_ids - 1] / p.per_x * p.x_stride;
  float sum[kRows][kTokens] = {};
#pragma unroll 4
  for (int64_t i = lane_index() * kStep; i < p.k; i += kWarpSize * kStep) {
    float weights[kRows][kStep];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first_row + r < p.n ? first_row + r : p.n - 1;
      load_weights<W, kStep>(w + row * p.w_stride + i, weights[r]);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float values[kStep];
      load_x<kStep>(x[t] + i, values);
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        const float value = to_float(from_float<C>(values[j]));
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum[r][t] += value * weights[r][j];
      }
    }
  }
  float mine = 0.0F;  // of lane r * kTokens + t
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float total = warp_sum(sum[r][t]);
      if (lane_index() == r * kTokens + t) mine = total;
    }
  }
  const int token = lane_index() % kTokens;
  const int64_t row = first_row + lane_index() / kTokens;
  if (lane_index() >= kRows * kTokens || token >= n_ids || row >= p.n) return;
  store_grouped(p, expert, ids[token], row, mine);
}

// Grid: x = 8 rows of the weights; y: expert_of_block. The block of an expert's first row multiplies all its
// rows, kTokens at a time. Bound by memory for few tokens.
template <class W, class C, int kTokens, int kStep>
__global__ void __launch_bounds__(kThreads)
    grouped_linear_kernel(const __grid_constant__ ExpertProduct p, const __grid_constant__ Experts experts) {
  LARIAT_SHARED(int32_t, ids, kWindow);
  LARIAT_SHARED(int, found, 2);
  start_in_turn();
  const int32_t expert = expert_of_block(p);
  if (expert < p.first || expert >= p.first + p.count) return;
  const W* w = static_cast<const W*>(experts.value[expert - p.first]);
  const int64_t first_row = (int64_t{blockIdx.x} * kWarps + warp_index()) * kRows;
  for (int64_t window = 0; window < p.rows; window += kWindow) {
    const int count = find_rows<kThreads>(p, expert, window, ids, found);
    if (count < 0) return;
    for (int at = 0; at < count && first_row < p.n; at += kTokens) {
      multiply<W, C, kTokens, kStep>(p, w, expert, first_row, ids + at,
                                     count - at < kTokens ? count - at : kTokens);
    }
    __syncthreads();
  }
}

template <class W, int kTokens, int kStep>
void launch_experts(const ExpertProduct& p, const Experts& experts, DType compute, LaunchQueue& queue) {
  const dim3 grid(to_unsigned(ceil_div<int64_t>(p.n, kWarps * kRows)),
                  to_unsigned(p.by_row ? p.rows : p.count));
  if constexpr (kTokens == 1) {
    with_dtype(compute, [&]<class C>(C) {
      launch(grouped_linear_kernel<W, C, 1, kStep>, grid, dim3(kThreads), 0, queue, p, experts);
    });
  } else {  // x is already rounded
    launch(grouped_linear_kernel<W, float, kTokens, kStep>, grid, dim3(kThreads), 0, queue, p, experts);
  }
}

// Calls f(experts) with the most experts per launch.
template <class F>
void for_launches(Grouped& p, std::span<const RowBlock> blocks, const F& f) {
  for (size_t first = 0; first < blocks.size(); first += kPointers) {
    Experts pointers = {};
    p.first = static_cast<int>(first);
    p.count = static_cast<int>(std::min<size_t>(kPointers, blocks.size() - first));
    for (int e = 0; e < p.count; ++e) pointers.value[e] = blocks[first + static_cast<size_t>(e)].w.data;
    f(pointers);
  }
}

// --- combine_experts -------------------------------------------------------------------------------------
constexpr unsigned kCombineThreads = 256;

struct Combine {
  const float* x;
  const float* weights;
  const float* shared_logits;  // or null
  float* out;
  int64_t x_stride, weights_stride, shared_logits_stride, out_stride, cols;
  int n_chosen;
  bool add;
};

// Grid: rows by chunks of 256 columns.
__global__ void combine_experts_kernel(const __grid_constant__ Combine c) {
  start_in_turn();
  const int64_t i = int64_t{blockIdx.y} * kCombineThreads + threadIdx.x;
  if (i >= c.cols) return;
  const float* x = c.x + int64_t{blockIdx.x} * c.n_chosen * c.x_stride + i;
  float* out = c.out + blockIdx.x * c.out_stride + i;
  float sum = c.add ? *out : 0.0F;
  if (c.shared_logits != nullptr) sum /= 1.0F + expf(-c.shared_logits[blockIdx.x * c.shared_logits_stride]);
  for (int j = 0; j < c.n_chosen; ++j)
    sum += c.weights[blockIdx.x * c.weights_stride + j] * x[j * c.x_stride];
  *out = sum;
}

}  // namespace

void CudaBackend::route(const Matrix& logits, const Router& router, const Routing& routing) {
  if (logits.cols > kMaxExperts) {
    throw Error(std::to_string(logits.cols) + " experts; at most " + std::to_string(kMaxExperts) + " fit");
  }
  if (logits.rows == 0) return;
  Route r = zeroed<Route>();
  r.logits = typed<float>(logits);
  r.bias = typed<float>(router.choice_bias);
  r.experts = routing.experts;
  r.weights = typed<float>(routing.weights);
  r.logits_stride = logits.stride;
  r.weights_stride = routing.weights.stride;
  r.n_experts = static_cast<int>(logits.cols);
  r.n_chosen = static_cast<int>(router.n_chosen);
  r.n_groups = static_cast<int>(router.n_groups);
  r.kept_groups = static_cast<int>(router.kept_groups);
  r.scale = router.scale;
  r.sigmoid = router.sigmoid;
  r.normalise = router.normalise;
  launch(route_kernel, dim3(to_unsigned(logits.rows)), dim3(kWarpSize), 0, queue_, r);
}

void CudaBackend::grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                                 const Matrix& out) {
  if (out.rows == 0) return;
  const auto& blocks = weight.blocks;
  const Matrix& model = blocks[0].w;
  const DType compute = weight.compute;
  const int64_t tokens = routing.weights.rows;
  ExpertProduct p = zeroed<ExpertProduct>();
  p.chosen = routing.experts;
  p.biases = typed<float>(weight.biases);
  p.biases_stride = weight.biases.stride;
  p.out = typed<float>(out);
  p.out_stride = out.stride;
  p.rows = out.rows;
  p.n = model.rows;
  p.per_x = static_cast<int>(out.rows / x.rows);
  p.by_row = out.rows <= std::min<int64_t>(std::ssize(blocks), kWindow);
  if (is_quantized(model.dtype)) {
    const Product whole{model, {}, out};
    return for_parts(model, {&whole, 1}, [&](int part, std::span<const Product> outs) {
      Gemv g = zeroed<Gemv>();
      read_by_codes(x, model, part, g);
      g.tokens = static_cast<int>(ceil_div(out.rows, std::ssize(blocks)));
      p.out = typed<float>(outs[0].out);
      p.out_stride = outs[0].out.stride;
      if (part > 0) p.biases = nullptr;
      for_launches(p, blocks, [&](const Experts& experts) {
        (is_integer(g.codes.code) ? grouped_codes : grouped_float_codes)(g, p, experts, queue_);
      });
    });
  }
  const bool aligned = model.cols % (16 / static_cast<int64_t>(size_of(model.dtype))) == 0 &&
                       x.cols % 4 == 0 && rows_aligned16(x) &&
                       std::all_of(blocks.begin(), blocks.end(),
                                   [](const RowBlock& block) { return rows_aligned16(block.w); });
  Matrix rounded = x;
  if ((tokens > 1 || !aligned) && compute != DType::kF32) {  // else the kernel rounds x
    rounded = Matrix(scratch(Scratch::kGemmX, static_cast<size_t>(x.rows * x.cols) * sizeof(float)),
                     DType::kF32, x.rows, x.cols);
    convert(x, compute, rounded);
  }
  p.x = typed<float>(rounded);
  p.w_stride = model.stride;
  p.x_stride = rounded.stride;
  p.k = model.cols;
  for_launches(p, blocks, [&](const Experts& experts) {
    with_dtype(model.dtype, [&]<class W>(W) {
      constexpr int kVector = kPerVector<W>;
      if (!aligned) {
        launch_experts<W, kGemvTokens, 1>(p, experts, compute, queue_);
      } else if (tokens == 1) {
        launch_experts<W, 1, kVector>(p, experts, compute, queue_);
      } else if (tokens <= 4) {
        launch_experts<W, 4, kVector>(p, experts, compute, queue_);
      } else {
        launch_experts<W, kGemvTokens, kVector>(p, experts, compute, queue_);
      }
    });
  });
}

void CudaBackend::combine_experts(const Matrix& x, const Routing& routing, bool add, const Matrix& out) {
  if (out.rows == 0) return;
  Combine c = zeroed<Combine>();
  c.x = typed<float>(x);
  c.weights = typed<float>(routing.weights);
  c.shared_logits = typed<float>(routing.shared_logits);
  c.shared_logits_stride = routing.shared_logits.stride;
  c.out = typed<float>(out);
  c.x_stride = x.stride;
  c.weights_stride = routing.weights.stride;
  c.out_stride = out.stride;
  c.cols = out.cols;
  c.n_chosen = static_cast<int>(routing.weights.cols);
  c.add = add;
  const dim3 grid(to_unsigned(out.rows), to_unsigned(ceil_div<int64_t>(out.cols, kCombineThreads)));
  launch(combine_experts_kernel, grid, dim3(kCombineThreads), 0, queue_, c);
}

}  // namespace lariat
