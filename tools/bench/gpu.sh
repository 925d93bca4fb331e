#!/usr/bin/env bash
# Measures the CUDA backend on an NVIDIA GPU, as shares of the machine's limits and next to PyTorch and transformers on the
# same shapes in the same call, with random bf16 weights of configs/. The log goes to docs/gpu/bench-<commit>.log.
#
#   tools/bench/gpu.sh [BUILD_DIR]     default: build, which must hold lariat and cuda_bench
#   MODELS                             names of configs/*.json
#   PROMPTS, DEPTHS, GEN               tokens to prefill, tokens in the cache, tokens to decode
#   CHUNK                              lariat's --prefill-chunk
#   PYTHON                             a python3 with torch and transformers; else lariat is measured alone
#   PEER_OPTIONS                       options of tools/lab/peers/torch_peer.py
#   LLAMA_CPP, GGUF                    build folder of llama.cpp with CUDA, and its model, of the first of MODELS
#   COMMIT                             commit of the build, without a git history
#   DEVICE=cpu                         tries the script without a GPU
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
models=${MODELS:-llama-3.1-8b llama-2-7b tinyllama-1.1b}
prompts=${PROMPTS:-512,2048,8192,32768}
depths=${DEPTHS:-0,8192,32768,131072}
gen=${GEN:-64}
chunk=${CHUNK:-4096}  # for devices with the memory; larger products than with the default of 512
python=${PYTHON:-python3}
device=${DEVICE:-cuda}

die() {
  echo "gpu.sh: $*" >&2
  exit 1
}
gpu="none: DEVICE=$device"
if [ "$device" = cuda ]; then
  command -v nvidia-smi >/dev/null || die "no GPU: nvidia-smi is not installed; nothing was measured"
  gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv,noheader 2>&1) ||
    die "no GPU: $gpu; nothing was measured"
  [ -x "$build/cuda_bench" ] || die "$build/cuda_bench is missing; build the target benchmarks first"
fi
[ -x "$build/lariat" ] || die "$build/lariat is missing; build with -DLARIAT_CUDA=ON first"

commit=${COMMIT:-$(git rev-parse --short HEAD)} || die "no git history here: name the commit with COMMIT=..."
[ -n "${COMMIT:-}" ] || [ -z "$(git status --porcelain --untracked-files=no)" ] || commit="$commit-changed"
log=docs/gpu/bench-$commit.log
[ "$device" = cuda ] || log=$build/gpu-bench-$device.log
mkdir -p "$(dirname "$log")"
failed=0

say() { echo "$*" | tee -a "$log"; }

measure() {  # command; its output goes to the log and the terminal
  local start=$SECONDS
  say ""
  say "\$ $*"
  "$@" 2>&1 | tee -a "$log"
  if [ "${PIPESTATUS[0]}" -ne 0 ]; then
    say "FAILED"
    failed=1
  fi
  say "($((SECONDS - start)) s)"
}

# Kernel times of the first two layers: a prompt of 512 tokens, and decoding after 8,192 tokens.
kernel_times() {  # config
  local two=$build/two-layers.json
  if [ "$device" != cuda ] || ! command -v ncu >/dev/null; then
    say "ncu: not installed, no kernel times"
    return
  fi
  "$python" -c 'import json, sys; config = json.load(open(sys.argv[1])); config["num_hidden_layers"] = 2
json.dump(config, open(sys.argv[2], "w"))' "$1" "$two"
  for test in "--prompt 512 --gen 0" "--prompt 0 --gen 8 --depth 8192"; do
    # shellcheck disable=SC2086  # several words
    measure tools/lab/peers/kernel_times.py "$build/lariat" bench --config "$two" --random-weights --device cuda --dtype bf16 \
      --reps 1 --quiet $test
  done
}

# K and V of Llama 2 take half a megabyte per token.
depths_of() {
  case $1 in
    llama-2-7b) tr ',' '\n' <<<"$depths" | awk '$1 <= 32768' | paste -sd, ;;
    *) echo "$depths" ;;
  esac
}

: >"$log"
say "GPU, driver, memory, clocks: $gpu"
say "commit: $commit   command: tools/bench/gpu.sh ${*:-}   date: $(date -u +%Y-%m-%dT%H:%MZ)"
peer=1
"$python" -c 'import torch, transformers' 2>/dev/null || { peer=0; say "PyTorch or transformers: not installed, not measured"; }

first=1
for model in $models; do
  config=configs/$model.json
  [ -f "$config" ] || die "$config: no such file"
  at=$(depths_of "$model")
  lariat=("$build/lariat" bench --config "$config" --random-weights --device "$device" --dtype bf16
    --prefill-chunk "$chunk" --quiet)
  measure "${lariat[@]}" --prompt 0 --gen "$gen" --depth "$at"
  [ $first = 0 ] || measure env LARIAT_PDL=0 "${lariat[@]}" --prompt 0 --gen "$gen" --depth "$at"  # no launch starts early
  measure "${lariat[@]}" --prompt "$prompts" --gen 0
  if [ $first = 1 ] && [ "$device" = cuda ]; then
    measure "$build/cuda_bench" --benchmark_min_time=0.2 --benchmark_repetitions=3 \
      --benchmark_report_aggregates_only=true --benchmark_counters_tabular=true
  fi
  [ $first = 0 ] || kernel_times "$config"
  if [ $first = 1 ] && [ -n "${LLAMA_CPP:-}" ] && [ -n "${GGUF:-}" ]; then
    measure "$LLAMA_CPP/bin/llama-bench" -m "$GGUF" -ngl 99 -fa 1 -p "$prompts" -n "$gen" -d "$at"
  fi
  # shellcheck disable=SC2086  # PEER_OPTIONS are several words
  [ $peer = 0 ] || measure "$python" tools/lab/peers/torch_peer.py --config "$config" --device "$device" \
    --prompts "$prompts" --depths "$at" --gen "$gen" ${PEER_OPTIONS:-}
  first=0
done
say ""
say "log: $log"
exit $failed
