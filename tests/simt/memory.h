#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Device memory is host heap with a registry of allocations; shared memory has a shadow of the last write and
// reads of every two bytes.
#if defined(__SANITIZE_THREAD__)
#define SIMT_UNCHECKED __attribute__((no_sanitize("thread"), noinline))
#else
#define SIMT_UNCHECKED inline
#endif

namespace simt {

// 256-byte aligned, filled with 0xff; null beyond the limit.
void* device_malloc(size_t bytes);
void device_free(void* data);
void set_device_bytes(size_t total);
// A thread's launches accept only its current device's memory.
inline constexpr int kDevices = 2;
void set_device(int index);
// Allocations that a launch's arguments point into. Throws Fault for freed memory and memory of another
// device.
std::vector<const void*> given_memory(const void* arguments, size_t bytes);
size_t device_bytes();
size_t device_bytes_used();
int64_t device_allocations();

bool touches_device(const void* address, size_t bytes);
bool inside_device(const void* address, size_t bytes);

enum class Access : uint8_t { kRead, kWrite };

// Two accesses are ordered if a common block or warp barrier opened in between.
struct Clock {
  uint32_t thread = 0;
  uint32_t block_epoch = 0;
  uint32_t warp_epoch = 0;
};

// Records an access and returns its error, or "". Blocks of a launch must not write the same bytes; reading
// another block's write needs visibility (blocks.h). Reads before a write show in another block order.
std::string record_device(const void* address, size_t bytes, Access access);
// Error of an access by a thread that has not waited for earlier launches, or "". It may read bytes that no
// running launch wrote, and write nothing, because reads are not recorded.
std::string access_before_wait(const void* address, size_t bytes, Access access);

void* shared_allocate(size_t bytes);
void shared_free_all();
size_t shared_bytes_used();
bool touches_shared(const void* address, size_t bytes);
std::string record_shared(const void* address, size_t bytes, Access access, const Clock& clock);

}  // namespace simt
