#pragma once
#include <cstdint>

namespace lariat::test {

// Calls of operator new so far. 0 under sanitizers, which replace it.
int64_t allocations();
int64_t own_allocations();

}  // namespace lariat::test
