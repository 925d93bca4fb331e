#include <cstdio>
#include <cstdlib>

#include "tests/simt/checked.h"
#include "tests/simt/simt.h"

// -fsanitize=thread calls a function before every load and store. These functions, linked instead of
// ThreadSanitizer's library, check each access of a kernel; they abort if host code touches device memory.
// AddressSanitizer builds lack SIMT_CHECKED and only answer hooks_linked().
#ifndef SIMT_CHECKED
namespace simt {
bool hooks_linked() { return false; }
bool in_program_data(const void*) { return true; }
}  // namespace simt
#else

extern "C" {
extern const char __executable_start, _end;
}

namespace simt {

bool hooks_linked() { return true; }

bool in_program_data(const void* address) {
  const char* byte = static_cast<const char*>(address);
  return byte >= &__executable_start && byte < &_end;
}

namespace {

void accessed(const void* address, size_t bytes, Access access) {
  if (in_kernel()) return check_access(address, bytes, access);
  if (!touches_device(address, bytes)) return;
  std::fprintf(stderr, "simt: host code %s device memory\n", access == Access::kRead ? "reads" : "writes");
  std::abort();
}

}  // namespace
}  // namespace simt

// NOLINTBEGIN: the compiler dictates names and signatures
#define SIMT_HOOK(bytes)                                                                          \
  void __tsan_read##bytes(void* p) { simt::accessed(p, bytes, simt::Access::kRead); }             \
  void __tsan_write##bytes(void* p) { simt::accessed(p, bytes, simt::Access::kWrite); }           \
  void __tsan_unaligned_read##bytes(void* p) { simt::accessed(p, bytes, simt::Access::kRead); }   \
  void __tsan_unaligned_write##bytes(void* p) { simt::accessed(p, bytes, simt::Access::kWrite); } \
  void __tsan_volatile_read##bytes(void* p) { simt::accessed(p, bytes, simt::Access::kRead); }    \
  void __tsan_volatile_write##bytes(void* p) { simt::accessed(p, bytes, simt::Access::kWrite); }

extern "C" {
SIMT_HOOK(1)
SIMT_HOOK(2)
SIMT_HOOK(4)
SIMT_HOOK(8)
SIMT_HOOK(16)
void __tsan_read_range(void* p, size_t bytes) { simt::accessed(p, bytes, simt::Access::kRead); }
void __tsan_write_range(void* p, size_t bytes) { simt::accessed(p, bytes, simt::Access::kWrite); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
void __tsan_init() {}
}
// NOLINTEND
#endif
