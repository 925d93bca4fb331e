#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embed.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

template <typename T>
void CopyRow(const T* src, size_t n, float* dst) {
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) hn::StoreU(LoadF32(d, src + i), d, dst + i);
  if (i < n) StoreTailF32(d, LoadTailF32(d, src + i, n - i), dst + i, n - i);
}

void EmbedRows(const int32_t* tokens, const Matrix& table, const Matrix& out, int64_t first, int64_t last) {
  WithDType(table.data, table.dtype, [&](const auto* rows) HWY_ATTR {
    for (int64_t t = first; t < last; ++t) {
      CopyRow(rows + tokens[t] * table.stride, static_cast<size_t>(table.cols), out.f32(t));
    }
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(EmbedRows);

void CpuBackend::embed(std::span<const int32_t> tokens, const Matrix& table, const Matrix& out) {
  const auto n = static_cast<int64_t>(tokens.size());
  for_ranges(threads_, n, row_grain(table.cols), [&](int64_t first, int64_t last) {
    HWY_DYNAMIC_DISPATCH(EmbedRows)(tokens.data(), table, out, first, last);
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
