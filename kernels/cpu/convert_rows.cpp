#include "kernels/cpu/convert_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert_rows.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

template <typename From, typename To>
void ConvertRow(const From* HWY_RESTRICT from, To* HWY_RESTRICT to, size_t count) {
  ForVectors(count,
             [&](size_t i, size_t n) LARIAT_INLINE_BODY { StoreUpTo(LoadUpTo(from + i, n), to + i, n); });
}

void ConvertRows(const Matrix& src, const Matrix& dst) {
  if (src.dtype == dst.dtype) {
    const auto element = static_cast<int64_t>(size_of(src.dtype));
    for (int64_t r = 0; r < src.rows; ++r) {
      std::memcpy(static_cast<char*>(dst.data) + r * dst.stride * element,
                  static_cast<const char*>(src.data) + r * src.stride * element,
                  static_cast<size_t>(src.cols * element));
    }
    return;
  }
  WithDType(src.data, src.dtype, [&](auto* from) HWY_ATTR {
    WithDType(dst.data, dst.dtype, [&](auto* to) HWY_ATTR {
      for (int64_t r = 0; r < src.rows; ++r) {
        ConvertRow(from + r * src.stride, to + r * dst.stride, static_cast<size_t>(src.cols));
      }
    });
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(ConvertRows);

namespace cpu {

void convert_rows(const Matrix& src, const Matrix& dst) { HWY_DYNAMIC_DISPATCH(ConvertRows)(src, dst); }

}  // namespace cpu
}  // namespace lariat
#endif
