#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests. Arguments go to ctest, e.g. `scripts/test.sh -R rope`.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DLARIAT_TESTS=ON >/dev/null
cmake --build build
ctest --test-dir build --output-on-failure "$@"
