#!/usr/bin/env bash
# Compiles kernels/cuda/runtime.cu, the only file with CUDA runtime calls, against CUDA 12.4, whose declarations differ from
# CUDA 13's (graph instantiation, device properties). These headers come without a device compiler.
#   scripts/check_cuda12.sh [FOLDER for the headers, build/cuda12]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/cuda12}
if [ ! -e "$folder/made" ]; then
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$folder" \
    nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131 || {
    echo "SKIPPED: the packages of CUDA 12.4 are not available"
    exit 0
  }
  touch "$folder/made"
fi
headers=(-I "$folder/nvidia/cuda_runtime/include" -I "$folder/nvidia/cuda_nvcc/include")
printf '#include <cuda_runtime_api.h>\nstatic_assert(CUDART_VERSION == 12040);\n' |
  g++ -std=c++20 "${headers[@]}" -x c++ -fsyntax-only -
g++ -std=c++20 -I. "${headers[@]}" -Wall -Wextra -Werror -Wno-unknown-pragmas -x c++ -fsyntax-only kernels/cuda/runtime.cu
echo "kernels/cuda/runtime.cu compiles with the headers of CUDA 12.4"
