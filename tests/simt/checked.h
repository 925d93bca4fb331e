#pragma once
#include <cstddef>

#include "tests/simt/memory.h"

namespace simt {

// Checks one access of the running kernel against simt.h's rules and throws Fault on a violation.
void check_access(const void* address, size_t bytes, Access access);

bool hooks_linked();                        // whether this program checks every access
bool in_program_data(const void* address);  // a global or constant of the program

}  // namespace simt
