#pragma once
#include <string>

#include "kernels/backend.h"

namespace lariat {

// Measured hardware limits; 0: not measured.
struct Limits {
  double read_bytes_per_second = 0;  // main (device) memory
  double flops_per_second = 0;       // multiply-adds with weights of the dtype, counted as two operations
};

// Instruction sets of the CPU's kernels, as in "AVX3 + bf16 + AMX".
std::string cpu_path();

// dtype: compute dtype of products, or quantized weight dtype. Takes about a second.
Limits measure_cpu_limits(int threads, DType dtype);
Limits measure_cuda_limits(Backend& backend, DType dtype);  // backend: a CudaBackend

}  // namespace lariat
