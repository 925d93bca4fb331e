#include "kernels/cpu/quant_dot_avx2.h"

#if defined(__x86_64__)

void lariat::cpu::avx2::dot_planes(const QuantTask& task) {
  dot_kinds(task, []<class K>(K) { return K::kPlanes; });
}

#endif
