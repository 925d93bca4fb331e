#pragma once
#include <cstddef>

#include "tests/simt/memory.h"

namespace simt {

// Throws Fault if an access of the running kernel violates simt.h's rules.
void check_access(const void* address, size_t bytes, Access access);

bool hooks_linked();                        // this program checks every access
bool in_program_data(const void* address);  // global or constant

}  // namespace simt
