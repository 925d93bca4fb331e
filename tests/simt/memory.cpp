#include "tests/simt/memory.h"

#include <sanitizer/asan_interface.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "tests/simt/blocks.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

constexpr size_t kDeviceAlignment = 256;
constexpr int kFill = 0xff;  // NaN in every float format: its use shows

constexpr size_t kGrain = 2;  // bytes per shadow entry: the smallest element
// Freed memory is kept for a while, so that its addresses are not reused.
constexpr size_t kKeptBytes = size_t{256} << 20;

struct Allocation {
  size_t bytes = 0;
  int device = 0;
  uint32_t launch = 0;              // the last writer
  std::vector<BlockClock> written;  // last write per grain; empty: none
};

struct Device {
  std::map<const char*, Allocation> allocations;
  std::map<const char*, size_t> freed;
  std::deque<const char*> freed_order;
  size_t freed_bytes = 0;
  size_t total = size_t{16} << 30;
  size_t used = 0;
  int64_t count = 0;
  // Most accesses hit recent allocations again.
  struct Found {
    const char* start = nullptr;
    size_t bytes = 0;
    Allocation* allocation = nullptr;
    bool holds(const char* address) const { return address >= start && address < start + bytes; }
  };
  Found recent[4];
  unsigned oldest = 0;
  Found* last = recent;
};
thread_local int t_device = 0;

// Never destroyed, because checked code runs after all globals' lifetimes.
Device& device() {
  static auto& instance = *new Device;
  return instance;
}

bool find_device(const char* address) {
  Device& d = device();
  if (d.last->holds(address)) return true;
  for (Device::Found& found : d.recent) {
    if (!found.holds(address)) continue;
    d.last = &found;
    return true;
  }
  auto after = d.allocations.upper_bound(address);
  if (after == d.allocations.begin()) return false;
  auto& [start, allocation] = *std::prev(after);
  if (address >= start + allocation.bytes) return false;
  d.last = &d.recent[d.oldest++ % std::size(d.recent)];
  *d.last = {start, allocation.bytes, &allocation};
  return true;
}

struct Mark {  // thread is stored + 1; 0: none
  uint32_t thread = 0;
  uint32_t block_epoch = 0;
  uint32_t warp_epoch = 0;
};

struct GrainShadow {
  Mark write;
  Mark reads[2];  // since that write; one is not by the writer
};

struct SharedArray {
  std::unique_ptr<char, decltype(&std::free)> data{nullptr, &std::free};
  size_t bytes = 0;
  std::vector<GrainShadow> shadow;  // empty: no recorded access
};
std::vector<SharedArray> g_shared;
size_t g_shared_used = 0;

bool same_warp(const Mark& mark, const Clock& clock) { return (mark.thread - 1) / 32 == clock.thread / 32; }

// Whether the marked access precedes the current one in every execution.
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
    // Keeps two different threads if possible; replaces an ordered mark.
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
  // Exact size, for AddressSanitizer's red zone.
  void* data = nullptr;
  if (posix_memalign(&data, kDeviceAlignment, bytes) != 0) return nullptr;
  std::memset(data, kFill, bytes);
  device().allocations[static_cast<const char*>(data)] = {bytes, t_device, 0, {}};
  device().used += bytes;
  ++device().count;
  return data;
}

void device_free(void* data) {
  auto it = device().allocations.find(static_cast<const char*>(data));
  if (it == device().allocations.end()) return;
  const size_t bytes = it->second.bytes;
  device().used -= bytes;
  device().freed_bytes += bytes;
  device().freed[it->first] = bytes;
  device().freed_order.push_back(it->first);
  for (Device::Found& found : device().recent) found = {};
  device().allocations.erase(it);
  ASAN_POISON_MEMORY_REGION(data, bytes);
  while (device().freed_bytes > kKeptBytes) {
    const char* oldest = device().freed_order.front();
    device().freed_order.pop_front();
    const auto kept = device().freed.find(oldest);
    device().freed_bytes -= kept->second;
    ASAN_UNPOISON_MEMORY_REGION(oldest, kept->second);
    device().freed.erase(kept);
    std::free(const_cast<char*>(oldest));
  }
}

void set_device(int index) { t_device = index; }

std::vector<const void*> given_memory(const void* arguments, size_t bytes) {
  std::vector<const void*> given;
  for (size_t i = 0; i + sizeof(void*) <= bytes; i += sizeof(void*)) {
    const char* word = nullptr;
    std::memcpy(&word, static_cast<const char*>(arguments) + i, sizeof(word));
    if (find_device(word)) {
      if (device().last->allocation->device != t_device) throw Fault("launch with memory of another device");
      given.push_back(device().last->start);
      continue;
    }
    const auto after = device().freed.upper_bound(word);
    if (after == device().freed.begin()) continue;
    const auto [data, size] = *std::prev(after);
    if (word < data + size) throw Fault("launch with memory that was freed before it ran");
  }
  return given;
}

std::string record_device(const void* address, size_t bytes, Access access) {
  const BlockClock& clock = block_clock();
  Allocation& allocation = *device().last->allocation;  // found by inside_device()
  if (access == Access::kWrite) {
    if (allocation.written.empty()) allocation.written.resize((allocation.bytes + kGrain - 1) / kGrain);
    allocation.launch = clock.launch;
  } else if (allocation.launch != clock.launch) {
    return {};
  }
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - device().last->start);
  for (size_t i = offset / kGrain; i * kGrain < offset + bytes; ++i) {
    BlockClock& write = allocation.written[i];
    if (write.launch == clock.launch && write.block != clock.block &&
        (access == Access::kWrite || !knows(write.block, write.fences))) {
      return std::string(access == Access::kWrite ? "writes" : "reads") + " device memory that block " +
             std::to_string(write.block) + " of the same launch wrote";
    }
    if (access == Access::kWrite) write = clock;
  }
  return {};
}

std::string access_before_wait(const void* address, size_t bytes, Access access) {
  if (has_waited(thread_index())) return {};
  const std::string what = " device memory before it has waited for earlier launches";
  if (access == Access::kWrite) return "writes" + what;
  inside_device(address, bytes);  // finds the allocation
  const Allocation& allocation = *device().last->allocation;
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - device().last->start);
  for (size_t i = offset / kGrain; !allocation.written.empty() && i * kGrain < offset + bytes; ++i) {
    if (may_still_run(allocation.written[i].launch)) return "reads" + what + ", one of which wrote it";
  }
  return {};
}

void expect_allocated(const void* address) {
  if (!inside_device(address, 1)) fault("prefetch from outside an allocation");
}

void set_device_bytes(size_t total) { device().total = total; }
size_t device_bytes() { return device().total; }
size_t device_bytes_used() { return device().used; }
int64_t device_allocations() { return device().count; }

bool touches_device(const void* address, size_t bytes) {
  const char* first = static_cast<const char*>(address);
  return find_device(first) || find_device(first + bytes - 1);
}

bool inside_device(const void* address, size_t bytes) {
  const char* first = static_cast<const char*>(address);
  return find_device(first) && first + bytes <= device().last->start + device().last->bytes;
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
