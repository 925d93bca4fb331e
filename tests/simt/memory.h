#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The memories a kernel sees, and who touched them. Device memory is host heap behind a register of
// allocations; a block's shared memory carries a shadow that remembers the last write and reads of every two
// bytes.
#if defined(__SANITIZE_THREAD__)
#define SIMT_UNCHECKED __attribute__((no_sanitize("thread"), noinline))
#else
#define SIMT_UNCHECKED inline
#endif

namespace simt {

// Device memory: 256-byte aligned and filled with 0xff (NaN in every float format), or null beyond the limit.
void* device_malloc(size_t bytes);
void device_free(void* data);
void set_device_bytes(size_t total);  // pretends that the device is this small
// Which of the devices a thread works with: memory it allocates is there, and its launches take no other.
inline constexpr int kDevices = 2;
void set_device(int index);
// The starts of the allocations that words of a launch's arguments point into. Throws Fault for one that was
// freed or is on another device.
std::vector<const void*> given_memory(const void* arguments, size_t bytes);
size_t device_bytes();
size_t device_bytes_used();
int64_t device_allocations();  // so far

// Whether [address, address + bytes) touches / lies inside a device allocation.
bool touches_device(const void* address, size_t bytes);
bool inside_device(const void* address, size_t bytes);

enum class Access : uint8_t { kRead, kWrite };

// Who accesses, and how often the block's and the warp's barriers have opened for that thread so far: two
// accesses are ordered when one of the barriers both take part in has opened in between.
struct Clock {
  uint32_t thread = 0;
  uint32_t block_epoch = 0;
  uint32_t warp_epoch = 0;
};

// Records a kernel's access to device memory; what is wrong with it, or empty: two blocks of a launch must
// not write the same bytes, nor one read what the other wrote unless it may know of it (blocks.h). (Of reads
// that come before the write nothing is kept: another order of the blocks shows those.)
std::string record_device(const void* address, size_t bytes, Access access);
// What is wrong with an access inside an allocation if the thread has not waited for the launches before; or
// empty. It may read what none of those wrote that may still run, and write nothing, as of what they read
// nothing is kept.
std::string access_before_wait(const void* address, size_t bytes, Access access);

// The shared memory of the running block.
void* shared_allocate(size_t bytes);
void shared_free_all();
size_t shared_bytes_used();
bool touches_shared(const void* address, size_t bytes);
// Records an access to shared memory; what is wrong with it, or empty.
std::string record_shared(const void* address, size_t bytes, Access access, const Clock& clock);

}  // namespace simt
