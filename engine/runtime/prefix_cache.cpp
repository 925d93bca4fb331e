#include "engine/runtime/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace lariat {
namespace {

constexpr auto kPage = static_cast<size_t>(kKvPage);

bool is_idle(const PrefixCache::Page& page) { return page.use_count() == 1; }

}  // namespace

PrefixCache::Page PrefixCache::Named::get() const {
  Page held = page.lock();
  return held != nullptr && held->name == name ? held : nullptr;
}

PrefixCache::Key PrefixCache::key(int64_t before, const RopeFrequencies& frequencies,
                                  std::span<const int32_t> tokens) {
  std::vector<double> of_first;
  if (before == 0) {
    of_first = frequencies.inv_freq;
    of_first.push_back(frequencies.attention_factor);
  }
  return {before, of_first, {tokens.begin(), tokens.begin() + kKvPage}};
}

void PrefixCache::name(const Sequence& sequence, std::span<const int32_t> tokens) {
  const KvCache& cache = sequence.cache();
  const bool plain = sequence.method().name.empty() && sequence.positions().mrope().empty();
  if (!plain || !cache.consistent()) return;
  tokens = tokens.first(std::min(tokens.size(), static_cast<size_t>(sequence.length())));
  if (named_.size() > 64 + 2 * static_cast<size_t>(pool_.pages()))
    std::erase_if(named_, [](const auto& entry) { return entry.second.get() == nullptr; });
  int64_t before = 0;
  for (const Page& page : cache.held_pages()) {
    if (tokens.size() < kPage || page == nullptr) return;
    if (page->name == 0) {  // unless another sequence has computed the same page
      Named& named = named_[key(before, cache.frequencies(), tokens)];
      if (named.get() == nullptr) named = {page->name = ++last_name_, page};
      before = named.name;
    } else {
      before = page->name;
    }
    tokens = tokens.subspan(kPage);
  }
}

std::vector<PrefixCache::Page> PrefixCache::find(const RopeFrequencies& frequencies,
                                                 std::span<const int32_t> tokens) const {
  std::vector<Page> pages;
  for (int64_t before = 0; tokens.size() >= kPage; tokens = tokens.subspan(kPage)) {
    const auto named = named_.find(key(before, frequencies, tokens));
    if (named == named_.end()) break;
    Page page = named->second.get();
    if (page == nullptr) break;
    before = page->name;
    pages.push_back(std::move(page));
  }
  return pages;
}

// A text's first page is the most recent: later ones are useless without it.
void PrefixCache::keep(const KvCache& cache) {
  const auto pages = cache.held_pages();
  for (auto page = pages.rbegin(); page != pages.rend() && most_pages_ > 0; ++page) {
    if (*page == nullptr || (*page)->name == 0) continue;
    kept_.remove(*page);
    kept_.push_front(*page);
  }
  while (kept_.size() > most_pages_) kept_.pop_back();
}

bool PrefixCache::free_oldest() {
  const auto oldest = std::find_if(kept_.rbegin(), kept_.rend(), is_idle);
  if (oldest == kept_.rend()) return false;
  kept_.erase(std::next(oldest).base());
  return true;
}

int64_t PrefixCache::idle_pages() const { return std::ranges::count_if(kept_, is_idle); }

}  // namespace lariat
