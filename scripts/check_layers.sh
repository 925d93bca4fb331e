#!/usr/bin/env bash
# Includes point one way: kernels <- models <- engine <- engine/eval <- tools, and through the rooms of models. Only
# kernels/cuda and tests use CUDA, only kernels/communicator uses MPI, nothing outside tests/ includes tests/, only
# models/families/ handles model families. scripts/test_checks.py tests every rule.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
sources=(--include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' --include='*.def')

found() {  # pattern of grep -E, its options and files
  grep -nHE "${sources[@]}" "$@" || [ $? -eq 1 ]
}
fail() {  # lines, the rule that they break
  [ -z "$1" ] && return
  printf '%s\ncheck_layers: %s\n' "$1" "$2"
  failed=1
}
forbid() {  # folder, forbidden includes, their pattern, exceptions, grep's options and files
  local lines include='# *include *[<"]'
  lines=$(found "$include($3)" "${@:5}" | { grep -vE ":$include($4)" || [ $? -eq 1 ]; })
  fail "$lines" "$1 must not include $2"
}

layers=(kernels models engine tools python examples)
forbid 'any file' 'a file by a path that does not begin at the root' '\.|[^/"]*"|[^"]*/\.\./' 'nothing' -r "${layers[@]}"
forbid kernels 'what stands above it (models, engine, tools) or file formats' 'models/|engine/|tools/|nlohmann/|CLI/' \
  'nothing' -r kernels
forbid models 'engine or tools' 'engine/|tools/|CLI/' 'nothing' -r models
# Kernels' errors, counts in words and integer helpers are allowed.
forbid models/io 'models or kernels' 'models/|kernels/' 'models/io/|kernels/(error|counted|integers)\.h' -r models/io
# The tables of families and tokenizer classes are data.
forbid models/text 'models, but for models/io, or kernels' 'models/|kernels/' \
  'models/(io|text)/|models/families/(families\.def|tokenizers\.h|tokenizer_class\.h)|kernels/(error|counted)\.h' -r models/text
# Rooms of models, each after the rooms that it may include: no include goes up, so no rooms form a ring.
rooms=(io files spec positions families text quantization gguf load run)
known=
for room in "${rooms[@]}"; do
  known+="${known:+|}$room"
  forbid "models/$room" "models above it, whose rooms are, upwards: ${rooms[*]}" 'models/' "models/($known)/" -r "models/$room"
done
fail "$(find models -type f | { grep -vE "^models/($known)/[^/]+$" || [ $? -eq 1 ]; })" "a file of models must be in a room: ${rooms[*]}"
forbid engine 'tools' 'tools/|CLI/' 'nothing' -r engine
forbid 'engine, but for engine/eval,' 'engine/eval, which measures what engine runs' 'engine/eval/' 'nothing' \
  -r --exclude-dir=eval engine
forbid python 'tools, the other front end' 'tools/|CLI/' 'nothing' -r python
forbid 'code outside python' 'python' 'python/|nanobind/' 'nothing' -r --exclude-dir=python "${layers[@]}"
forbid 'what is not a test' 'tests' 'tests/' 'nothing' -r "${layers[@]}"
forbid 'what is not in kernels/cuda' 'CUDA headers, or of kernels/cuda more than make_cuda_backend.h' \
  'cuda|cublas|kernels/cuda/|.*\.cuh' 'kernels/cuda/make_cuda_backend\.h' -r --exclude-dir=cuda "${layers[@]}"
forbid 'code outside kernels/communicator_mpi.cpp' 'MPI headers' 'mpi' 'nothing' -r --exclude=communicator_mpi.cpp "${layers[@]}" tests

fail "$(found -r '"([^"]*/)?docs[/"]' tests)" 'tests must not read docs/, whose wording is free; their data lies beside them'

# Exceptions: comments; llama3, also a RoPE scaling; llama and gpt2, also GGUF's names of vocabularies.
family='s/^LARIAT_FAMILY\(([A-Za-z]+)([0-9][^,]*)?(For|LMHead)[A-Z][A-Za-z]*, ([a-z0-9_]+),.*/'
list=models/families/families.def
names="$(sed -nE "$family\1/p" $list | sort -u | paste -sd '|')|\"($(sed -nE "$family\4/p" $list | paste -sd '|'))\""
family_lines() {  # files and options of grep
  found "$names" "$@" | sed -E 's,^([^:]*:[^:]*:)(.*)//.*$,\1\2,; s/kLlama3//g; s/model_of\(file\) [!=]= "(llama|gpt2)"//' |
    { grep -E "^[^:]*:[^:]*:.*($names)" || [ $? -eq 1 ]; }
}
fail "$(family_lines -r --exclude-dir=families --exclude='gate*.cpp' kernels models engine tools)" \
  "only models/families/ may decide by a model's family (rules of gate*.cpp may name one)"
exit $failed
