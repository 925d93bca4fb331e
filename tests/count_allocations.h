#pragma once
#include <cstdint>

namespace lariat::test {

// Calls of operator new so far, by any thread. 0 under sanitizers, which replace operator new.
int64_t allocations();
// Calls by the current thread.
int64_t own_allocations();

}  // namespace lariat::test
