#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests. Arguments go to ctest, whose tests are the test suites:
# `scripts/test.sh -R Rope`. One test by itself: build/engine_test --gtest_filter='*Rope*'.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh
scripts/configure.sh test
MAKEFLAGS=-j$(nproc) cmake --build build
log=build/Testing/Temporary/LastTest.log
rm -f "$log"
status=0
ctest --test-dir build --output-on-failure "$@" || status=$?
# What ctest does not say: which tests of a suite failed, and which were skipped, and why.
[ ! -e "$log" ] || sed -nE 's/^\[  FAILED  \] ([^ ]+\..*)/FAILED \1/p; /^SKIPPED/p' "$log" | sort -u
exit $status
