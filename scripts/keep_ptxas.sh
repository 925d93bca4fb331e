#!/usr/bin/env bash
# Wraps nvcc (CMAKE_CUDA_COMPILER_LAUNCHER, with CUDAFLAGS=-Xptxas=-v): saves the ptxas report to OBJECT.ptxas for
# kernel_ledger.py.
set -u
object='' before=''
for word; do
  [ "$before" = -o ] && object=$word
  before=$word
done
[ -n "$object" ] || exec "$@"
"$@" 2>"$object.ptxas"
status=$?
grep -vE '^ptxas info|^ +[0-9]+ bytes stack frame' "$object.ptxas" >&2
touch "$object.ptxas"  # at least as new as the object
exit $status
