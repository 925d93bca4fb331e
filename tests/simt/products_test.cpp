// What a prefill asks of cuBLAS: q, k and v in one product, gate and up in another, and the sum with the
// residual along with the product. The shim's products make each number by itself, whatever lies beside it,
// so that every bit can be compared with those of products one by one.
#include "kernels/cuda/cuda_backend.h"
#include "tests/engine/engine_test_util.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/kernels/tensors.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

using namespace lariat;
using namespace lariat::test;

// As if products were not joined, or the residual added behind them.
struct OneByOne final : ForwardingBackend {
  OneByOne(Backend& inner, bool joins, bool adds) : ForwardingBackend(inner), joins_(joins), adds_(adds) {}
  bool joins_products() const override { return joins_; }
  void matmul_add_norm(const Matrix& x, const Product& product, DType compute, const Matrix& residual,
                       float scale, const Norm& norm, const Matrix& out) override {
    if (!adds_) return Backend::matmul_add_norm(x, product, compute, residual, scale, norm, out);
    ForwardingBackend::matmul_add_norm(x, product, compute, residual, scale, norm, out);
  }

 private:
  bool joins_, adds_;
};

struct ProductsCase {
  const char* name;
  DType dtype;
  uint64_t joined = 0, one_by_one = 0;  // products that cuBLAS makes of a layer
};

void PrintTo(const ProductsCase& c, std::ostream* out) { *out << c.name << " " << name_of(c.dtype); }

struct SimtProducts : testing::TestWithParam<ProductsCase> {
  // The logits of 24 tokens; per_layer: how many products that took.
  static std::vector<float> logits(Backend& backend, uint64_t& per_layer) {
    const auto dir = checkpoint_dir(GetParam().name);
    const ModelSpec spec = load_config(dir);
    const Model model = load_model(dir, spec, backend, GetParam().dtype);
    Session session(model, backend, SessionOptions());
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 24; ++i) {
      tokens.push_back(static_cast<int32_t>((i * 37 + 11) % spec.vocab_size));
    }
    Sequence sequence = session.new_sequence();
    std::vector<float> all;
    const uint64_t before = gemms();
    session.prefill(sequence, tokens, 0, [&](int64_t, const Matrix& rows) {
      per_layer = (gemms() - before - 1) / spec.layers.size();  // one is that of the logits
      all.resize(static_cast<size_t>(rows.rows * rows.cols));
      backend.copy_out(all.data(), rows.data, all.size() * sizeof(float));
    });
    EXPECT_EQ(all.size(), 24 * static_cast<size_t>(spec.vocab_size));
    return all;
  }

  struct PerLayer {
    uint64_t together = 0, apart = 0;
  };
  // The same bits from a backend that does not join, or add, as from one that does both.
  static PerLayer compare_with(bool joins, bool adds) {
    CudaBackend cuda;
    OneByOne one_by_one(cuda, joins, adds);
    PerLayer products;
    const std::vector<float> actual = logits(cuda, products.together);
    expect_close(actual, logits(one_by_one, products.apart), 0, 0, "logits");
    return products;
  }
};

TEST_P(SimtProducts, JoinedOrNot) {
  const PerLayer products = compare_with(false, true);
  EXPECT_EQ(products.together, GetParam().joined);
  EXPECT_EQ(products.apart, GetParam().one_by_one);
}

constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16;

std::string case_name(const testing::TestParamInfo<ProductsCase>& info) {
  return std::string(info.param.name) + "_" + std::string(name_of(info.param.dtype));
}

INSTANTIATE_TEST_SUITE_P(
    Families, SimtProducts,
    testing::Values(ProductsCase{"llama_gqa", kBF16, 4, 7}, ProductsCase{"llama_gqa", kF32, 4, 7},
                    ProductsCase{"llama_gqa", kF16, 8, 14},  // in two terms each
                    ProductsCase{"llama_gqa", DType::kQ8, 7, 7}, ProductsCase{"llama_odd", kBF16, 4, 7},
                    ProductsCase{"llama_bias", kF16, 8, 14}, ProductsCase{"llama_bias", kBF16, 4, 7},
                    ProductsCase{"qwen3", kBF16, 4, 7}, ProductsCase{"phi4_mini", kBF16, 4, 7},
                    ProductsCase{"gemma2", kBF16, 4, 7},
                    ProductsCase{"olmo2", kBF16, 4, 7},  // norms over all heads
                    ProductsCase{"gpt_neox", kBF16, 4, 6}, ProductsCase{"bloom", kBF16, 4, 6}),
    case_name);

// Without a bias, and with a multiplier of 1, the sum is the same number: rounded once, when both are there.
struct SimtResidual : SimtProducts {};

TEST_P(SimtResidual, AddedByTheProductOrApart) {
  const PerLayer products = compare_with(true, false);
  EXPECT_EQ(products.together, products.apart);
}

INSTANTIATE_TEST_SUITE_P(Families, SimtResidual,
                         testing::Values(ProductsCase{"llama_gqa", kBF16}, ProductsCase{"llama_gqa", kF32},
                                         ProductsCase{"llama_gqa", DType::kQ4}, ProductsCase{"gemma2", kBF16},
                                         ProductsCase{"mixtral", kBF16}, ProductsCase{"deepseek_v2", kBF16}),
                         case_name);

}  // namespace
}  // namespace simt
