#pragma once
#include <gtest/gtest.h>

#include <filesystem>

// Skips the running test with a reason (a string); tests/main.cpp prints it and scripts/test.sh lists it.
#define LARIAT_SKIP(reason) GTEST_SKIP() << (reason)

// Skips the running test if this path does not exist.
#define LARIAT_NEEDS(needed)            \
  if (!std::filesystem::exists(needed)) \
  LARIAT_SKIP(std::filesystem::path(needed).string() + " does not exist")
