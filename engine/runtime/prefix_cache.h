#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "engine/runtime/sequence.h"

namespace lariat {

// Finds full pages of earlier prompts by their tokens. A page's name (KvPool::Page::name) stands for all that
// its keys and values depend on: the tokens up to its end, and the RoPE frequencies of every layer's pass.
// Tokens are compared, not hashed: no collision mixes two texts. A page that is written loses its name.
class PrefixCache {
 public:
  using Page = std::shared_ptr<KvPool::Page>;

  // most_bytes: of kept pages.
  PrefixCache(const KvPool& pool, size_t most_bytes)
      : pool_(pool), most_pages_(most_bytes / pool.geometry().page_bytes) {}

  void keep_at_most(int64_t pages) { most_pages_ = static_cast<size_t>(pages); }

  // Names the pages of a sequence that begins with `tokens`, whose keys were never re-rotated. None with a
  // position method, M-RoPE positions or a stale cache.
  void name(const Sequence& sequence, std::span<const int32_t> tokens);
  // Named pages of the longest known prefix: of running sequences, and kept.
  std::vector<Page> find(const RopeFrequencies& frequencies, std::span<const int32_t> tokens) const;
  // Keeps the named pages of a sequence that ends, in place of the least recently kept.
  void keep(const KvCache& cache);
  // Frees the least recently kept page that no sequence holds. Returns false if sequences hold all.
  bool free_oldest();
  // Number of calls of free_oldest that free a page.
  int64_t idle_pages() const;

 private:
  // Name of the page before (0: none), RoPE frequencies of a text's first page, tokens.
  using Key = std::tuple<int64_t, std::vector<double>, std::vector<int32_t>>;
  struct Named {
    int64_t name;
    std::weak_ptr<KvPool::Page> page;
    Page get() const;
  };
  static Key key(int64_t before, const RopeFrequencies& frequencies, std::span<const int32_t> tokens);

  const KvPool& pool_;
  size_t most_pages_;
  std::map<Key, Named> named_;
  std::list<Page> kept_;  // most recent first
  int64_t last_name_ = 0;
};

}  // namespace lariat
