#!/usr/bin/env bash
# Trains four tiny models that differ only in positions and measures them at 1, 2 and 4 times their training length. Prints a
# table of their perplexities and draws docs/positions.svg. Needs PyTorch and a build; a few minutes of one core per model.
# An interrupted run resumes.
#   scripts/positions.sh [FOLDER]     PYTHON=python3 LARIAT=build/lariat TOKENS=600000
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/positions}
python=${PYTHON:-python3}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

mkdir -p "$out"
corpus() { [ -s "$out/$1" ] || "$python" tools/lab/demo/make_corpus.py --kind stories "${@:2}" --out "$out/$1"; }
corpus stories.txt --megabytes 6
corpus heldout.txt --megabytes 0.2 --words 900 --split heldout --end ''

for kind in rope alibi sinusoidal learned; do
  if ! grep -qs '^final' "$out/$kind.log"; then
    mkdir -p "$out/$kind"
    # One tokenizer for all models.
    [ "$kind" = rope ] || cp "$out/rope/tokenizer.model" "$out/$kind"
    "$python" tools/lab/demo/train.py --positions "$kind" --data "$out/stories.txt:1" --heldout "$out/heldout.txt" \
      --vocab 1024 --layers 3 --length 128 --batch 16 --micro-batch 16 --tokens "${TOKENS:-600000}" \
      --no-compile --device cpu --eval-every 1e9 --out "$out/$kind" >"$out/$kind.log"
  fi
  tail -n 1 "$out/$kind.log" | sed "s/^final: /$kind: /" >&2
done
"$python" tools/lab/demo/compare_positions.py --runs "$out" --text "$out/heldout.txt" --lariat "${LARIAT:-build/lariat}" \
  --svg docs/positions.svg
