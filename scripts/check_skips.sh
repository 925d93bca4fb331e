#!/usr/bin/env bash
# A skipped test reports its reason: LARIAT_SKIP or LARIAT_NEEDS (tests/skip.h) skip it, and tests/main.cpp prints the reason.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
forbid() {  # the problem, the pattern, git grep's options and files
  if git grep -nE "$2" -- "${@:3}"; then
    printf 'check_skips: %s\n' "$1"
    failed=1
  fi
}
forbid 'GTEST_SKIP, whose reason may be missing; use LARIAT_SKIP of tests/skip.h' 'GTEST_SKIP' tests ':!tests/skip.h'
forbid 'a disabled test is not reported; use LARIAT_SKIP' 'TEST(_F|_P)?\(.*DISABLED_' tests
forbid 'a test that passes where a file is missing; use LARIAT_NEEDS' 'if \(!.*exists\(.*\)\) (return|continue);' 'tests/*_test.cpp'
forbid "GoogleTest's main does not report skipped tests; link test_main" 'gtest_main' '*CMakeLists.txt' '*.cmake'
exit $failed
