#!/usr/bin/env bash
# program.sh LARIAT SOURCE_DIR MPIRUN...: the program on two ranks. Equal output to one process; faults end all
# ranks with one line of lariat and an exit code.
set -u
export ASAN_OPTIONS=detect_leaks=0  # Open MPI keeps memory until the process ends
lariat=$1 checkpoints=$2/tests/golden/checkpoints demo=$2/configs/demo
shift 2
mpirun=("$@")  # up to the flag of the number of ranks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

say() { echo "FAILED: $*" && failed=1; }
two() { "${mpirun[@]}" 2 "$lariat" "$@" > "$work/out" 2> "$work/err"; }
lines() { grep -c '^lariat: ' "$work/err"; }

same() {
  "$lariat" "$@" > "$work/one" 2> /dev/null
  two "$@" || say "exit code $? of $*"
  cmp -s "$work/one" "$work/out" || say "other output of $*"
}
f32=(--model "$demo" --dtype f32 --kv-dtype f32 --quiet)
for split in heads sequence; do
  same generate "${f32[@]}" --prompt "Once upon a time" -n 700 --temperature 0 --rope-scaling dynamic-yarn --split $split
  same passkey "${f32[@]}" --lengths 600 --trials 1 --position-method dca --split $split
done
text=(perplexity "${f32[@]}" --file "$demo/heldout.txt" --max-tokens 700 --rope-scaling dynamic-yarn)
two "${text[@]}" --save-cache "$work/context" --split sequence || say "--save-cache: $(cat "$work/err")"
same "${text[@]}" --load-cache "$work/context" --split sequence
two "${text[@]}" --load-cache "$work/context" && say "--load-cache of heads"

# Rank 1 has another folder: refused by all ranks, with the rank's number.
refused() {
  "${mpirun[@]}" 1 "$lariat" logits --model "$checkpoints/llama_gqa" --tokens 1,2 --out "$work/l" \
    : -n 1 "$lariat" logits --model "$1" --tokens 1,2 --out "$work/l" > "$work/out" 2> "$work/err"
  local code=$?
  [ $code = 1 ] || say "exit code $code for $1"
  [ "$(lines)" = 1 ] && grep -q 'rank 1' "$work/err" || say "no line of rank 1 for $1: $(cat "$work/err")"
}
refused "$work/missing"
refused "$checkpoints/llama_mha"
cp -r "$checkpoints/llama_gqa" "$work/cut" && chmod -R u+w "$work/cut"
truncate -s 3000 "$work/cut/model.safetensors"
refused "$work/cut"

two perplexity --model "$demo" --file "$demo/heldout.txt" --against same
code=$?
[ $code = 2 ] && [ "$(lines)" = 1 ] || say "--against on two ranks: exit code $code"

# While it measures: a signal to mpirun, and the death of a rank.
ends() {  # command that ends the run, given mpirun's process id
  rm -f "$work/results"
  "${mpirun[@]}" 2 "$lariat" perplexity --model "$demo" --file "$demo/heldout.txt" --ctx 256 --stride 16 \
    --results "$work/results" > "$work/out" 2> "$work/err" &
  local run=$!
  for _ in $(seq 200); do
    [ -s "$work/results" ] && [ "$(wc -l < "$work/results")" -ge 3 ] && break
    sleep 0.05
  done
  "$@" "$run"
  SECONDS=0
  wait "$run"
  local code=$?
  [ $code != 0 ] || say "$*: exit code 0"
  [ $SECONDS -lt 10 ] || say "$*: $SECONDS s"
  [ "$(wc -l < "$work/results")" -ge 3 ] || say "$*: lost results: $(cat "$work/err")"
  pgrep -P "$run" > /dev/null && say "$*: a rank remains"
}
kill_a_rank() { kill -9 "$(pgrep -P "$1" -f "$lariat" | tail -1)"; }
ends kill -INT
ends kill_a_rank
exit $failed
