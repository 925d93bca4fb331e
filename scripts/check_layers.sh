#!/usr/bin/env bash
# Includes point one way: kernels <- models <- engine <- tools; only kernels/cuda and tests/simt know CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
forbid() {  # folder, pattern of includes it may not have, reason
  local hits
  hits=$(grep -rnE "#include [<\"]($2)" "$1" --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' || true)
  if [ -n "$hits" ]; then
    echo "$hits"
    echo "check_layers: $1 must not include $3"
    failed=1
  fi
}
forbid kernels 'models/|engine/|tools/|nlohmann/|CLI/' 'what stands above it (models, engine, tools) or file formats'
forbid models 'engine/|tools/|CLI/' 'engine or tools'
forbid engine 'tools/|CLI/' 'tools'
for folder in kernels/cpu kernels/reference models engine tools; do
  forbid "$folder" 'cuda_|cuda\.h|cublas|.*\.cuh' 'CUDA headers'
done
exit $failed
