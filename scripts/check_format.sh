#!/usr/bin/env bash
# Every C++ and CUDA file as .clang-format wants it; `scripts/check_format.sh --fix` makes it so.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run -Werror)
[ "${1:-}" = "--fix" ] && mode=(-i)
git ls-files -z -- '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format "${mode[@]}"
