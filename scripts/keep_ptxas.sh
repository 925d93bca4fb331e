#!/usr/bin/env bash
# Before nvcc (CMAKE_CUDA_COMPILER_LAUNCHER, with CUDAFLAGS=-Xptxas=-v): keeps what ptxas says of the kernels in OBJECT.ptxas,
# where kernel_ledger.py reads it instead of compiling all of them once more. Whatever else was said goes to stderr as ever.
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
touch "$object.ptxas" # not older than what it tells of
exit $status
