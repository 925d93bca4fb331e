#pragma once
#include "kernels/backend.h"

namespace lariat {

// The hardware's limits as they were measured; 0: not measured.
struct Limits {
  double read_bytes_per_second = 0;  // from main (device) memory
  double flops_per_second = 0;       // multiply-adds with such weights, counted as two operations
};

// dtype: what products are computed in, or a quantised dtype of weights. On the CPU this takes about a
// second, on a GPU much less.
Limits measure_cpu_limits(int threads, DType dtype);
Limits measure_cuda_limits(Backend& backend, DType dtype);  // of the GPU of a CudaBackend

}  // namespace lariat
