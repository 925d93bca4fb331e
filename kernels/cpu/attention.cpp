#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/integers.h"

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

// One query head, rotated and scaled, followed by zeros up to `padded`.
void PrepareQuery(const float* q, const float* cos, const float* sin, const RopeTable& rope, float scale,
                  size_t head_dim, size_t padded, float* out) {
  const auto rotary = static_cast<size_t>(rope.rotary_dim);
  Rotate(q, cos, sin, rotary / 2, rope.interleaved, out);
  Scale(out, rotary, scale * rope.q_scale);
  StoreRow(q + rotary, head_dim - rotary, out + rotary);
  Scale(out + rotary, head_dim - rotary, scale);
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
// From so many query rows per KV head on, widening a block of the cache once is cheaper than converting it in
// registers for every few rows (measured on Zen 4, head_dim 64: equal at some 20 rows).
constexpr int64_t kBlockRows = 24;
// Query rows of one task of a prefill: enough to widen each block for, few enough to stay in the L2 cache.
constexpr int64_t kTaskRows = 192;

// One call of attention, and how it is cut into tasks.
struct Call {
  const Matrix& q;
  const RopeTable& rope;
  const KvLayer& cache;
  int64_t first_position;
  const AttentionParams& shape;
  const Matrix& out;

  int64_t group = shape.n_heads / cache.n_kv_heads;
  int64_t stride = padded_head_dim(cache.head_dim);

  // Tokens [first, first + count) and the query heads of one KV head, over all positions so far.
  AttentionTask task(int64_t kv_head, int64_t first, int64_t count) const {
    AttentionTask result;
    result.cache = &cache;
    result.kv_head = kv_head;
    result.group = group;
    result.rows = count * group;
    result.first_position = first_position + first;
    result.window = shape.sliding_window;
    result.last_key = result.first_position + count;
    result.stride = stride;
    return result;
  }
};

int64_t padded_rows(int64_t rows) { return round_up(rows, kAttentionBlockTile); }
int64_t query_floats(const Call& call, int64_t rows) { return padded_rows(rows) * call.stride; }
int64_t work_floats(const Call& call, int64_t rows) {
  return padded_rows(rows) * (call.stride + 2) + attention_scratch(call.stride);
}

// Gives a task work_floats() of memory and a clean start.
void attach(AttentionTask& task, float* memory) {
  const int64_t rows = padded_rows(task.rows);
  task.acc = memory;
  task.max = task.acc + rows * task.stride;
  task.sum = task.max + rows;
  task.scratch = task.sum + rows;
  std::fill(task.acc, task.acc + rows * task.stride, 0.0F);
  std::fill(task.max, task.max + rows, -kInf);
  std::fill(task.sum, task.sum + rows, 0.0F);
}

// Gives a task its query rows, in query_floats() of memory.
void prepare_queries(const Call& call, AttentionTask& task, float* memory) {
  const int64_t head_dim = call.cache.head_dim, first = task.first_position - call.first_position;
  for (int64_t row = 0; row < task.rows; ++row) {
    const int64_t token = first + row / call.group, head = task.kv_head * call.group + row % call.group;
    HWY_DYNAMIC_DISPATCH(PrepareQuery)
    (call.q.f32(token) + head * head_dim, call.rope.cos.f32(token), call.rope.sin.f32(token), call.rope,
     call.shape.scale, static_cast<size_t>(head_dim), static_cast<size_t>(call.stride),
     memory + row * call.stride);
  }
  std::fill(memory + task.rows * call.stride, memory + padded_rows(task.rows) * call.stride, 0.0F);
  task.q = memory;
}

void run(const AttentionTask& task) {
  // Over an f32 cache, which is how numbers are checked, every row is summed in one order (see matmul.cpp).
  const bool one_order = task.cache->k_dtype == DType::kF32 && task.cache->v_dtype == DType::kF32;
  if (task.rows >= kBlockRows && !one_order) {
    attention_block(task);
  } else {
    attention_stream(task);
  }
}

// out = sum of the parts / sum of their sums, each part brought onto the common maximum.
void write_rows(const Call& call, const AttentionTask* parts, int64_t n_parts) {
  const int64_t head_dim = call.cache.head_dim;
  for (int64_t row = 0; row < parts[0].rows; ++row) {
    float max = -kInf, sum = 0.0F;
    for (int64_t p = 0; p < n_parts; ++p) max = std::max(max, parts[p].max[row]);
    const auto factor = [&](int64_t p) { return std::exp(parts[p].max[row] - max); };
    for (int64_t p = 0; p < n_parts; ++p) sum += factor(p) * parts[p].sum[row];
    const int64_t token = parts[0].position(row) - call.first_position;
    float* out = call.out.f32(token) + (parts[0].kv_head * call.group + row % call.group) * head_dim;
    std::fill(out, out + head_dim, 0.0F);
    for (int64_t p = 0; p < n_parts; ++p) {
      HWY_DYNAMIC_DISPATCH(AddScaled)
      (out, parts[p].acc + row * call.stride, factor(p) / sum, static_cast<size_t>(head_dim));
    }
  }
}

// Many tokens: each task takes some of them over all positions. The last tokens see most and come first.
int64_t tokens_per_task(const Call& call) { return std::max<int64_t>(1, kTaskRows / call.group); }

void attend_tokens(const Call& call, int threads, Buffer& scratch, Backend& backend) {
  const int64_t tokens = tokens_per_task(call), heads = call.cache.n_kv_heads;
  const int64_t chunks = ceil_div(call.q.rows, tokens);
  const int64_t queries = query_floats(call, tokens * call.group);
  const int64_t floats = round_up<int64_t>(queries + work_floats(call, tokens * call.group), 16);
  auto* memory =
      static_cast<float*>(grown(backend, scratch, static_cast<size_t>(threads * floats) * sizeof(float)));
  for_tasks(threads, chunks * heads, [&](int64_t i, int worker) {
    const int64_t first = (chunks - 1 - i / heads) * tokens;
    AttentionTask task = call.task(i % heads, first, std::min(tokens, call.q.rows - first));
    prepare_queries(call, task, memory + worker * floats);
    attach(task, memory + worker * floats + queries);
    run(task);
    write_rows(call, &task, 1);
  });
}

// Few tokens: the positions are split among the threads, and the parts merged.
void attend_positions(const Call& call, int threads, Buffer& scratch, Backend& backend) {
  const int64_t heads = call.cache.n_kv_heads, n = call.q.rows;
  const AttentionTask whole = call.task(0, 0, n);
  const int64_t first = whole.begin(0) / kAttentionKeys * kAttentionKeys, length = whole.last_key - first;
  // Waking a thread is worth it for some 2^18 products.
  const int64_t work = heads * length * whole.rows * call.stride;
  const int team = static_cast<int>(std::clamp<int64_t>(work >> 18, 1, threads));
  const int64_t wanted = team == 1 ? 1 : ceil_div<int64_t>(4 * team, heads);
  const int64_t parts = std::clamp<int64_t>(length / kKvPage, 1, wanted);
  const int64_t step = round_up(ceil_div(length, parts), kAttentionKeys);

  const int64_t queries = query_floats(call, whole.rows);
  const int64_t floats = round_up<int64_t>(work_floats(call, whole.rows), 16);
  auto* memory = static_cast<float*>(
      grown(backend, scratch, static_cast<size_t>(heads * (queries + parts * floats)) * sizeof(float)));
  static thread_local std::vector<AttentionTask> kept;  // a decode step allocates nothing
  std::vector<AttentionTask>& tasks = kept;             // this thread's, for the whole team
  tasks.clear();
  for (int64_t i = 0; i < heads * parts; ++i) {
    AttentionTask& task = tasks.emplace_back(call.task(i / parts, 0, n));
    task.first_key = first + i % parts * step;
    task.last_key = std::min(task.last_key, task.first_key + step);
    if (i % parts == 0) {
      prepare_queries(call, task, memory);
      memory += queries;
    } else {
      task.q = tasks[static_cast<size_t>(i - 1)].q;
    }
    attach(task, memory);
    memory += floats;
  }
  for_tasks(team, heads * parts, [&](int64_t i, int) { run(tasks[static_cast<size_t>(i)]); });
  for (int64_t head = 0; head < heads; ++head) {
    write_rows(call, &tasks[static_cast<size_t>(head * parts)], parts);
  }
}

}  // namespace

void CpuBackend::attention(const Matrix& q, const RopeTable& rope, const KvLayer& cache,
                           int64_t first_position, const AttentionParams& shape, const Matrix& out) {
  if (q.rows == 0) return;
  const Call call{q, rope, cache, first_position, shape, out};
  if (q.rows >= 2 * tokens_per_task(call)) {
    attend_tokens(call, threads_, scratch_, *this);
  } else {
    attend_positions(call, threads_, scratch_, *this);
  }
}

}  // namespace lariat
#endif  // HWY_ONCE
