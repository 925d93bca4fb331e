#!/usr/bin/env bash
# Configures the build folder of scripts/demo.sh and scripts/test.sh in any order and repeatedly: neither may fail or recompile
# objects of the other. Also covers folders configured by hand; unusable folders get a one-line remedy.
set -euo pipefail
cd "$(dirname "$0")/.."
unset CUDAARCHS CUDAFLAGS  # .ci/run has its own
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ends() {
  echo "test_configure: $*" >&2
  exit 1
}
commands() { grep '"command":' "$work/$1/compile_commands.json" | sort; }
has_cuda() { commands "$1" | grep -q -- '-x cu '; }
cached() { sed -n "s/^$2:[A-Z]*=//p" "$work/$1/CMakeCache.txt"; }

in_order() {  # folder, demo or test...
  local folder=$1 command
  for command in "${@:2}"; do
    touch "$work/before"
    scripts/configure.sh "$command" "$work/$folder" 2>"$work/said" || ends "$folder: $command.sh fails: $(<"$work/said")"
    # Excludes the stub for CUDA, which tests have with nvcc.
    comm -23 "$work/before" <(commands "$folder") | grep -v 'kernels/cuda/cuda_missing.cpp' >"$work/again" || true
    [ ! -s "$work/again" ] || ends "$folder: $command.sh compiles again: $(<"$work/again")"
    commands "$folder" >"$work/before"
  done
  rm "$work/before"
}

refused() {  # folder, message
  ! scripts/configure.sh test "$work/$1" 2>"$work/said" || ends "$1: test.sh does not fail"
  grep -qF "$2" "$work/said" && grep -qF "rm -r $work/$1" "$work/said" || ends "$1: test.sh says $(<"$work/said")"
}

in_order test-first test demo test
in_order demo-first demo demo
gpu=false
[ ! -e /dev/nvidiactl ] || gpu=true
$gpu || ! has_cuda demo-first || ends "demo.sh compiles CUDA without a GPU"
in_order demo-first demo test demo test
[ "$(cached demo-first LARIAT_TESTS)" = ON ] || ends "demo.sh takes the tests away"
diff <(commands demo-first | sed s/demo-first/test-first/g) <(commands test-first) || ends "the two orders differ"

by_hand() { cmake -S . -B "$work/$1" "${@:2}" >/dev/null; }
by_hand debug -G 'Unix Makefiles' -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++ -DLARIAT_CUDA=OFF -DLARIAT_UNITY=OFF
in_order debug test demo
grep -q "$work/debug stays Debug" "$work/said" || ends "debug: demo.sh says '$(<"$work/said")'"
! has_cuda debug || ends "debug: CUDA is on again"

if has_cuda test-first; then
  $gpu || [ "$(commands test-first | grep -m 1 -- '-x cu ' | grep -o generate-code | wc -l)" = 1 ] ||
    ends "test.sh compiles for several architectures without a GPU"
  # CMake does not read CUDAARCHS again.
  by_hand cuda -G Ninja -DLARIAT_CUDA=ON -DLARIAT_TESTS=OFF
  commands cuda | grep -q 'compute_80.*compute_90a' || ends "LARIAT_CUDA=ON is not for every architecture"
  CUDAARCHS=90a-real in_order cuda test
  in_order cuda demo test
  ! commands cuda | grep -q compute_80 || ends "CUDAARCHS is ignored or forgotten"
else
  echo "SKIPPED: architectures of CUDA, as there is no nvcc"
fi

by_hand several -G 'Ninja Multi-Config' -DLARIAT_CUDA=OFF
refused several 'holds several build types'
mv "$work/debug" "$work/moved"
refused moved 'cannot be configured again'
echo "demo.sh and test.sh work in any order, also over existing folders"
