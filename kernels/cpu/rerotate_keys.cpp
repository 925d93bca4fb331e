#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/integers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rerotate_keys.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// The first cos.rows positions of one block of one layer's keys; row i of cos and sin is the block's position
// i.
void RerotateBlock(const KvLayer& layer, int64_t block, const Matrix& cos, const Matrix& sin,
                   bool interleaved) {
  WithDType(layer.k_blocks[block], layer.k_dtype, [&](auto* keys) HWY_ATTR {
    for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
      auto* key = keys + kv_index(head, 0, 0, layer.head_dim);
      for (int64_t i = 0; i < cos.rows; ++i, key += layer.head_dim) {
        Rotate(key, cos.f32(i), sin.f32(i), static_cast<size_t>(cos.cols), interleaved, key);
      }
    }
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(RerotateBlock);

// A task is one block of positions for a group of layers: its angles are made once and serve every head of
// every layer of the group. All layers form one group as soon as there are blocks enough for the threads.
void CpuBackend::rerotate_keys(std::span<const KvLayer> layers, int64_t n_positions,
                               std::span<const double> delta_inv_freq, bool interleaved) {
  const auto n_layers = static_cast<int64_t>(layers.size()),
             pairs = static_cast<int64_t>(delta_inv_freq.size());
  if (n_layers == 0 || n_positions == 0 || pairs == 0) return;
  const int64_t n_blocks = ceil_div(n_positions, kKvPage);
  const int64_t n_groups = n_blocks >= 4 * threads_ ? 1 : std::min<int64_t>(n_layers, threads_);
  angles_.prepare(delta_inv_freq, 0, n_positions);
  const int threads = n_positions * n_layers < 64 ? 1 : threads_;
  // Of each thread: the angles of a block in f32, and what making them needs.
  const auto worker_bytes =
      static_cast<size_t>(pairs) * (2 * kKvPage * sizeof(float) + RopeAngles::kWork * sizeof(double));
  auto* memory = static_cast<char*>(grown(*this, scratch_, static_cast<size_t>(threads) * worker_bytes));
  for_tasks(threads, n_blocks * n_groups, [&](int64_t task, int worker) {
    const int64_t block = task / n_groups, group = task % n_groups;
    const int64_t count = std::min(kKvPage, n_positions - block * kKvPage);
    auto* work = reinterpret_cast<double*>(memory + static_cast<size_t>(worker) * worker_bytes);
    const Matrix cos(work + RopeAngles::kWork * pairs, DType::kF32, count, pairs);
    const Matrix sin(cos.f32(count), DType::kF32, count, pairs);
    angles_.fill(block * kKvPage, cos, sin, work);
    for (int64_t layer = n_layers * group / n_groups; layer < n_layers * (group + 1) / n_groups; ++layer) {
      HWY_DYNAMIC_DISPATCH(RerotateBlock)
      (layers[static_cast<size_t>(layer)], block, cos, sin, interleaved);
    }
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
