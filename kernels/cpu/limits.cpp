#include "kernels/cpu/bandwidth.h"
#include "kernels/cpu/cpu_backend.h"

namespace lariat {

Limits CpuBackend::measure_limits(DType dtype) {
  return {cpu::measure_read_bandwidth(threads_), cpu::measure_gemm_peak(dtype, threads_)};
}

}  // namespace lariat
