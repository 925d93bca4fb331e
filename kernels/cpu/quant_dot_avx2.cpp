#include "kernels/cpu/quant_dot_avx2.h"

#if defined(__x86_64__)

namespace lariat::cpu {

void quant_dot_avx2(const QuantTask& task) {
  const int bits = QuantBlock(task.w).bits;
  if (bits == 4) return avx2::dot_nibbles(task);
  if (bits != 8) return avx2::dot_planes(task);
  avx2::dot_kinds(task, []<class K>(K) { return K::kBits == 8; });
}

}  // namespace lariat::cpu

#endif
