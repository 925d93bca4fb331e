#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/error.h"
#include "models/spec.h"

namespace lariat {

// A sequence beyond SessionOptions::max_ctx.
struct ContextFull : Error {
  explicit ContextFull(const std::string& what) : Error(what + "; shorten the prompt or raise `max_ctx`") {}
};

// The source of the pages of a session's caches: their common geometry (KvGeometry in kernels/step.h),
// and how many are in use. Must outlive them.
class KvPool {
 public:
  // second_keys: where keys are rotated, each has room for a second rotation (KvLayer).
  KvPool(const ModelSpec& spec, Backend& backend, DType k_dtype, DType v_dtype, bool second_keys = false);
  KvPool(const KvPool&) = delete;  // pages point at it
  KvPool& operator=(const KvPool&) = delete;

  // One page, freed by the last cache that holds it. It lies in memory of the backend's, or in memory that
  // `owner` keeps (a mapped file).
  class Page {
   public:
    Page(KvPool& pool, Buffer memory);
    Page(KvPool& pool, void* data, std::shared_ptr<const void> owner);
    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;
    ~Page() { --pool_.pages_; }
    void* data() const { return data_; }

   private:
    KvPool& pool_;
    Buffer memory_;
    std::shared_ptr<const void> owner_;
    void* data_;
  };
  std::shared_ptr<Page> allocate();  // throws Error when the backend has no memory left

  const KvGeometry& geometry() const { return geometry_; }
  // The layers whose keys are rotated with the sequence's RoPE frequencies, not with a local table or none.
  std::span<const KvLayer> rotated_layers() const { return rotated_layers_; }
  std::span<const uint8_t> mrope_axes() const { return mrope_axes_; }  // ModelSpec::mrope_axes
  Backend& backend() const { return backend_; }
  int64_t pages() const { return pages_; }  // in use, those in mapped files included
  size_t bytes() const { return static_cast<size_t>(pages_) * geometry_.page_bytes; }
  size_t k_bytes_per_position() const { return k_bytes_; }  // of all layers
  size_t v_bytes_per_position() const { return v_bytes_; }

 private:
  Backend& backend_;
  KvGeometry geometry_;
  std::vector<KvLayer> rotated_layers_;
  std::vector<uint8_t> mrope_axes_;
  size_t k_bytes_ = 0, v_bytes_ = 0;
  int64_t pages_ = 0;
};

// How often the keys of a cache were re-rotated, and what that cost.
struct RerotationStats {
  int64_t count = 0;      // re-rotations of the whole cache
  int64_t positions = 0;  // positions rewritten, summed over re-rotations
  double seconds = 0;
};

// The RoPE positions of a cache's keys; empty: their indices. second_from, second_to: the angles of the
// second keys, if the cache has any, and those to rotate them to.
struct KeyPositions {
  std::span<const double> keys{};
  KeyRotation::Angles second_from{}, second_to{};
};

// The KV cache of one sequence: rotated keys, which always know the RoPE frequencies that they are rotated
// with. It grows by pages of kKvPage positions. Pages may be shared with other caches; one that is to be
// written is copied first.
class KvCache {
 public:
  KvCache(KvPool& pool, RopeFrequencies frequencies);

  KvPool& pool() const { return *pool_; }
  int64_t length() const { return length_; }            // positions filled
  void* const* pages() const { return table_.data(); }  // as in StepSequence
  const RopeFrequencies& frequencies() const { return frequencies_; }
  // Whether all its keys are rotated with them; not after a change that left the keys as they were (a stale
  // cache).
  bool consistent() const { return consistent_; }
  const RerotationStats& rerotations() const { return stats_; }
  // Bytes of all its pages, shared ones included.
  size_t bytes() const;

  // Pages for positions up to `positions`, those from length() on its own, to be written. Throws Error saying
  // how much memory the cache has and wants; the cache then holds what it held.
  void reserve(int64_t positions);
  // Whether the pages of positions [first, last), as far as there were any, have not been dropped.
  bool holds(int64_t first, int64_t last) const;
  // Whether they are there already.
  bool has_room(int64_t positions) const;

  void advance(int64_t n) { length_ += n; }  // n positions after length() have been written
  // Forgets the positions from `length` on; keeps their memory.
  void truncate(int64_t length);
  // Becomes the first `length` positions of `from`, sharing its pages.
  void share_prefix(const KvCache& from, int64_t length);
  // Frees the pages whose positions all lie in [first, last), which no key range reaches any more. What
  // re-rotates, saves or shares the cache leaves them out.
  void drop(int64_t first, int64_t last);
  // Pages for `length` positions (null: dropped), and the frequencies that their keys are rotated with.
  struct Contents {
    std::vector<std::shared_ptr<KvPool::Page>> pages;
    int64_t length = 0;
    RopeFrequencies frequencies;
  };
  void restore(Contents contents);

 private:
  friend void set_frequencies(KvPool& pool, std::span<KvCache* const> caches,
                              std::span<const RopeFrequencies> frequencies, bool interleaved, bool rerotate,
                              std::span<const KeyPositions> positions);
  void own_pages(size_t first, size_t last);

  KvPool* pool_;
  int64_t length_ = 0;
  RopeFrequencies frequencies_;
  bool consistent_ = true;
  RerotationStats stats_;
  std::vector<std::shared_ptr<KvPool::Page>> pages_;
  std::vector<void*> table_;  // their addresses
};

// Gives each cache its new RoPE frequencies. With rerotate = true the cached keys follow, in place, all of
// them in one call of the backend; with false they stay as they are (a stale cache). Frequencies that differ
// only in attention_factor move no key. positions: of each cache, or of none. Throws Error when shared pages
// have to be copied and there is no memory.
void set_frequencies(KvPool& pool, std::span<KvCache* const> caches,
                     std::span<const RopeFrequencies> frequencies, bool interleaved, bool rerotate,
                     std::span<const KeyPositions> positions = {});

}  // namespace lariat
