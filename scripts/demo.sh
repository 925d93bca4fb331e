#!/usr/bin/env bash
# From a fresh clone to a story: installs what is missing, builds, and runs the demo checkpoint.
# Quick and harmless when repeated.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DLARIAT_TESTS=OFF >/dev/null
cmake --build build

model=configs/demo
echo
echo "== lariat generate --model $model --prompt \"Once upon a time\" --temperature 0.7 --max-new-tokens 200"
printf 'Once upon a time'
build/lariat generate --model "$model" --prompt "Once upon a time" --temperature 0.7 --max-new-tokens 200 --seed 1
