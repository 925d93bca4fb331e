#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz with libFuzzer, runs them and prints one table. Fails if a target fails.
#
#   scripts/fuzz.sh [SECONDS_PER_TARGET] [TARGET...]      default: 60, every target
#
# A target fails on a crash, a broken invariant, a leak, an exception other than lariat::Error, more than a second of CPU time
# per input, or an allocation above 64 MB (inputs have up to 16 KB). The failing input is in build-asan/fuzz/failures/; once
# fixed, move it to tests/fuzz/regressions/TARGET/. The next run reuses the corpus in build-asan/fuzz/corpus/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
build=build-asan work=build-asan/fuzz # the tree of the sanitized tests
targets=("$@")
[ ${#targets[@]} -gt 0 ] ||
  mapfile -t targets < <(sed -n 's/^set(targets \(.*\))$/\1/p' tests/fuzz/CMakeLists.txt | tr ' ' '\n')

command -v clang++ >/dev/null || { echo "fuzz.sh: clang++ is missing; run scripts/install.sh --ci" >&2; exit 1; }
cmake --preset asan >/dev/null
cmake --build --preset asan --target "${targets[@]/#/fuzz_}"

one() {  # target
  local target=$1 limit=16384 regressions=tests/fuzz/regressions/$1
  [ "$target" = text ] && limit=512  # every byte goes through four encoders and decoders
  mkdir -p "$work/corpus/$target" "$work/failures/$target"
  rm -rf "$work/seeds/$target" "$work/failures/$target"/*
  tests/fuzz/seeds.sh "$target" "$work/seeds/$target"
  local folders=("$work/corpus/$target" "$work/seeds/$target")
  [ -d "$regressions" ] && folders+=("$regressions")
  # ASan counts quarantined memory as used.
  ASAN_OPTIONS=quarantine_size_mb=32 "$build/fuzz_$target" -max_total_time="$seconds" -max_len="$limit" -timeout=20 \
    -malloc_limit_mb=64 -rss_limit_mb=512 -print_final_stats=1 -artifact_prefix="$work/failures/$target/" \
    "${folders[@]}" >"$work/$target.log" 2>&1 || true
}
export -f one
export build work seconds
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -euo pipefail -c 'one {}'

failed=0
printf '%-16s %12s %8s %8s %9s\n' target executions seconds edges failures
for target in "${targets[@]}"; do
  log=$work/$target.log
  count=$(find "$work/failures/$target" -type f ! -name 'slow-unit-*' | wc -l)
  grep -q '^Done ' "$log" || count=$((count > 0 ? count : 1))
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
  took=$(sed -n 's/^Done [0-9]* runs in \([0-9]*\) second.*/\1/p' "$log")
  edges=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f2)
  printf '%-16s %12s %8s %8s %9s\n' "$target" "${runs:--}" "${took:--}" "${edges:--}" "$count"
  [ "$count" -eq 0 ] || failed=1
done
if [ $failed -ne 0 ]; then
  echo "what failed:"
  find "$work/failures" -type f ! -name 'slow-unit-*'
  for target in "${targets[@]}"; do
    grep -hE '^(==[0-9]+==ERROR|SUMMARY|promise broken|terminate|  what)' "$work/$target.log" || true
  done
fi
exit $failed
