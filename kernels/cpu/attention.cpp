#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/integers.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

void Scale(float* x, size_t n, float factor) {
  const F32 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    StoreUpTo(hn::Mul(LoadUpTo(x + i, n - i), hn::Set(d, factor)), x + i, n - i);
  }
}

// Rotates, scales and weighs one query head, zero-padded to `padded`.
void PrepareQuery(const float* q, const RopeTable& rope, int64_t row, float scale, const Matrix& weight,
                  size_t head_dim, size_t padded, float* out) {
  const F32 d;
  const auto rotary = static_cast<size_t>(rope.rotary_dim);
  if (rope.whole_q_scale) scale *= *rope.whole_q_scale.f32(row);
  CacheStore<float> store;
  Rotate(q, rope.cos.f32(row), rope.sin.f32(row), rotary / 2, rope.interleaved, out, store);
  Scale(out, rotary, scale * *rope.q_scale.f32(row));
  StoreRow(q + rotary, head_dim - rotary, out + rotary, store);
  Scale(out + rotary, head_dim - rotary, scale);
  for (size_t i = 0; weight && i < head_dim; i += hn::Lanes(d)) {
    const size_t count = head_dim - i;
    StoreUpTo(hn::Mul(LoadUpTo(out + i, count), LoadUpTo(weight.f32() + i, count)), out + i, count);
  }
  for (size_t i = head_dim; i < padded; ++i) out[i] = 0.0F;
}

// total += part * factor
void AddScaled(float* total, const float* part, float factor, size_t n) {
  const F32 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    StoreUpTo(hn::MulAdd(LoadUpTo(part + i, n - i), hn::Set(d, factor), LoadUpTo(total + i, n - i)),
              total + i, n - i);
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(PrepareQuery);
HWY_EXPORT(AddScaled);
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
// From this number of query rows per KV head, widening a cache block is cheaper than converting it in
// registers (Zen 4, head_dim 64: equal at about 20 rows).
constexpr int64_t kBlockRows = 24;
// Query rows of a prefill task: enough to amortise widening, few enough for L2.
constexpr int64_t kTaskRows = 192;
constexpr int64_t kTiledTaskRows = 512;       // the same for attention_tiles
constexpr int64_t kThreadProducts = 1 << 18;  // worth a thread

struct Call {
  const Matrix& q;
  std::span<const KeyRange> ranges;
  const KvLayer& layer;
  const AttentionParams& params;
  const Matrix& out;
  bool rounds;  // whether operands may be rounded to bf16

  KvLayer second = layer.with_second_keys();
  int64_t group = params.n_heads / layer.n_kv_heads;
  int64_t stride = padded_head_dim(layer.head_dim);
  int64_t value_dim = out.cols / params.n_heads;
  bool tiles = rounds && cpu::has_tiled_attention(layer) && value_dim % 32 == 0;
};

struct Share {
  AttentionTask task;
  bool block = false;             // computed by attention_block
  int64_t first_row = 0;          // the task's first token in the step
  int64_t part = 0, n_parts = 1;  // one of n_parts equal parts of the visible positions
  int64_t memory = 0;             // of a part: offset in floats
};

// Each part owns its accumulators until all parts of its rows are done; other tasks reuse their thread's
// memory.
struct Plan {
  std::vector<Share> shares;
  int64_t part_floats = 0;
  int64_t worker_floats = 0;  // of the largest task over all positions
  int64_t products = 0;       // approximate multiply-adds of the call
};

int64_t padded_rows(const Call& call, int64_t rows) {
  if (call.tiles) return round_up(rows, cpu::kTiledRows);
  return std::max(round_up(rows, kAttentionBlockTile), round_up(rows, kAttentionStreamTile));
}

int64_t task_floats(const Call& call, int64_t rows) {
  const int64_t scratch =
      call.tiles ? cpu::TiledMemory(rows, call.layer, nullptr).bytes / 4 : attention_scratch(call.stride);
  return round_up<int64_t>(2 * padded_rows(call, rows) * (call.stride + 1) + scratch, 16);
}

int64_t head_of(const Call& call, const Share& share, int64_t row) {
  return share.task.kv_head * call.group + row % call.group;
}

// An attention sink adds to the softmax's sum only. Maxima of tiles are integers, in log2 units.
void prepare(const Call& call, Share& share, float* memory) {
  AttentionTask& task = share.task;
  const int64_t rows = padded_rows(call, task.rows);
  std::fill(memory + task.rows * call.stride, memory + 2 * rows * call.stride, 0.0F);
  task.q = memory;
  task.acc = memory + rows * call.stride;
  task.max = task.acc + rows * call.stride;
  task.sum = task.max + rows;
  task.scratch = task.sum + rows;
  std::fill(task.max, task.max + rows, -kInf);
  std::fill(task.sum, task.sum + rows, 0.0F);
  for (int64_t row = 0; call.params.sinks && share.part == 0 && row < task.rows; ++row) {
    const float sink = call.params.sinks.f32()[head_of(call, share, row)];
    const bool tiled = call.tiles && share.block;
    task.max[row] = tiled ? std::ceil(sink * cpu::kLog2E) : sink;
    task.sum[row] = tiled ? std::exp2(sink * cpu::kLog2E - task.max[row]) : 1.0F;
  }
}

// Sets a task's part of a range and rotates its queries. Returns false if the part is empty.
bool enter_range(const Call& call, const KeyRange& range, Share& share) {
  AttentionTask& task = share.task;
  task.layer = range.second ? &call.second : &call.layer;
  task.first_seen = range.begin;
  task.last_seen = range.end;
  const int64_t align = call.tiles ? kKvPage : kAttentionKeys;
  const int64_t first = task.begin(0) / align * align, end = task.end(task.rows - 1);
  const int64_t step = round_up(ceil_div(std::max<int64_t>(end - first, 0), share.n_parts), align);
  task.first_key = first + share.part * step;
  task.last_key = std::min(end, task.first_key + step);
  if (task.first_key >= task.last_key) return false;
  const int64_t head_dim = call.layer.head_dim;
  const float scale = call.params.scale * (call.tiles && share.block ? cpu::kLog2E : 1.0F);
  for (int64_t row = 0; row < task.rows; ++row) {
    const int64_t token = share.first_row + row / call.group;
    HWY_DYNAMIC_DISPATCH(PrepareQuery)
    (call.q.f32(token) + head_of(call, share, row) * head_dim, range.rope, token, scale, call.params.q_weight,
     static_cast<size_t>(head_dim), static_cast<size_t>(call.stride), task.q + row * call.stride);
  }
  return true;
}

// out = sum of the parts / sum of their weights, both rescaled to the common maximum.
void write_rows(const Call& call, const Share* parts) {
  const int64_t value_dim = call.value_dim, n_parts = parts->n_parts;
  for (int64_t row = 0; row < parts->task.rows; ++row) {
    float max = -kInf, sum = 0.0F;
    for (int64_t p = 0; p < n_parts; ++p) max = std::max(max, parts[p].task.max[row]);
    const float common = max == -kInf ? 0.0F : max;  // without keys
    const auto factor = [&](int64_t p) {
      return n_parts == 1 ? 1.0F : std::exp(parts[p].task.max[row] - common);
    };
    for (int64_t p = 0; p < n_parts; ++p) sum += factor(p) * parts[p].task.sum[row];
    const int64_t token = parts->first_row + row / call.group, head = head_of(call, *parts, row);
    float* out = call.out.f32(token) + head * value_dim;
    std::fill(out, out + value_dim, 0.0F);
    if (const Matrix& state = call.params.state) {
      state.f32(token)[head] = max;
      state.f32(token)[call.params.n_heads + head] = sum;
      if (sum == 0.0F) continue;
    }
    for (int64_t p = 0; p < n_parts; ++p) {
      HWY_DYNAMIC_DISPATCH(AddScaled)
      (out, parts[p].task.acc + row * call.stride, factor(p) / sum, static_cast<size_t>(value_dim));
    }
  }
}

// All rows of a sequence in a step use one kernel, whatever the partition.
bool takes_blocks(const Call& call, const StepSequence& sequence) {
  return sequence.n_tokens * call.group >= kBlockRows;
}

// Task of tokens [first, first + count) of a sequence and one KV head.
Share share_of(const Call& call, const StepSequence& sequence, int64_t first_row, int64_t kv_head,
               int64_t first, int64_t count) {
  Share share;
  share.task.pages = sequence.pages;
  share.task.kv_head = kv_head;
  share.task.group = call.group;
  share.task.rows = count * call.group;
  share.task.first_position = sequence.first_position + first;
  share.task.softcap = call.params.softcap;
  if (call.params.slopes) share.task.slopes = call.params.slopes.f32() + kv_head * call.group;
  share.task.stride = call.stride;
  share.task.value_stride = padded_head_dim(call.value_dim);
  share.block = takes_blocks(call, sequence);
  share.first_row = first_row + first;
  return share;
}

int64_t tokens_per_task(const Call& call) {
  return std::max<int64_t>(1, (call.tiles ? kTiledTaskRows : kTaskRows) / call.group);
}

// The last tokens see the most keys and come first.
void plan_tokens(const Call& call, const StepSequence& sequence, int64_t first_row, Plan& plan) {
  const int64_t tokens = tokens_per_task(call), heads = call.layer.n_kv_heads;
  for (int64_t chunk = ceil_div(sequence.n_tokens, tokens) - 1; chunk >= 0; --chunk) {
    const int64_t first = chunk * tokens, count = std::min(tokens, sequence.n_tokens - first);
    for (int64_t head = 0; head < heads; ++head) {
      plan.shares.push_back(share_of(call, sequence, first_row, head, first, count));
    }
  }
  plan.worker_floats = std::max(plan.worker_floats, task_floats(call, tokens * call.group));
  const int64_t positions = sequence.first_position + sequence.n_tokens;
  plan.products += heads * positions * sequence.n_tokens * call.group * call.stride;
}

// Splits the positions as if the threads had no other work: a sequence's result does not depend on other
// sequences.
void plan_positions(const Call& call, const StepSequence& sequence, int64_t first_row, int threads,
                    Plan& plan) {
  const int64_t heads = call.layer.n_kv_heads;
  const int64_t rows = sequence.n_tokens * call.group;
  int64_t length = 0;
  for (const KeyRange& range : call.ranges) {
    const int64_t first = range.begin.at(sequence.first_position) / kAttentionKeys * kAttentionKeys;
    const int64_t end = range.end.at(sequence.first_position + sequence.n_tokens - 1);
    length += std::max<int64_t>(end - first, 0);
  }
  length = std::min(length, sequence.first_position + sequence.n_tokens);
  const int64_t products = heads * length * rows * call.stride;
  const int64_t team = team_for(products, kThreadProducts, threads);
  const int64_t wanted = team == 1 ? 1 : ceil_div<int64_t>(4 * team, heads);
  const int64_t parts = std::clamp<int64_t>(length / kKvPage, 1, wanted);
  const int64_t floats = task_floats(call, rows);
  for (int64_t i = 0; i < heads * parts; ++i) {
    Share& share =
        plan.shares.emplace_back(share_of(call, sequence, first_row, i / parts, 0, sequence.n_tokens));
    share.part = i % parts;
    share.n_parts = parts;
    share.memory = plan.part_floats;
    if (parts > 1) plan.part_floats += floats;
  }
  if (parts == 1) plan.worker_floats = std::max(plan.worker_floats, floats);
  plan.products += products;
}

void make_plan(const Call& call, std::span<const StepSequence> step, int threads, Plan& plan) {
  plan.shares.clear();
  plan.part_floats = plan.worker_floats = plan.products = 0;
  for (const bool many : {true, false}) {  // larger tasks first
    int64_t row = 0;
    for (const StepSequence& sequence : step) {
      if (sequence.n_tokens > 0 && many == (sequence.n_tokens >= 2 * tokens_per_task(call))) {
        many ? plan_tokens(call, sequence, row, plan) : plan_positions(call, sequence, row, threads, plan);
      }
      row += sequence.n_tokens;
    }
  }
}

}  // namespace

void CpuBackend::attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges,
                           const KvLayer& layer, const AttentionParams& params, const Matrix& out) {
  const Call call{q, ranges, layer, params, out, activation_bits_ == 8};
  static thread_local Plan kept;  // a decode step allocates nothing
  Plan& plan = kept;              // shared with the thread's team
  make_plan(call, step.sequences, threads_, plan);
  for (const StepSequence& sequence : step.sequences) {
    if (sequence.n_tokens > 0)
      ++(takes_blocks(call, sequence) ? paths_.attention_block : paths_.attention_stream);
  }
  const auto n_shares = static_cast<int64_t>(plan.shares.size());
  const int team = team_for(plan.products, kThreadProducts, threads_);
  const int64_t floats = plan.part_floats + team * plan.worker_floats;
  auto* memory = static_cast<float*>(scratch(static_cast<size_t>(floats) * sizeof(float)));
  for_tasks(team, n_shares, [&](int64_t i, int worker) {
    Share& share = plan.shares[static_cast<size_t>(i)];
    const bool all = share.n_parts == 1;
    prepare(call, share, memory + (all ? plan.part_floats + worker * plan.worker_floats : share.memory));
    const auto tiled = cpu::has_amx_bf16() ? cpu::attention_amx : cpu::attention_pairs;
    const auto attend = !share.block ? attention_stream : call.tiles ? tiled : attention_block;
    for (const KeyRange& range : call.ranges) {
      if (enter_range(call, range, share)) attend(share.task);
    }
    for (int64_t row = 0; attend == tiled && row < share.task.rows; ++row) share.task.max[row] *= cpu::kLn2;
    if (all) write_rows(call, &share);
  });
  if (plan.part_floats == 0) return;
  for_ranges(threads_, n_shares, row_grain(plan.part_floats / n_shares), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const Share& share = plan.shares[static_cast<size_t>(i)];
      if (share.n_parts > 1 && share.part == 0) write_rows(call, &share);
    }
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
