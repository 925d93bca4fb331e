#include "kernels/cpu/bandwidth.h"
#include "kernels/cpu/cpu_backend.h"

namespace lariat {

Limits CpuBackend::measure_limits(DType compute) {
  return {cpu::measure_read_bandwidth(threads_), cpu::measure_gemm_peak(compute, threads_)};
}

}  // namespace lariat
