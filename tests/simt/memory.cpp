#include "tests/simt/memory.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <vector>

namespace simt {
namespace {

constexpr size_t kDeviceAlignment = 256;
constexpr int kFill = 0xff;  // an all-ones float, half or bfloat16 is a NaN: using it shows

struct Device {
  std::map<const char*, size_t> allocations;
  size_t total = size_t{16} << 30;
  size_t used = 0;
  const char* last = nullptr;  // the allocation found last: most accesses hit it again
  size_t last_bytes = 0;
};
// Never destroyed, and made on first use: checked code runs before and after every global's life.
Device& device() {
  static auto& instance = *new Device;
  return instance;
}

bool find_device(const char* address) {
  if (address >= device().last && address < device().last + device().last_bytes) return true;
  auto after = device().allocations.upper_bound(address);
  if (after == device().allocations.begin()) return false;
  auto [start, bytes] = *std::prev(after);
  if (address >= start + bytes) return false;
  device().last = start;
  device().last_bytes = bytes;
  return true;
}

struct Mark {  // thread is stored + 1, so that zero means nobody
  uint32_t thread = 0;
  uint32_t block_epoch = 0;
  uint32_t warp_epoch = 0;
};

constexpr size_t kGrain = 2;  // bytes per shadow entry: no kernel has smaller elements

struct GrainShadow {
  Mark write;
  Mark reads[2];  // two of the readers since that write; two suffice to find one that is not the writer
};

struct SharedArray {
  std::unique_ptr<char, decltype(&std::free)> data{nullptr, &std::free};
  size_t bytes = 0;
  std::vector<GrainShadow> shadow;  // empty until the first recorded access
};
std::vector<SharedArray> g_shared;
size_t g_shared_used = 0;

bool same_warp(const Mark& mark, const Clock& clock) { return (mark.thread - 1) / 32 == clock.thread / 32; }

// Whether the marked access happened before the present one on every run of the block.
bool ordered(const Mark& mark, const Clock& clock) {
  if (mark.thread == 0 || mark.thread - 1 == clock.thread) return true;
  if (mark.block_epoch != clock.block_epoch) return true;
  return same_warp(mark, clock) && mark.warp_epoch != clock.warp_epoch;
}

std::string race(const char* first, const char* second, const Mark& mark, const Clock& clock) {
  return "race on shared memory: thread " + std::to_string(clock.thread) + " " + second + " what thread " +
         std::to_string(mark.thread - 1) + " " + first + " with no barrier in between";
}

std::string record_grain(GrainShadow& grain, Access access, const Clock& clock) {
  const Mark now{clock.thread + 1, clock.block_epoch, clock.warp_epoch};
  if (!ordered(grain.write, clock)) {
    return race("writes", access == Access::kRead ? "reads" : "writes", grain.write, clock);
  }
  if (access == Access::kRead) {
    if (grain.write.thread == 0) {
      return "thread " + std::to_string(clock.thread) + " reads shared memory that nobody wrote";
    }
    // Keep two different threads, if there are two; of equals or outdated ones, the newest.
    const bool first = grain.reads[0].thread == now.thread || ordered(grain.reads[0], clock);
    grain.reads[first ? 0 : 1] = now;
    return {};
  }
  for (const Mark& read : grain.reads) {
    if (!ordered(read, clock)) return race("reads", "writes", read, clock);
  }
  grain.write = now;
  grain.reads[0] = grain.reads[1] = Mark{};
  return {};
}

}  // namespace

void* device_malloc(size_t bytes) {
  if (bytes > device().total - device().used) return nullptr;
  // The exact size, so that AddressSanitizer's red zone begins at the first byte too many.
  void* data = nullptr;
  if (posix_memalign(&data, kDeviceAlignment, bytes) != 0) return nullptr;
  std::memset(data, kFill, bytes);
  device().allocations[static_cast<const char*>(data)] = bytes;
  device().used += bytes;
  return data;
}

void device_free(void* data) {
  auto it = device().allocations.find(static_cast<const char*>(data));
  if (it == device().allocations.end()) return;
  device().used -= it->second;
  device().last_bytes = 0;
  device().allocations.erase(it);
  std::free(data);
}

void set_device_bytes(size_t total) { device().total = total; }
size_t device_bytes() { return device().total; }
size_t device_bytes_used() { return device().used; }

bool touches_device(const void* address, size_t bytes) {
  const char* first = static_cast<const char*>(address);
  return find_device(first) || find_device(first + bytes - 1);
}

bool inside_device(const void* address, size_t bytes) {
  const char* first = static_cast<const char*>(address);
  return find_device(first) && first + bytes <= device().last + device().last_bytes;
}

void* shared_allocate(size_t bytes) {
  SharedArray array;
  void* data = nullptr;
  if (posix_memalign(&data, 128, bytes) != 0) throw std::bad_alloc();
  array.data.reset(static_cast<char*>(data));
  std::memset(data, kFill, bytes);
  array.bytes = bytes;
  g_shared_used += bytes;
  g_shared.push_back(std::move(array));
  return data;
}

void shared_free_all() {
  g_shared.clear();
  g_shared_used = 0;
}

size_t shared_bytes_used() { return g_shared_used; }

bool touches_shared(const void* address, size_t bytes) {
  const char* first = static_cast<const char*>(address);
  for (const SharedArray& array : g_shared) {
    if (first + bytes > array.data.get() && first < array.data.get() + array.bytes) return true;
  }
  return false;
}

std::string record_shared(const void* address, size_t bytes, Access access, const Clock& clock) {
  const char* first = static_cast<const char*>(address);
  for (SharedArray& array : g_shared) {
    if (first + bytes <= array.data.get() || first >= array.data.get() + array.bytes) continue;
    if (first < array.data.get() || first + bytes > array.data.get() + array.bytes) {
      return "thread " + std::to_string(clock.thread) + " runs over the end of a shared array";
    }
    if (array.shadow.empty()) array.shadow.resize((array.bytes + kGrain - 1) / kGrain);
    const auto offset = static_cast<size_t>(first - array.data.get());
    for (size_t i = offset / kGrain; i * kGrain < offset + bytes; ++i) {
      std::string wrong = record_grain(array.shadow[i], access, clock);
      if (!wrong.empty()) return wrong;
    }
    return {};
  }
  return {};
}

}  // namespace simt
