#include <algorithm>

#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/cuda_backend.h"

namespace lariat {
namespace cuda {

bool tensor_cores_support(DType k_dtype, DType v_dtype, int64_t head_dim) {
  const bool types = k_dtype != DType::kF32 && v_dtype != DType::kF32 && v_dtype != DType::kQ8 &&
                     !(k_dtype == DType::kBF16 && v_dtype == DType::kF16);
  return types && head_dim % 8 == 0 && head_dim <= 256;
}

int attention_splits(int64_t blocks, int64_t key_tiles, int64_t min_tiles, int multiprocessors) {
  const int64_t wanted = int64_t{2} * multiprocessors / blocks;
  const int64_t possible = std::min<int64_t>(kMaxSplits, key_tiles / min_tiles);
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, possible), 1, kMaxSplits));
}

}  // namespace cuda

namespace {

using namespace cuda;

constexpr int64_t kDecodeRows = 32;  // up to this number of packed rows, 16 rows per block are faster
constexpr int kMergeColumns = 128, kMergeGroups = 4;

// Grid: one block per (row, head), with 128 threads for each of up to four groups. Bound by latency.
__global__ void merge_kernel(const __grid_constant__ Attention a) {
  LARIAT_SHARED(float, weights, kMaxSplits);
  LARIAT_SHARED(float, sums, kMergeGroups* kMergeColumns);
  start_in_turn();
  const int64_t row = blockIdx.x / static_cast<unsigned>(a.n_heads);
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(a.n_heads));
  merge_splits<1>(a, OneRow{row, head}, 1, weights, sums);
}

Attention describe(const Matrix& q, std::span<const KeyRange> ranges, const KvLayer& layer,
                   const AttentionParams& params, const DeviceStep& step, const Matrix& out) {
  Attention a = zeroed<Attention>();
  a.q = typed<float>(q);
  a.q_stride = q.stride;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const RopeTable& rope = ranges[i].rope;
    a.ranges[i] = {ranges[i].begin,
                   ranges[i].end,
                   static_cast<int64_t>(ranges[i].second ? layer.second_k_offset : layer.k_offset),
                   typed<float>(rope.cos),
                   typed<float>(rope.sin),
                   typed<float>(rope.q_scale),
                   typed<float>(rope.whole_q_scale),
                   rope.cos.stride,
                   rope.sin.stride,
                   rope.q_scale.stride,
                   rope.whole_q_scale.stride};
  }
  a.rotary_dim = static_cast<int>(ranges[0].rope.rotary_dim);
  a.interleaved = ranges[0].rope.interleaved;
  a.scale = params.scale * kLog2E;
  a.softcap = params.softcap * kLog2E;
  a.softcap_slope = params.softcap > 0.0F ? 2.0F / params.softcap : 0.0F;
  a.slopes = typed<float>(params.slopes);
  a.sinks = typed<float>(params.sinks);
  a.q_weight = typed<float>(params.q_weight);
  a.step = step;
  a.v_offset = static_cast<int64_t>(layer.v_offset);
  a.k_dtype = layer.k_dtype;
  a.v_dtype = layer.v_dtype;
  a.n_heads = static_cast<int>(params.n_heads);
  a.n_kv_heads = static_cast<int>(layer.n_kv_heads);
  a.head_dim = static_cast<int>(layer.head_dim);
  a.value_dim = static_cast<int>(out.cols / params.n_heads);
  a.n_rows = q.rows;
  a.out = out.data;
  a.out_dtype = out.dtype;
  a.out_stride = out.stride;
  return a;
}

// 128 rows per block are the fastest if every multiprocessor gets a block: 315 vs 237 TFLOP/s for 8,192
// tokens on an H100, but 52 vs 72 for 512 tokens.
const AttentionKernel& attention_kernel(const Attention& a, const AttentionPlan& plan) {
  const int64_t rows = plan.tokens * a.group();
  if (rows <= kDecodeRows) return kAttentionDecode;
  const int64_t blocks = ceil_div<int64_t>(rows, 128) * plan.sequences * a.n_kv_heads;
  return blocks > plan.multiprocessors ? kAttentionPrefill : kAttentionShort;
}

}  // namespace

void CudaBackend::attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges,
                            const KvLayer& layer, const AttentionParams& params, const Matrix& out) {
  if (q.rows == 0) return;
  const SequenceTables& tables = enter(step);
  Attention a = describe(q, ranges, layer, params, on_device(tables), out);
  AttentionPlan plan = {tables.count, tables.longest, 1, device_.multiprocessors};
  for (const KeyRange& range : ranges)
    plan.keys = std::max(plan.keys, std::min(tables.planned_length, range.most_keys(plan.tokens)));

  const bool tensor_cores =
      tensor_cores_support(a.k_dtype, a.v_dtype, a.head_dim) && a.value_dim % 8 == 0 && rows_aligned16(out);
  const AttentionKernel& kernel = tensor_cores ? attention_kernel(a, plan) : kAttentionPlain;
  const auto n_ranges = static_cast<int>(ranges.size());
  a.shares = std::min(kernel.splits(a, plan), kMaxSplits / n_ranges);
  a.splits = a.shares * n_ranges;
  if (a.splits > 1) {
    const auto results = static_cast<size_t>(a.splits * a.n_rows * a.n_heads);
    const size_t state_bytes = round_up<size_t>(results * sizeof(float2), 16);
    auto* memory = static_cast<char*>(scratch(
        Scratch::kAttention, state_bytes + results * static_cast<size_t>(a.head_dim) * sizeof(float)));
    a.state = reinterpret_cast<float2*>(memory);
    a.partial = reinterpret_cast<float*>(memory + state_bytes);
  }
  if (a.shares > 1 && kernel.merges) a.finished = static_cast<unsigned*>(finished_blocks_.data());
  kernel.launch(a, plan, queue_);
  if (a.splits > 1 && a.finished == nullptr) {
    const auto threads = static_cast<unsigned>(kMergeColumns * std::min(a.splits, kMergeGroups));
    launch(merge_kernel, dim3(to_unsigned(a.n_rows * a.n_heads)), dim3(threads), 0, queue_, a);
  }
}

}  // namespace lariat
