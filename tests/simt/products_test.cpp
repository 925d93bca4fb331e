// cuBLAS products of a prefill: one for q, k, v, one for gate and up.
#include "kernels/cuda/cuda_backend.h"
#include "tests/engine/engine_test_util.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

using namespace lariat;
using namespace lariat::test;

struct ProductsCase {
  const char* name;
  DType dtype;
  uint64_t products;  // per layer
};

void PrintTo(const ProductsCase& c, std::ostream* out) { *out << c.name << " " << name_of(c.dtype); }

using SimtProducts = testing::TestWithParam<ProductsCase>;

TEST_P(SimtProducts, PerLayer) {
  CudaBackend backend;
  const auto dir = checkpoint_dir(GetParam().name);
  const ModelSpec spec = load_config(dir);
  const Model model = load_model(dir, spec, backend, GetParam().dtype);
  Session session(model, backend, SessionOptions());
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 24; ++i) tokens.push_back(static_cast<int32_t>((i * 37 + 11) % spec.vocab_size));
  Sequence sequence = session.new_sequence();
  const uint64_t before = gemms();
  prefill(session, sequence, tokens);
  EXPECT_EQ((gemms() - before) / spec.layers.size(), GetParam().products);
}

constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16;

INSTANTIATE_TEST_SUITE_P(Families, SimtProducts,
                         testing::Values(ProductsCase{"llama_gqa", kBF16, 4},
                                         ProductsCase{"llama_gqa", kF32, 4},
                                         ProductsCase{"llama_gqa", kF16, 8},  // two terms each
                                         ProductsCase{"llama_gqa", DType::kQ8, 4},
                                         ProductsCase{"llama_odd", kBF16, 5},  // 64 bytes lie between q and k
                                         ProductsCase{"llama_bias", kF16, 8},
                                         ProductsCase{"llama_bias", kBF16, 4},
                                         ProductsCase{"qwen3", kBF16, 4}, ProductsCase{"phi4_mini", kBF16, 4},
                                         ProductsCase{"gemma2", kBF16, 4},
                                         ProductsCase{"olmo2", kBF16, 4},  // norms over all heads
                                         ProductsCase{"gpt_neox", kBF16, 4}, ProductsCase{"bloom", kBF16, 4}),
                         [](const auto& test) {
                           return std::string(test.param.name) + "_" + std::string(name_of(test.param.dtype));
                         });

}  // namespace
}  // namespace simt
