#!/usr/bin/env bash
# failures.sh LARIAT SOURCE_DIR RANKS LARIAT_SANITIZE MPIRUN...: an error of rank 0 or of the last rank, inside a forward pass or
# between two, ends all ranks within 10 seconds, with exit code 1 and one line that names the rank and the reason.
set -u
export ASAN_OPTIONS=detect_leaks=0  # Open MPI keeps memory until the process ends
lariat=$1 demo=$2/configs/demo ranks=$3 sanitize=$4
shift 4
mpirun=("$@")  # up to the flag of the number of ranks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

say() { echo "FAILED: $*" && failed=1; }

# run LIMITED LIMITS ARGUMENTS...: the program with `LIMITS` (shell) on rank LIMITED (0 or last). Sets code and seconds.
run() {
  local limited=$1 limits=$2 rest=$((ranks - 1))
  shift 2
  local limiting=(bash -c "$limits; exec \"\$@\"" limiting "$lariat" "$@") started
  started=$(date +%s%N)
  if [ "$limited" = 0 ]; then
    timeout 10 "${mpirun[@]}" 1 "${limiting[@]}" : -n $rest "$lariat" "$@" > "$work/out" 2> "$work/err"
  else
    timeout 10 "${mpirun[@]}" $rest "$lariat" "$@" : -n 1 "${limiting[@]}" > "$work/out" 2> "$work/err"
  fi
  code=$?
  seconds=$(awk "BEGIN { print ($(date +%s%N) - $started) / 1e9 }")
}

# fails CAUSE RANK REASON: the last run's code and its only line.
fails() {
  echo "$1, $ranks ranks: exit code $code, $seconds s: $(grep '^lariat: ' "$work/err")"
  [ "$code" = 1 ] || say "$1: exit code $code"
  [ "$(grep -c '^lariat: ' "$work/err")" = 1 ] && grep -q "^lariat: error: rank $2: .*$3" "$work/err" ||
    say "$1: no line of rank $2: $(cat "$work/err")"
}

# Whether Open MPI itself ended the last run: below 245,000 KiB some of its libraries find no room, and it crashes in MPI_Init or
# exits, often without memory for a backtrace. Above, every end is the program's.
mpi_failed() {  # LIMIT
  [ "$1" -lt 245000 ] && [ $code != 124 ] && ! grep -q '^lariat: ' "$work/err" &&
    grep -q 'failed to map segment\|Cannot allocate memory\|out of dynamic memory' "$work/err"
}

# A sweep of address spaces, from too little to load the model to enough for the whole run. In the smallest ones Open MPI itself
# may find no room for its libraries, depending on where they are mapped. AddressSanitizer reserves terabytes of addresses: no
# limit leaves it room.
sweep() {
  local long=(generate -m "$demo" -f "$demo/heldout.txt" --first-tokens 3000 -n 3 --kv-dtype f32 --quiet) limited limit ended
  run 0 true "${long[@]}"
  [ "$code" = 0 ] || say "without a limit: exit code $code: $(cat "$work/err")"
  for limited in 0 $((ranks - 1)); do
    ended=0
    for limit in 200000 215000 230000 245000 260000 275000 290000 320000; do
      run $limited "ulimit -v $limit" "${long[@]}"
      if mpi_failed $limit; then
        echo "ulimit -v $limit on rank $limited, $ranks ranks: Open MPI did not start (exit code $code, $seconds s)"
        continue
      fi
      # After lariat's line, MPI_Abort reads its own message; a scanner that finds no memory for it exits with 2.
      if [ $code = 2 ] && grep -q 'out of dynamic memory in opal_show_help' "$work/err"; then
        echo "ulimit -v $limit: Open MPI's scanner changed the exit code to 2"
        code=1
      fi
      case $code in
        0) ;;
        1) fails "ulimit -v $limit on rank $limited" $limited memory && ended=$((ended + 1)) ;;
        *) say "ulimit -v $limit on rank $limited: exit code $code, $seconds s: $(cat "$work/err")" ;;
      esac
    done
    [ $ended -gt 0 ] || say "no limit on rank $limited ended a run"
  done
}
if [ "$sanitize" = OFF ]; then sweep; else echo "SKIPPED: limits of the address space: a sanitizer's own do not fit"; fi

# Not a number: the last tensor's values.
cp -r "$demo" "$work/nan" && chmod -R u+w "$work/nan"
size=$(stat -c %s "$work/nan/model.safetensors")
head -c 4096 /dev/zero | tr '\0' '\377' |
  dd of="$work/nan/model.safetensors" bs=1 seek=$((size - 4096)) conv=notrunc 2> /dev/null
run 0 true generate -m "$work/nan" -p "Once upon a time" -n 3 --quiet
fails "NaN" 0 "not finite"

# A callback that fails: the logits of the first slice no longer fit their file.
for _ in 1 2 3 4 5 6; do seq 500; done > "$work/tokens"
run 0 "ulimit -f 12000" logits -m "$demo" --tokens-file "$work/tokens" --out "$work/logits" --quiet
fails "a callback" 0 "$work/logits"

# Ctrl-C on rank 0 alone, and at mpirun, in a run that does not end before the signal on any machine.
for _ in 1 2 3 4 5 6 7 8; do cat "$work/tokens"; done > "$work/many"
for target in rank mpirun; do
  "${mpirun[@]}" $ranks "$lariat" logits -m "$demo" --tokens-file "$work/many" --decode-from 1 --out "$work/logits" --quiet \
    > "$work/out" 2> "$work/err" &
  run=$!
  sleep 2
  started=$(date +%s%N)
  if [ $target = rank ]; then kill -INT "$(pgrep -P $run -f "$lariat" | head -1)"; else kill -INT $run; fi
  timeout 10 tail -s 0.1 --pid=$run -f /dev/null
  ended=$?
  seconds=$(awk "BEGIN { print ($(date +%s%N) - $started) / 1e9 }")
  if pgrep -r D,R,S,T -P $run > /dev/null; then
    say "Ctrl-C at $target: a rank remains after $seconds s"
  elif [ $ended != 0 ] && [ $target = mpirun ]; then
    # Once its ranks have ended, the mpirun of Open MPI 4 sometimes hangs in its own PMIx_server_finalize.
    echo "Ctrl-C at $target, $ranks ranks: all ranks ended; mpirun itself hangs"
  elif [ $ended != 0 ]; then
    say "Ctrl-C at $target: mpirun remains after $seconds s"
  fi
  [ $ended = 0 ] || kill -KILL $run
  wait $run
  code=$?
  echo "Ctrl-C at $target, $ranks ranks: exit code $code, $seconds s: $(grep '^lariat: ' "$work/err")"
  [ $code != 0 ] || say "Ctrl-C at $target: exit code $code, $seconds s"
  [ $target = mpirun ] || fails "Ctrl-C on rank 0" 0 interrupted
done
exit $failed
