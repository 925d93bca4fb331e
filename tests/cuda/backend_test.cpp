#include <cstdlib>

#include "kernels/error.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/tensors.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

using CudaMemory = OnCuda;

TEST_F(CudaMemory, CopiesThereAndBack) {
  for (size_t bytes :
       {size_t{1}, size_t{7}, size_t{4096}, (size_t{40} << 20) + 3}) {  // several pinned buffers
    std::vector<char> there(bytes), back(bytes);
    Rng rng(bytes);
    for (size_t i = 0; i < bytes; i += 97) there[i] = static_cast<char>(rng.next());
    const Buffer buffer = cuda_->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
    cuda_->copy_in(buffer.data(), there.data(), bytes);
    cuda_->copy_out(back.data(), buffer.data(), bytes);
    EXPECT_EQ(there, back);
  }
}

// The SIMT shim has no clock, so its limits are 0 and never infinite; a GPU exceeds 50 GB/s and 1 TFLOP/s.
TEST_F(CudaMemory, LimitsAreMeasured) {
  const char* pretended = std::getenv("LARIAT_SIMT_SMS");
  if (pretended != nullptr && std::atoi(pretended) > 16) {
    LARIAT_SKIP("products of 64 rows per multiprocessor: hours without a GPU");
  }
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Limits limits = measure_cuda_limits(*cuda_, dtype);
    if (holds(cuda_->description(), "SIMT shim")) {
      EXPECT_EQ(limits.read_bytes_per_second, 0);
      EXPECT_EQ(limits.flops_per_second, 0);
    } else {
      EXPECT_GT(limits.read_bytes_per_second, 5e10);
      EXPECT_GT(limits.flops_per_second, 1e12);
    }
  }
}

TEST_F(CudaMemory, NothingIsAnEmptyBuffer) { EXPECT_EQ(cuda_->allocate(0).bytes(), 0U); }

TEST_F(CudaMemory, OutOfMemoryIsReported) {
  EXPECT_TRUE(holds(error_of([&] { cuda_->allocate(size_t{1} << 50); }), "1048576.00 GiB"));
  EXPECT_EQ(cuda_->allocate(64).bytes(), 64U);
}

TEST_F(CudaMemory, WeightsAreConvertedAndPacked) {
  constexpr int64_t kRows = 37, kCols = 24;
  Rng rng(5);
  const std::vector<float> values = rng.normals(kRows * kCols);
  for (DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType to : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (int64_t gap : {0, 5}) {
        const Tensor host(reference_, values, kRows, kCols, from, gap);
        const Loaded weight = load_one(*cuda_, host.view(), to);
        const Matrix& loaded = weight.matrix;
        ASSERT_EQ(loaded.dtype, to);
        std::vector<char> bytes(static_cast<size_t>(kRows * loaded.stride) * size_of(to));
        cuda_->copy_out(bytes.data(), loaded.data, bytes.size());
        const std::vector<float> expected = host.values();
        for (int64_t i = 0; i < kRows * kCols; ++i) {
          const float value = rounded_to(to, expected[static_cast<size_t>(i)]);
          ASSERT_EQ(load_f32(bytes.data(), to, i / kCols * loaded.stride + i % kCols), value);
        }
      }
    }
  }
}

TEST_F(CudaMemory, AWeightFreesItsMemory) {
  const std::vector<float> zeros(1000 * 1000);
  const Matrix host(const_cast<float*>(zeros.data()), DType::kF32, 1000, 1000);
  const size_t before = cuda::device_memory().free;
  {
    const Loaded weight = load_one(*cuda_, host, DType::kF16);
    EXPECT_GE(weight.memory.bytes(), 2000000U);
    EXPECT_LT(cuda::device_memory().free, before);
  }
  EXPECT_EQ(cuda::device_memory().free, before);
}

TEST_F(CudaMemory, DescribesItself) {
  EXPECT_EQ(cuda_->name(), "cuda");
  EXPECT_NE(cuda_->description().find("sm_"), std::string::npos);
  EXPECT_THROW(make_cuda_backend(1000), Error);
}

}  // namespace
}  // namespace lariat::test
