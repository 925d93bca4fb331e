#include <cassert>

#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemv.h"
#include "kernels/cpu/quant_matmul.h"

namespace lariat {

void CpuBackend::matmul(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
                        const Matrix& out) {
  assert(x.dtype == DType::kF32 && out.dtype == DType::kF32 && x.cols == w.cols);
  assert(out.rows == x.rows && out.cols == w.rows && (!bias || bias.cols == w.rows));
  if (x.rows == 0 || w.rows == 0) return;
  if (is_quantized(w.dtype)) {
    void* memory = scratch(cpu::quant_matmul_scratch_bytes(x, w));
    return cpu::quant_matmul(x, w, bias, out, memory, threads_);
  }
  if (x.rows > cpu::kGemvRows) {
    ++paths_.gemm;
    void* memory = scratch(cpu::gemm_scratch_bytes(x, w, compute, threads_));
    return cpu::gemm(x, w, bias, compute, out, memory, threads_);
  }
  ++paths_.gemv;
  if (compute == DType::kBF16) {
    const auto bytes = static_cast<size_t>(x.rows * x.cols) * size_of(DType::kBF16);
    const Matrix rounded(scratch(bytes), DType::kBF16, x.rows, x.cols);
    cpu::convert_rows(x, rounded);
    cpu::gemv(rounded, w, bias, out, threads_);
  } else {
    cpu::gemv(x, w, bias, out, threads_);
  }
}

}  // namespace lariat
