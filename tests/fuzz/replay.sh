#!/usr/bin/env bash
# tests/fuzz/replay.sh FUZZ_REPLAY TARGET FOLDER: writes seeds to FOLDER; runs seeds and past failures.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seeds=$3/seeds/$2
rm -rf "$seeds"
"$here/seeds.sh" "$2" "$seeds"
inputs=("$seeds")
[ -d "$here/regressions/$2" ] && inputs+=("$here/regressions/$2")
exec "$1" "$2" "${inputs[@]}"
