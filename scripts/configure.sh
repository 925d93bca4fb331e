#!/usr/bin/env bash
# Configures a build folder for scripts/demo.sh and scripts/test.sh, which may run repeatedly and in any order. A configured
# folder keeps its generator, compiler, build type and options; tests are added and never removed.
#   scripts/configure.sh demo|test [FOLDER, build]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${2:-build}
cache=$folder/CMakeCache.txt
options=() anew="start again with: rm -r $folder"
[ -e "$cache" ] || options=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DLARIAT_TESTS=OFF) anew=''
[ "${1:?demo or test}" = demo ] || options+=(-DLARIAT_TESTS=ON)
cmake -S . -B "$folder" "${options[@]}" >/dev/null || {
  [ -z "$anew" ] || echo "configure.sh: error: $folder cannot be configured again; $anew" >&2
  exit 1
}
if grep -q '^CMAKE_CONFIGURATION_TYPES:' "$cache"; then
  echo "configure.sh: error: $folder holds several build types, with programs elsewhere; $anew" >&2
  exit 1
fi
type=$(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$cache")
[ "$type" = Release ] || echo "configure.sh: $folder stays $type, as it was configured; for Release, $anew" >&2
