#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lariat::tok {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
};
using StringMap = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

// Map with open addressing, without deletion. Not for the key ~0.
class FlatMap {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  uint64_t find(uint64_t key) const {
    if (slots_.empty()) return kNone;
    for (size_t i = mix(key) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].value;
      if (slots_[i].key == kNone) return kNone;
    }
  }
  bool contains(uint64_t key) const { return find(key) != kNone; }

  // `value` must not be kNone.
  void set(uint64_t key, uint64_t value) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = place(key);
    if (slot.key == kNone) ++size_;
    slot = {key, value};
  }

  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = kNone, value = kNone;
  };

  static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
  }
  Slot& place(uint64_t key) {
    size_t i = mix(key) & mask_;
    while (slots_[i].key != kNone && slots_[i].key != key) i = (i + 1) & mask_;
    return slots_[i];
  }
  void grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.empty() ? 16 : old.size() * 2, Slot{});
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.key != kNone) place(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0, size_ = 0;
};

}  // namespace lariat::tok
