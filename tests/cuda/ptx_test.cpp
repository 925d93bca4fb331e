// Lane layouts of mma and ldmatrix vs NVIDIA's published layouts: a GPU's instructions, or the shim's.
#include "kernels/convert.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/cuda/ptx_kernels.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {
namespace {

// A CuTe layout: (size, stride) pairs for the lane and its values, the first pair fastest. The sum is an
// index in a matrix whose first index runs fastest (ldmatrix: in the concatenated rows).
struct FragmentMode {
  int size, stride;
};
struct FragmentLayout {
  std::vector<FragmentMode> lanes, values;

  static int sum(const std::vector<FragmentMode>& modes, int index) {
    int at = 0;
    for (const FragmentMode& mode : modes) {
      at += index % mode.size * mode.stride;
      index /= mode.size;
    }
    return at;
  }
  int at(int lane, int value) const { return sum(lanes, lane) + sum(values, value); }
};

// NVIDIA cutlass, include/cute/atom/mma_traits_sm80.hpp: ALayout (M16, K16), BLayout (N8, K16), CLayout (M16,
// N8) of SM80_16x8x16_F32F16F16F32_TN, also for bf16.
const FragmentLayout kLayoutA = {{{4, 32}, {8, 1}}, {{2, 16}, {2, 8}, {2, 128}}};
const FragmentLayout kLayoutB = {{{4, 16}, {8, 1}}, {{2, 8}, {2, 64}}};
const FragmentLayout kLayoutC = {{{4, 32}, {8, 1}}, {{2, 16}, {2, 8}}};
// SM80_16x8x32_S32S8S8S32_TN: (M16, K32) and (N8, K32).
const FragmentLayout kLayoutBytesA = {{{4, 64}, {8, 1}}, {{4, 16}, {2, 8}, {2, 256}}};
const FragmentLayout kLayoutBytesB = {{{4, 32}, {8, 1}}, {{4, 8}, {2, 128}}};
// include/cute/atom/copy_traits_sm75.hpp: DstLayout of SM75_U32x4_LDSM_N and SM75_U16x8_LDSM_T, from bits to
// 16-bit elements. SrcLayout has lane l's row at bit 128 l.
const FragmentLayout kLayoutLdmatrix = {{{32, 2}}, {{2, 1}, {4, 64}}};
const FragmentLayout kLayoutLdmatrixTrans = {{{4, 16}, {8, 1}}, {{2, 8}, {4, 64}}};

// The first value has the lowest bits.
template <class T>
std::vector<uint32_t> packed_fragment(const FragmentLayout& layout, int values,
                                      const std::vector<T>& matrix) {
  constexpr int kPerWord = 4 / sizeof(T);
  std::vector<uint32_t> words(static_cast<size_t>(32 * values / kPerWord));
  for (int i = 0; i < 32 * values; ++i) {
    const T value = matrix[static_cast<size_t>(layout.at(i / values, i % values))];
    words[static_cast<size_t>(i / kPerWord)] |= uint32_t{std::make_unsigned_t<T>(value)}
                                                << (8 * sizeof(T) * (i % kPerWord));
  }
  return words;
}

// Element of the sums in register i % 4 of lane i / 4.
size_t element_of_c(size_t i) {
  return static_cast<size_t>(kLayoutC.at(static_cast<int>(i / 4), static_cast<int>(i % 4)));
}

// c(M16, N8) + a(M16, K) b(N8, K)
template <class T, class Sum>
std::vector<Sum> product_of(const std::vector<T>& a, const std::vector<T>& b, std::vector<Sum> c) {
  for (size_t i = 0; i < c.size(); ++i) {
    for (size_t k = 0; k < a.size() / 16; ++k) c[i] += a[i % 16 + 16 * k] * b[i / 16 + 8 * k];
  }
  return c;
}

class CudaPtx : public OnCuda {
 protected:
  template <class T>
  Buffer on_device(const std::vector<T>& host) {
    Buffer buffer = cuda_->allocate(host.size() * sizeof(T));
    cuda_->copy_in(buffer.data(), host.data(), buffer.bytes());
    cuda_->synchronize();
    return buffer;
  }
  template <class T>
  std::vector<T> on_host(const Buffer& buffer) {
    std::vector<T> host(buffer.bytes() / sizeof(T));
    cuda_->copy_out(host.data(), buffer.data(), buffer.bytes());
    return host;
  }

  // run(a, b, d) adds the product to c.
  template <class Sum, class Run>
  void check_mma(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b, const std::vector<Sum>& c,
                 const std::vector<Sum>& expected, const Run& run) {
    std::vector<Sum> sums(32 * 4);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = c[element_of_c(i)];
    const Buffer a_words = on_device(a), b_words = on_device(b), d = on_device(sums);
    run(static_cast<const uint32_t*>(a_words.data()), static_cast<const uint32_t*>(b_words.data()),
        static_cast<Sum*>(d.data()));
    sums = on_host<Sum>(d);
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(sums[i], expected[element_of_c(i)]) << "lane " << i / 4 << ", register " << i % 4;
    }
  }
};

// Small integers have exact sums in any order.
std::vector<float> small_integers(Rng& rng, size_t count) {
  std::vector<float> values(count);
  for (float& x : values) x = std::floor(rng.uniform() * 33) - 16;
  return values;
}
std::vector<uint16_t> as_bits(const std::vector<float>& values, DType dtype) {
  std::vector<uint16_t> bits;
  for (float x : values) bits.push_back(dtype == DType::kF16 ? f32_to_f16(x) : f32_to_bf16(x));
  return bits;
}

TEST_F(CudaPtx, MmaHasCuTesFragments) {
  Rng rng(20);
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    const std::vector<float> a = small_integers(rng, 16 * 16), b = small_integers(rng, 8 * 16),
                             c = small_integers(rng, 16 * 8);
    check_mma(packed_fragment(kLayoutA, 8, as_bits(a, dtype)),
              packed_fragment(kLayoutB, 4, as_bits(b, dtype)), c, product_of(a, b, c),
              [&](auto... operands) { run_mma(dtype, operands...); });
  }
}

TEST_F(CudaPtx, MmaOfBytesHasCuTesFragments) {
  Rng rng(21);
  const auto bytes = [&](size_t count) {  // every value
    std::vector<int8_t> values(count);
    for (int8_t& x : values) x = static_cast<int8_t>(rng.next() >> 32);
    return values;
  };
  const std::vector<int8_t> a = bytes(16 * 32), b = bytes(8 * 32);
  std::vector<int32_t> c(16 * 8);
  for (int32_t& x : c) x = static_cast<int32_t>(rng.next() % 2001) - 1000;
  check_mma(packed_fragment(kLayoutBytesA, 16, a), packed_fragment(kLayoutBytesB, 8, b), c,
            product_of(a, b, c), run_mma_of_bytes);
}

TEST_F(CudaPtx, LdmatrixHasCuTesFragments) {
  std::vector<uint16_t> rows(32 * 8);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(1000 + i);
  std::vector<int32_t> row_of_lane(32);  // all rows, permuted
  for (int lane = 0; lane < 32; ++lane) row_of_lane[static_cast<size_t>(lane)] = (lane * 5 + 3) % 32;
  std::vector<uint16_t> pointed_at;
  for (int row : row_of_lane) pointed_at.insert(pointed_at.end(), &rows[row * 8U], &rows[row * 8U] + 8);
  const Buffer source = on_device(rows), places = on_device(row_of_lane);
  for (bool transposed : {false, true}) {
    const Buffer r = on_device(std::vector<uint32_t>(32 * 4));
    run_ldmatrix(transposed, static_cast<const uint16_t*>(source.data()),
                 static_cast<const int32_t*>(places.data()), static_cast<uint32_t*>(r.data()));
    EXPECT_EQ(on_host<uint32_t>(r),
              packed_fragment(transposed ? kLayoutLdmatrixTrans : kLayoutLdmatrix, 8, pointed_at))
        << (transposed ? "transposed" : "");
  }
}

}  // namespace
}  // namespace lariat::test
