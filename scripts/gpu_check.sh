#!/usr/bin/env bash
# Runs all CUDA checks that need an NVIDIA GPU. Writes the log to docs/gpu/check-<commit>.log and ends with a table of results.
#
#   scripts/gpu_check.sh [BUILD_DIR]          default: build, which must hold lariat and gpu_test
#   MODEL, TEXT, SCALINGS                     checkpoint, text for the perplexity, RoPE scalings
#   SANITIZE_FILTER                           gtest filter of the tests under compute-sanitizer; default: all
#   COMMIT                                    commit of the build, without a git history
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
model=${MODEL:-configs/demo}
text=${TEXT:-docs/context-extension.md}
scalings=${SCALINGS:-none yarn dynamic dynamic-yarn}
filter=${SANITIZE_FILTER:-*}

die() {
  echo "gpu_check: $*" >&2
  exit 1
}
command -v nvidia-smi >/dev/null || die "no GPU: nvidia-smi is not installed, so there is no NVIDIA driver; nothing was checked"
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader 2>&1) ||
  die "no GPU: $gpu; nothing was checked"
for program in lariat gpu_test; do
  [ -x "$build/$program" ] || die "$build/$program is missing; build with -DLARIAT_CUDA=ON -DLARIAT_TESTS=ON first"
done
command -v python3 >/dev/null || die "python3 is needed to compare results; nothing was checked"

commit=${COMMIT:-$(git rev-parse --short HEAD)} || die "no git history here: name the commit with COMMIT=..."
[ -n "${COMMIT:-}" ] || [ -z "$(git status --porcelain --untracked-files=no)" ] || commit="$commit-changed"
mkdir -p docs/gpu
log=docs/gpu/check-$commit.log
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
summary=()
failed=0

say() { echo "$*" | tee -a "$log"; }

# check NAME COMMAND...: its output goes to the log.
check() {
  local what=$1 start=$SECONDS result
  shift
  say "== $what"
  say "\$ $*"
  if "$@" >>"$log" 2>&1; then
    result=passed
  else
    result=FAILED
    failed=1
  fi
  summary+=("$result  $what ($((SECONDS - start)) s)")
  say "== $result"
}

sanitize() {  # tool
  if ! command -v compute-sanitizer >/dev/null; then
    summary+=("NOT RUN compute-sanitizer $1: it is not installed")
    failed=1
    return
  fi
  # Tests with failing launches expect API errors.
  local quiet=()
  [ "$1" != memcheck ] || quiet=(--report-api-errors no)
  check "compute-sanitizer $1" compute-sanitizer --tool "$1" "${quiet[@]}" --target-processes all --error-exitcode 9 \
    "$build/gpu_test" "--gtest_filter=$filter" --gtest_brief=1
}

# Compares a subcommand's JSON objects of both devices.
both() {  # what, kind of comparison, subcommand and its options
  local what=$1 kind=$2 device
  shift 2
  for device in cpu cuda; do
    check "$what: $device" run_json "$work/$device.json" "$build/lariat" "$@" --device "$device" --json --quiet
  done
  check "$what: cuda like cpu" compare_json "$kind" "$work/cpu.json" "$work/cuda.json"
}

# shellcheck disable=SC2317  # both are called through check
run_json() {  # file, command
  local file=$1
  shift
  "$@" | tee "$file"
}

# shellcheck disable=SC2317
compare_json() {  # kind, expected, actual
  python3 - "$@" <<'PYTHON'
import json, sys

kind, cpu, cuda = sys.argv[1], *(json.load(open(path)) for path in sys.argv[2:])
if kind in ("tokens", "divergence"):
    a, b = cpu["tokens"], cuda["tokens"]
    first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    same = first == len(a) == len(b)
    print(f"{len(a)} and {len(b)} tokens,", "all equal" if same else f"first divergence at token {first}")
    print("re-rotations:", cpu["rope"]["rerotations"], cuda["rope"]["rerotations"])
    sys.exit(kind == "tokens" and not same)
if kind == "perplexity":
    apart = [abs(y["ppl"] / x["ppl"] - 1) for x, y in zip(cpu["results"], cuda["results"], strict=True)]
    for x, y, d in zip(cpu["results"], cuda["results"], apart):
        print(f"ctx {x['ctx']}: {x['ppl']:.5f} on the CPU, {y['ppl']:.5f} on the GPU, {100 * d:.4f} % apart")
    sys.exit(not apart or max(apart) > 1e-3)
table = lambda run: [(r["length"], r["depth"], r["trials"], r["correct"]) for r in run["results"]]
print(table(cpu), table(cuda), sep="\n")
sys.exit(not table(cpu) or table(cpu) != table(cuda))
PYTHON
}

: >"$log"
say "GPU, driver, memory, compute capability: $gpu"
say "commit: $commit   command: scripts/gpu_check.sh ${*:-}"
say "nvcc: $(nvcc --version 2>/dev/null | tail -n 1 || echo 'not on PATH')"
say "date: $(date -u +%Y-%m-%dT%H:%MZ)"

check "tests on the GPU" ctest --test-dir "$build" -L gpu --no-tests=error --output-on-failure
sanitize memcheck
sanitize racecheck
sanitize synccheck

prompt=(--prompt "Once upon a time" --max-new-tokens 200 --ignore-eos)
for scaling in $scalings; do
  rope=(--rope-scaling "$scaling")
  [ "$scaling" = none ] || rope+=(--rope-factor 4 --rope-original-ctx 64)
  both "greedy f32, $scaling" tokens generate --model "$model" "${prompt[@]}" "${rope[@]}" --dtype f32 --kv-dtype f32
  both "greedy bf16, $scaling" divergence generate --model "$model" "${prompt[@]}" "${rope[@]}" --dtype bf16
  [ "$scaling" = none ] || rope=(--rope-scaling "$scaling" --rope-factor 4)
  both "perplexity, $scaling" perplexity perplexity --model "$model" --file "$text" --ctx 256,1024 --max-tokens 4096 "${rope[@]}"
  both "passkey, $scaling" passkey passkey --model "$model" --lengths 256,512,1024 --trials 5 "${rope[@]}"
done
check "speed" "$build/lariat" bench --model "$model" --device cuda --prompt 512 --gen 128
check "speed, q8" "$build/lariat" bench --model "$model" --device cuda --prompt 512 --gen 128 --quantize q8

say ""
printf '%s\n' "${summary[@]}" | tee -a "$log"
echo "log: $log"
exit $failed
