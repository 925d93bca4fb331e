#!/usr/bin/env bash
# Installs missing packages, builds everything and runs all tests, one per suite. Arguments go to ctest: `scripts/test.sh -R
# Rope`. A single test: build/engine_test --gtest_filter='*Rope*'.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh
scripts/configure.sh test
MAKEFLAGS=-j$(nproc) cmake --build build
log=build/Testing/Temporary/LastTest.log
rm -f "$log"
status=0
ctest --test-dir build --no-tests=error --output-on-failure "$@" || status=$?
# Adds failed tests of a suite, and skipped tests with their reasons.
[ ! -e "$log" ] || sed -nE 's/^\[  FAILED  \] ([^ ]+\..*)/FAILED \1/p; /^SKIPPED/p' "$log" | sort -u
exit $status
