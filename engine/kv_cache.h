#pragma once
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/config.h"

namespace lariat {

// How often the keys of a cache were moved to a new clock, and what that cost.
struct RerotationStats {
  int64_t count = 0;      // re-rotations of the whole cache
  int64_t positions = 0;  // positions rewritten, summed over re-rotations
  double seconds = 0;
};

// The KV cache of one sequence: rotated keys that always know which clock (inv_freq) they are on.
// Memory grows with the sequence, kKvPage positions at a time (layout: KvLayer in kernels/backend.h).
class KvCache {
 public:
  KvCache(const ModelSpec& config, Backend& backend, DType k_dtype, DType v_dtype);

  int64_t length() const { return length_; }  // positions filled
  std::span<const KvLayer> layers() const { return layers_; }
  const RopeFrequencies& clock() const { return clock_; }
  const RerotationStats& rerotations() const { return stats_; }
  size_t bytes() const;  // allocated for keys and values
  size_t k_bytes_per_position() const;
  size_t v_bytes_per_position() const;

  // Room for `positions` positions in every layer. Throws Error saying how much memory the cache has and
  // wants; the cache is then as before.
  void reserve(int64_t positions);

  // Puts the cache on a clock. With rerotate = true the cached keys follow, in place (I1); with false they
  // stay as they are (`--rope-cache stale`). A clock that differs only in attention_factor moves no key (I2).
  void set_frequencies(const RopeFrequencies& clock, bool rerotate);

  void advance(int64_t n) { length_ += n; }               // n positions after length() have been written
  void truncate(int64_t length);                          // forgets what follows; keeps the memory
  void copy_prefix(const KvCache& from, int64_t length);  // becomes the first `length` positions of `from`

 private:
  Backend& backend_;
  DType k_dtype_, v_dtype_;
  int64_t n_layers_, n_kv_heads_, head_dim_;
  bool interleaved_;
  int64_t length_ = 0;
  RopeFrequencies clock_;
  RerotationStats stats_;
  std::vector<Buffer> buffers_;                          // [block][layer][k, v] in order of allocation
  std::vector<std::vector<void*>> k_blocks_, v_blocks_;  // [layer][block]
  std::vector<KvLayer> layers_;
};

}  // namespace lariat
