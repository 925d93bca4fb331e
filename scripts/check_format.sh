#!/usr/bin/env bash
# Checks C++ and CUDA files against .clang-format; --fix reformats them.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run -Werror)
[ "${1:-}" = "--fix" ] && mode=(-i)
git ls-files -z -- '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format "${mode[@]}"
