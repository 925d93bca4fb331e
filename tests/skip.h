#pragma once
#include <gtest/gtest.h>

#include <filesystem>

// tests/main.cpp prints the reason (a string) and scripts/test.sh lists it.
#define LARIAT_SKIP(reason) GTEST_SKIP() << (reason)

// Skips if the path does not exist.
#define LARIAT_NEEDS(needed)            \
  if (!std::filesystem::exists(needed)) \
  LARIAT_SKIP(std::filesystem::path(needed).string() + " does not exist")
