#pragma once
#include <gtest/gtest.h>

#include <filesystem>

// Skips the running test; tests/main.cpp prints the reason (a string), and scripts/test.sh repeats it at its
// end.
#define LARIAT_SKIP(reason) GTEST_SKIP() << (reason)

// Skips the running test unless this path exists.
#define LARIAT_NEEDS(needed)            \
  if (!std::filesystem::exists(needed)) \
  LARIAT_SKIP(std::filesystem::path(needed).string() + " does not exist")
