#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace lariat {

// Ids of a pool's pages. Reuses the lowest free id, because other ranks keep a freed page's memory for the
// next page of the same id. Freeing an id needs no memory, so that it cannot fail.
class PageIds {
 public:
  class Id {
   public:
    explicit Id(PageIds& ids) : ids_(ids), value_(ids.take()) {}
    Id(const Id&) = delete;
    Id& operator=(const Id&) = delete;
    ~Id() {
      ids_.used_[static_cast<size_t>(value_)] = false;
      --ids_.in_use_;
    }
    int32_t value() const { return value_; }

   private:
    PageIds& ids_;
    int32_t value_;
  };
  int64_t in_use() const { return in_use_; }

 private:
  int32_t take() {
    const auto id = static_cast<size_t>(std::find(used_.begin(), used_.end(), false) - used_.begin());
    if (id == used_.size()) used_.push_back(false);
    used_[id] = true;
    ++in_use_;
    return static_cast<int32_t>(id);
  }

  std::vector<bool> used_;
  int64_t in_use_ = 0;
};

}  // namespace lariat
