#include "kernels/cuda/attention_merge.cuh"

// Attention without tensor cores: f32 keys or values, 8-bit values, head sizes above 256 (MLA) or not a
// multiple of 8.
namespace lariat::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxDim = 576;  // MLA with 512 + 64

// Fewest keys per split.
constexpr int64_t kMinKeys = 64;

struct PlainState {
  float top = -INFINITY, sum = 0.0F;
};

using PlainBoard = MergeBoard<1, kWarps * kWarpSize>;

__device__ void load_plain_query(const Attention& a, const AttentionRange& range, int64_t row, int head,
                                 float* query) {
  const float* q = a.q + row * a.q_stride + int64_t{head} * a.head_dim;
  for (int pair = static_cast<int>(threadIdx.x); pair < a.rotary_dim / 2; pair += kWarps * kWarpSize) {
    const int2 d = pair_dims(a, pair);
    const float2 value = rotated_pair(a, range, q, row, pair);
    query[d.x] = value.x;
    query[d.y] = value.y;
  }
  for (int d = a.rotary_dim + static_cast<int>(threadIdx.x); d < a.head_dim; d += kWarps * kWarpSize) {
    query[d] = q[d] * (a.scale * range.whole(row)) * a.weight(d);
  }
}

// Lane l holds dimensions l, l + 32, ... distance: key position - query position; slope: ALiBi, in log2
// units.
template <int kPerLane>
__device__ __forceinline__ void add_key(const Attention& a, const float* query, int kv_head, void* page,
                                        int64_t k_offset, int64_t key, float slope, int distance,
                                        PlainState& state, float (&out)[kPerLane]) {
  const int lane = lane_index();
  const void* keys = in_page(page, k_offset);
  const void* values = in_page(page, a.v_offset);
  const int64_t base = kv_index(kv_head, key, 0, a.head_dim);
  float score = 0.0F;
  for (int d = lane; d < a.head_dim; d += kWarpSize) {
    score += query[d] * load_any(keys, a.k_dtype, base + d);
  }
  score = warp_sum(score);
  if (a.softcap > 0.0F) score = capped_score(a, score);
  if (a.slopes != nullptr) score += slope * static_cast<float>(distance);
  const float top = fmaxf(state.top, score);
  const float shrink = exp2f(state.top - top), weight = exp2f(score - top);
  state.sum = state.sum * shrink + weight;
  state.top = top;
  const bool q8 = a.v_dtype == DType::kQ8;
  const auto* integers = static_cast<const int8_t*>(values);
  const int64_t scale = a.v_offset + kv_scale_offset(a.n_kv_heads, a.head_dim, kv_head, key);
  const float of_value = q8 ? weight * *in_page<const float>(page, scale) : weight;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int d = lane + j * kWarpSize;
    if (d >= a.head_dim) continue;
    const float x = q8 ? static_cast<float>(integers[base + d]) : load_any(values, a.v_dtype, base + d);
    out[j] = out[j] * shrink + of_value * x;
  }
}

// Grid: x = row * n_heads + head, y and z: Share; 4 warps take keys in turn. Shared memory: 5 head_dim
// floats. Bound by the latency of successive keys.
template <int kPerLane>
__global__ void attention_plain_kernel(const __grid_constant__ Attention a) {
  LARIAT_DYNAMIC_SHARED(raw);
  LARIAT_SHARED(PlainState, states, kWarps);
  start_in_turn();
  auto* query = reinterpret_cast<float*>(raw);
  float* results = query + a.head_dim;  // [kWarps][head_dim]
  const int warp = warp_index(), lane = lane_index();
  const int64_t row = blockIdx.x / static_cast<unsigned>(a.n_heads);
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(a.n_heads));
  const Share mine(a);
  load_plain_query(a, mine.range, row, head, query);
  __syncthreads();

  const StepRow at = a.step.row(row);
  void* const* pages = a.step.pages(at.sequence);
  const int64_t position = at.position, first = mine.range.begin.at(position);
  const int64_t last = mine.range.end.at(position), share = ceil_div<int64_t>(last - first, a.shares);
  const int64_t begin = first + mine.index * share;
  const int64_t end = begin + share < last ? begin + share : last;
  const float slope = a.slopes == nullptr ? 0.0F : a.slopes[head] * kLog2E;
  PlainState state;
  if (warp == 0) state.top = mine.start(a, head);
  if (state.top != -INFINITY) state.sum = 1.0F;
  float out[kPerLane] = {};
  for (int64_t key = begin + warp; key < end; key += kWarps) {
    add_key<kPerLane>(a, query, head / a.group(), pages[key / kKvPage], mine.range.k_offset, key, slope,
                      static_cast<int>(key - position), state, out);
  }
  for (int j = 0; j < kPerLane; ++j) {
    const int d = lane + j * kWarpSize;
    if (d < a.head_dim) results[warp * a.head_dim + d] = out[j];
  }
  if (lane == 0) states[warp] = state;
  __syncthreads();

  float top = -INFINITY, sum = 0.0F;
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, states[w].top);
  const float base = top == -INFINITY ? 0.0F : top;
  for (int w = 0; w < kWarps; ++w) sum += exp2f(states[w].top - base) * states[w].sum;
  const int64_t index = state_index(a, mine.split, row, head);
  for (int d = static_cast<int>(threadIdx.x); d < a.value_dim; d += kWarps * kWarpSize) {
    float x = 0.0F;
    for (int w = 0; w < kWarps; ++w) x += exp2f(states[w].top - base) * results[w * a.head_dim + d];
    if (a.splits > 1) {
      a.partial[index * a.head_dim + d] = x;
    } else {
      store_out(a, row, head, d, {x / sum});
    }
  }
  if (a.splits <= 1) return;
  if (threadIdx.x == 0) a.state[index] = {top, sum};
  LARIAT_SHARED(PlainBoard, boards, 1);
  if (a.finished != nullptr && is_last_split(a, boards[0].number)) {
    merge_splits<1>(a, OneRow{row, head}, 1, boards[0].weights, boards[0].sums);
  }
}

int splits(const Attention& a, const AttentionPlan& plan) {
  return attention_splits(a.n_rows * a.n_heads, ceil_div(plan.keys, kMinKeys), 1, plan.multiprocessors);
}

void launch_plain(const Attention& a, const AttentionPlan&, LaunchQueue& queue) {
  if (a.head_dim > kMaxDim) throw Error("head_dim: the CUDA backend supports at most 576; use `device` cpu");
  const dim3 grid = share_grid(a, a.n_rows * a.n_heads);
  const size_t shared_bytes = static_cast<size_t>((kWarps + 1) * a.head_dim) * sizeof(float);
  launch(a.head_dim <= 128 ? attention_plain_kernel<4> : attention_plain_kernel<kMaxDim / kWarpSize>, grid,
         dim3(kWarps * kWarpSize), shared_bytes, queue, a);
}

}  // namespace

const AttentionKernel kAttentionPlain = {true, splits, launch_plain};

}  // namespace lariat::cuda
