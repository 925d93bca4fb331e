#pragma once
#include <string_view>

namespace simt {

// Runs the kernel of that name from planted.cu on a few threads. Each name but "sound" has one bug.
void run_planted(std::string_view name);

}  // namespace simt
