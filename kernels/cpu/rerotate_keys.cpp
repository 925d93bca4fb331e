#include "kernels/cpu/cpu_backend.h"
#include "kernels/integers.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rerotate_keys.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Re-rotates the first cos.rows positions of a page. Returns the count of +-65504 among the rotated numbers.
int64_t RerotatePage(const KvLayer& layer, void* page, const Matrix& cos, const Matrix& sin,
                     bool interleaved) {
  int64_t saturated = 0;
  WithDType(layer.keys(page), layer.k_dtype, [&]<typename T>(T* keys) HWY_ATTR {
    CacheStore<T> store;
    for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
      T* key = keys + kv_index(head, 0, 0, layer.head_dim);
      for (int64_t i = 0; i < cos.rows; ++i, key += layer.head_dim) {
        Rotate(key, cos.f32(i), sin.f32(i), static_cast<size_t>(cos.cols), interleaved, key, store);
      }
    }
    if (!store.saturated()) return;
    for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
      for (int64_t i = 0; i < cos.rows; ++i) {
        const T* key = keys + kv_index(head, i, 0, layer.head_dim);
        saturated += CountSaturated(key, static_cast<size_t>(2 * cos.cols));
      }
    }
  });
  return saturated;
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(RerotatePage);
namespace {

int64_t n_pages(const KeyRotation& sequence) {
  return sequence.to.inv_freq.empty() ? 0 : ceil_div(sequence.n_positions, kKvPage);
}

bool by_place(const KeyRotation& sequence) { return sequence.new_positions().empty(); }

}  // namespace

// A task is one page for a group of layers: every head of these layers shares the page's angles.
void CpuBackend::rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                               bool interleaved) {
  const auto n_layers = static_cast<int64_t>(layers.size());
  if (angles_.size() < sequences.size()) angles_.resize(sequences.size());
  int64_t total_pages = 0, pairs = 0, positions = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (n_pages(sequences[s]) == 0) continue;
    if (by_place(sequences[s])) {
      std::vector<double> change(sequences[s].to.inv_freq.size());
      for (size_t j = 0; j < change.size(); ++j) change[j] = sequences[s].angle(1, j);
      angles_[s].prepare(change, 0, sequences[s].n_positions);
    }
    total_pages += n_pages(sequences[s]);
    pairs = std::max(pairs, static_cast<int64_t>(sequences[s].to.inv_freq.size()));
    positions += sequences[s].n_positions;
  }
  if (n_layers == 0 || total_pages == 0) return;
  const int64_t n_groups = total_pages >= 4 * threads_ ? 1 : std::min<int64_t>(n_layers, threads_);
  const int threads = positions * n_layers < 64 ? 1 : threads_;
  const auto worker_bytes =
      static_cast<size_t>(pairs) * (2 * kKvPage * sizeof(float) + RopeAngles::kWork * sizeof(double));
  auto* memory = static_cast<char*>(scratch(static_cast<size_t>(threads) * worker_bytes));
  for_tasks(threads, total_pages * n_groups, [&](int64_t task, int worker) {
    int64_t page = task / n_groups;
    size_t s = 0;
    for (; page >= n_pages(sequences[s]); ++s) page -= n_pages(sequences[s]);
    const KeyRotation& sequence = sequences[s];
    if (sequence.pages[page] == nullptr) return;
    const int64_t group = task % n_groups, cols = static_cast<int64_t>(sequence.to.inv_freq.size());
    const int64_t count = std::min(kKvPage, sequence.n_positions - page * kKvPage);
    auto* work = reinterpret_cast<double*>(memory + static_cast<size_t>(worker) * worker_bytes);
    const Matrix cos(work + RopeAngles::kWork * cols, DType::kF32, count, cols);
    const Matrix sin(cos.f32(count), DType::kF32, count, cols);
    if (by_place(sequence)) {
      angles_[s].fill(page * kKvPage, cos, sin, work);
    } else {
      fill_angles(cos, sin, [&](int64_t i, size_t pair) { return sequence.angle(page * kKvPage + i, pair); });
    }
    int64_t saturated = 0;
    for (int64_t layer = n_layers * group / n_groups; layer < n_layers * (group + 1) / n_groups; ++layer) {
      saturated += HWY_DYNAMIC_DISPATCH(RerotatePage)(layers[static_cast<size_t>(layer)],
                                                      sequence.pages[page], cos, sin, interleaved);
    }
    if (saturated != 0) saturated_keys_ += saturated;
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
