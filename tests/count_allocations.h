#pragma once
#include <cstdint>

namespace lariat::test {

// Calls of operator new since the program began, by any thread. 0 under sanitizers, whose operator new stays.
int64_t allocations();
// Those of the calling thread.
int64_t own_allocations();

}  // namespace lariat::test
