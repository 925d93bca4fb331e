#pragma once
#include "kernels/tensor.h"

// What this machine can do at most, measured, so that a benchmark can say how far from it the program is.
namespace lariat::cpu {

// Bytes per second that `threads` threads read from memory: a buffer of at least 1 GiB, far larger than any
// cache, in several streams per thread; the best of several runs. Takes about a second.
double measure_read_bandwidth(int threads);

// Floating-point operations per second of `threads` threads that multiply and add in registers alone, with
// the widest instruction a matrix product with weights of this dtype may use here (f16 weights are computed
// in f32, quantised ones in bytes). No product of matrices can be faster. Takes about a tenth of a second.
double measure_gemm_peak(DType dtype, int threads);

}  // namespace lariat::cpu
