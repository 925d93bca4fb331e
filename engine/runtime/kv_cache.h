#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/page_ids.h"
#include "kernels/backend.h"
#include "kernels/error.h"
#include "models/spec/spec.h"

namespace lariat {

struct ContextFull : Error {
  explicit ContextFull(const std::string& what, bool fixed_ctx = false)
      : Error(what + (fixed_ctx ? "; shorten the prompt" : "; shorten the prompt or raise `max_ctx`")) {}
};

// No memory for a page. Another sequence may free some.
struct CacheFull : Error {
  using Error::Error;
};

class Ranks;

// Allocates the pages of a session's caches. Must outlive the caches.
class KvPool {
 public:
  // second_keys: reserve memory for a second rotation of each rotated key (KvLayer). ranks: repeat changes of
  // pages on the other ranks; null: one process. most_bytes: limit of all pages; 0: the backend's memory.
  KvPool(const ModelSpec& spec, Backend& backend, DType k_dtype, DType v_dtype, bool second_keys = false,
         Ranks* ranks = nullptr, size_t most_bytes = 0);
  KvPool(const KvPool&) = delete;  // pages refer to the pool
  KvPool& operator=(const KvPool&) = delete;

  // Freed with the last cache that holds it. Its memory belongs to the backend or to `owner` (a mapped file).
  class Page {
   public:
    Page(KvPool& pool, Buffer memory);
    Page(KvPool& pool, void* data, std::shared_ptr<const void> owner);
    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;
    void* data() const { return data_; }
    int32_t id() const { return id_.value(); }
    int64_t name = 0;  // PrefixCache; 0: none

   private:
    const PageIds::Id id_;
    Buffer memory_;
    std::shared_ptr<const void> owner_;
    void* data_;
  };
  // Page `index` of a sequence, null data() if another rank owns it. Throws CacheFull.
  std::shared_ptr<Page> allocate(int64_t index);
  // Number of pages that more sequences may take now: up to the limit, and half of the backend's free memory,
  // since running sequences grow, and memory-mapped weights count as free memory of the host.
  int64_t free_pages() const;
  // allocate() calls free_a_page before it throws, and tries again where that returns true.
  void when_full(std::function<bool()> free_a_page) { free_a_page_ = std::move(free_a_page); }
  bool owns(int64_t index) const;  // whether this process stores page `index` of a sequence

  const KvGeometry& geometry() const { return geometry_; }
  // Layers that use the sequence's RoPE frequencies, rather than a local RoPE or none. second_keys: as layers
  // of the second keys.
  std::vector<KvLayer> rotated_layers(bool second_keys = false) const;
  std::span<const uint8_t> mrope_axes() const { return mrope_axes_; }  // ModelSpec::mrope_axes
  Backend& backend() const { return backend_; }
  Ranks* ranks() const { return ranks_; }
  int64_t pages() const { return ids_.in_use(); }  // including mapped files
  size_t bytes() const { return static_cast<size_t>(pages()) * geometry_.page_bytes; }
  size_t k_bytes_per_position() const { return k_bytes_; }  // sum over all layers
  size_t v_bytes_per_position() const { return v_bytes_; }

 private:
  Backend& backend_;
  Ranks* ranks_;
  KvGeometry geometry_;
  std::vector<KvLayer> rotated_layers_;
  std::vector<uint8_t> mrope_axes_;
  size_t k_bytes_ = 0, v_bytes_ = 0;
  PageIds ids_;
  int64_t most_pages_ = std::numeric_limits<int64_t>::max();
  std::function<bool()> free_a_page_ = [] { return false; };
};

struct RerotationStats {
  int64_t count = 0;      // of the whole cache
  int64_t positions = 0;  // rewritten, summed over re-rotations
  double seconds = 0;
};

// RoPE positions of a cache's keys; empty: their indices. second_from and second_to: old and new angles of
// the second keys; empty new positions keep the old ones.
struct KeyPositions {
  std::span<const double> keys{};
  KeyRotation::Angles second_from{}, second_to{};
};

// The paged KV cache of one sequence, with the RoPE frequencies of its keys. Caches may share pages of
// kKvPage positions; a shared page is copied before it is written.
class KvCache {
 public:
  KvCache(KvPool& pool, RopeFrequencies frequencies);

  KvPool& pool() const { return *pool_; }
  int64_t length() const { return length_; }
  void* const* pages() const { return table_.data(); }
  std::span<const std::shared_ptr<KvPool::Page>> held_pages() const { return pages_; }  // null: dropped
  const RopeFrequencies& frequencies() const { return frequencies_; }
  // Whether all cached keys are rotated with frequencies(); a stale cache's are not.
  bool consistent() const { return consistent_; }
  const RerotationStats& rerotations() const { return stats_; }
  // Includes shared pages.
  size_t bytes() const;

  // Allocates pages up to `positions`; pages from length() on become exclusive. If it throws CacheFull,
  // cached keys and values are unchanged.
  void reserve(int64_t positions);
  // Whether no page of positions [first, last) was dropped.
  bool holds(int64_t first, int64_t last) const;
  // Whether reserve(positions) would neither allocate nor copy a page.
  bool has_room(int64_t positions) const;

  void advance(int64_t n) { length_ += n; }  // marks n positions after length() as written
  // Removes positions from `length` on; keeps their pages.
  void truncate(int64_t length);
  // Replaces this cache by a prefix of `from`, sharing pages.
  void share_prefix(const KvCache& from, int64_t length);
  // Frees pages inside [first, last). No later key range may reach these positions; re-rotating, saving and
  // sharing skip dropped pages.
  void drop(int64_t first, int64_t last);
  // Pages for `length` positions (null: dropped) and the RoPE frequencies of their keys.
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
  std::vector<void*> table_;  // addresses of pages_
};

// Sets the RoPE frequencies of each cache. rerotate: re-rotate all cached keys in place, in one backend call;
// false: keep them (a stale cache). A change of attention_factor alone moves no key. positions: one per
// cache, or empty. Throws CacheFull if copying shared pages runs out of memory.
void set_frequencies(KvPool& pool, std::span<KvCache* const> caches,
                     std::span<const RopeFrequencies> frequencies, bool interleaved, bool rerotate,
                     std::span<const KeyPositions> positions = {});

}  // namespace lariat
