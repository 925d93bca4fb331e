#include "engine/runtime/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/runtime/ranks.h"
#include "engine/stopwatch.h"
#include "kernels/counted.h"
#include "kernels/integers.h"

namespace lariat {

KvPool::KvPool(const ModelSpec& spec, Backend& backend, DType k_dtype, DType v_dtype, bool second_keys,
               Ranks* ranks, size_t most_bytes)
    : backend_(backend), ranks_(ranks), mrope_axes_(spec.mrope_axes) {
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    if (attention.latent) {
      if (v_dtype == DType::kQ8) {
        throw UsageError(
            "`kv_dtype` v=q8: latent attention stores values with the keys, which cannot be q8; use "
            "`kv_dtype` f16");
      }
      geometry_.add_latent_layer(attention.head_dim, k_dtype);
    } else {
      geometry_.add_layer(attention.n_kv_heads, attention.head_dim, k_dtype, v_dtype,
                          second_keys && attention.rope >= 0);
    }
    if (attention.rope == 0) rotated_layers_.push_back(geometry_.layers.back());
    const auto heads = static_cast<size_t>(attention.n_kv_heads);
    const size_t times = geometry_.layers.back().second_k_offset > 0 ? 2 : 1;
    k_bytes_ += times * heads * kv_bytes(k_dtype, attention.head_dim);
    if (!attention.latent) v_bytes_ += heads * kv_bytes(v_dtype, attention.head_dim);
  }
  if (most_bytes > 0) most_pages_ = static_cast<int64_t>(most_bytes / geometry_.page_bytes);
}

KvPool::Page::Page(KvPool& pool, Buffer memory)
    : id_(pool.ids_), memory_(std::move(memory)), data_(memory_.data()) {}

KvPool::Page::Page(KvPool& pool, void* data, std::shared_ptr<const void> owner)
    : id_(pool.ids_), owner_(std::move(owner)), data_(data) {}

std::vector<KvLayer> KvPool::rotated_layers(bool second_keys) const {
  std::vector<KvLayer> layers = rotated_layers_;
  for (KvLayer& layer : layers)
    if (second_keys) layer = layer.with_second_keys();
  return layers;
}

std::shared_ptr<KvPool::Page> KvPool::allocate(int64_t index) {
  while (pages() >= most_pages_) {
    if (!free_a_page_())
      throw CacheFull("`cache_memory`: all " + counted(most_pages_, "page") + " are in use; allow more");
  }
  while (true) {
    try {
      return std::make_shared<Page>(*this, owns(index) ? backend_.allocate(geometry_.page_bytes) : Buffer());
    } catch (const Error& e) {
      if (!free_a_page_()) throw CacheFull(e.what());
    }
  }
}

int64_t KvPool::free_pages() const {
  const double half = backend_.free_bytes() / 2 / static_cast<double>(geometry_.page_bytes);
  const auto left = static_cast<double>(most_pages_ - pages());
  return static_cast<int64_t>(std::min({left, half, 1e15}));
}

bool KvPool::owns(int64_t index) const { return ranks_ == nullptr || ranks_->place().owns(index); }

KvCache::KvCache(KvPool& pool, RopeFrequencies frequencies)
    : pool_(&pool), frequencies_(std::move(frequencies)) {}

void KvCache::reserve(int64_t positions) {
  const auto wanted = static_cast<size_t>(ceil_div(positions, kKvPage));
  try {
    own_pages(static_cast<size_t>(length_ / kKvPage), std::min(wanted, pages_.size()));
    while (pages_.size() < wanted) {
      pages_.push_back(pool_->allocate(std::ssize(pages_)));
      table_.push_back(pages_.back()->data());
    }
  } catch (const CacheFull& e) {
    throw CacheFull(fmt::format("KV cache: no memory for {} ({} MiB; {} MiB in use): {}",
                                counted(positions, "position"), wanted * pool_->geometry().page_bytes >> 20,
                                pool_->bytes() >> 20, e.what()));
  }
}

bool KvCache::holds(int64_t first, int64_t last) const {
  const int64_t end = std::min(ceil_div(last, kKvPage), std::ssize(pages_));
  for (int64_t i = first / kKvPage; i < end; ++i) {
    if (pages_[static_cast<size_t>(i)] == nullptr) return false;
  }
  return true;
}

bool KvCache::has_room(int64_t positions) const {
  const auto first = pages_.begin() + std::min(length_ / kKvPage, std::ssize(pages_));
  return std::ssize(pages_) * kKvPage >= positions &&
         std::all_of(first, pages_.end(), [](const auto& page) { return page.use_count() == 1; });
}

void KvCache::own_pages(size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    if (pages_[i].use_count() <= 1) {
      if (pages_[i] != nullptr) pages_[i]->name = 0;
      continue;
    }
    const auto index = static_cast<int64_t>(i);
    std::shared_ptr<KvPool::Page> copy = pool_->allocate(index);
    if (pool_->owns(index))
      pool_->backend().copy(copy->data(), pages_[i]->data(), pool_->geometry().page_bytes);
    if (Ranks* ranks = pool_->ranks()) ranks->copy_page(*pool_, index, copy->id(), pages_[i]->id());
    table_[i] = copy->data();
    pages_[i] = std::move(copy);
  }
}

void KvCache::truncate(int64_t length) {
  length_ = std::min(length_, length);
  consistent_ = consistent_ || length_ == 0;
}

void KvCache::share_prefix(const KvCache& from, int64_t length) {
  const auto n = static_cast<std::ptrdiff_t>(ceil_div(length, kKvPage));
  pages_.assign(from.pages_.begin(), from.pages_.begin() + n);
  table_.assign(from.table_.begin(), from.table_.begin() + n);
  length_ = length;
  frequencies_ = from.frequencies_;
  consistent_ = from.consistent_ || length == 0;
}

void KvCache::drop(int64_t first, int64_t last) {
  for (int64_t i = ceil_div(first, kKvPage); i < std::min(last / kKvPage, std::ssize(pages_)); ++i) {
    pages_[static_cast<size_t>(i)] = nullptr;
    table_[static_cast<size_t>(i)] = nullptr;
  }
}

size_t KvCache::bytes() const {
  const auto there =
      std::count_if(pages_.begin(), pages_.end(), [](const auto& page) { return page != nullptr; });
  return static_cast<size_t>(there) * pool_->geometry().page_bytes;
}

void KvCache::restore(Contents contents) {
  pages_ = std::move(contents.pages);
  table_.clear();
  for (const auto& page : pages_) table_.push_back(page == nullptr ? nullptr : page->data());
  length_ = contents.length;
  frequencies_ = std::move(contents.frequencies);
  consistent_ = true;
}

namespace {

// Re-rotates first or second keys, on all ranks.
void rotate(KvPool& pool, std::span<const KeyRotation> rotations, std::span<KvCache* const> caches,
            bool second_keys, bool interleaved) {
  if (Ranks* ranks = pool.ranks()) ranks->rerotate(pool, rotations, caches, second_keys, interleaved);
  on_all_ranks(pool.ranks(), [&] {
    pool.backend().rerotate_keys(rotations, pool.rotated_layers(second_keys), interleaved);
  });
}

}  // namespace

void set_frequencies(KvPool& pool, std::span<KvCache* const> caches,
                     std::span<const RopeFrequencies> frequencies, bool interleaved, bool rerotate,
                     std::span<const KeyPositions> positions) {
  std::vector<KvCache*> moved;
  std::vector<KeyRotation> rotations, second_rotations;
  int64_t n_positions = 0;
  for (size_t i = 0; i < caches.size(); ++i) {
    KvCache& cache = *caches[i];
    const std::vector<double>&before = cache.frequencies_.inv_freq, &after = frequencies[i].inv_freq;
    const KeyPositions own = positions.empty() ? KeyPositions() : positions[i];
    const bool moves = !own.second_to.positions.empty() ||
                       !std::ranges::equal(own.second_from.inv_freq, own.second_to.inv_freq);
    if (cache.length_ == 0 || (after == before && !moves)) continue;
    if (!rerotate) {
      cache.consistent_ = false;
    } else {
      cache.own_pages(0, static_cast<size_t>(ceil_div(cache.length_, kKvPage)));
      KeyRotation keys{cache.pages(), cache.length_, {before, own.keys}, {after}, pool.mrope_axes()};
      if (after != before) rotations.push_back(keys);
      if (!own.second_from.inv_freq.empty()) {
        keys.from = own.second_from, keys.to = own.second_to;
        second_rotations.push_back(keys);
      }
      moved.push_back(&cache);
      n_positions += cache.length_;
    }
  }
  if (!moved.empty()) {
    pool.backend().synchronize();
    const auto start = Stopwatch::now();
    rotate(pool, rotations, moved, false, interleaved);
    if (!second_rotations.empty()) rotate(pool, second_rotations, moved, true, interleaved);
    pool.backend().synchronize();
    const double seconds = seconds_since(start);
    for (KvCache* cache : moved) {
      cache->stats_.count += 1;
      cache->stats_.positions += cache->length_;
      cache->stats_.seconds +=
          seconds * static_cast<double>(cache->length_) / static_cast<double>(n_positions);
    }
  }
  for (size_t i = 0; i < caches.size(); ++i) caches[i]->frequencies_ = frequencies[i];
}

}  // namespace lariat
