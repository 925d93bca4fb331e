// A separate file, so that no caller inlines it.
#include "tests/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> g_allocations{0};
thread_local int64_t t_allocations = 0;
}  // namespace

namespace lariat::test {
int64_t allocations() { return g_allocations; }
int64_t own_allocations() { return t_allocations; }
}  // namespace lariat::test

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t bytes) {
  ++g_allocations;
  ++t_allocations;
  void* data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t /*bytes*/) noexcept { std::free(data); }
#endif
