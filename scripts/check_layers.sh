#!/usr/bin/env bash
# Includes point one way: kernels <- models <- engine <- engine/eval <- tools. Only kernels/cuda and tests know CUDA,
# nothing outside tests/ includes tests/, and only models/families/ knows a model's family.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
includes() {  # pattern of includes, grep's options and files
  local pattern=$1
  shift
  grep -nHE "#include [<\"]($pattern)" --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' "$@" || true
}
forbid() {  # what was found, whose, reason
  [ -z "$1" ] && return
  echo "$1"
  echo "check_layers: $2 must not include $3"
  failed=1
}
forbid "$(includes 'models/|engine/|tools/|nlohmann/|CLI/' -r kernels)" kernels \
  'what stands above it (models, engine, tools) or file formats'
forbid "$(includes 'engine/|tools/|CLI/' -r models)" models 'engine or tools'
# Errors and counts in words are all that files and text know of the kernels.
forbid "$(includes 'models/|kernels/' -r models/io | grep -vE 'models/io/|kernels/(error|counted)\.h' || true)" models/io \
  'models or kernels'
forbid "$(includes 'models/|kernels/' -r models/text | grep -vE '"(models/(io|text)/|kernels/(error|counted)\.h)' || true)" \
  models/text 'models, but for models/io'
forbid "$(includes 'tools/|CLI/' -r engine)" engine 'tools'
forbid "$(includes 'engine/eval/' engine/*.h engine/*.cpp)" engine 'engine/eval, which measures what engine runs'
for folder in kernels models engine tools; do
  forbid "$(includes 'tests/' -r "$folder")" "$folder" 'tests'
  forbid "$(includes 'cuda_|cuda\.h|cublas|.*\.cuh' -r --exclude-dir=cuda "$folder")" "$folder, but for kernels/cuda," \
    'CUDA headers'
done
# Code that names a family decides by it. Comments may name one, and llama3 is a RoPE scaling as well.
families=$(grep -rnE 'Llama|Qwen|Mistral|MiniMind' kernels engine models/*.cpp models/*.h models/io tools/*.cpp |
  sed 's,//.*$,,; s/kLlama3//g' | grep -E 'Llama|Qwen|Mistral|MiniMind' || true)
if [ -n "$families" ]; then
  echo "$families"
  echo "check_layers: only models/families/ may decide by a model's family"
  failed=1
fi
exit $failed
