// What a prefill asks of cuBLAS: q, k and v in one product, gate and up in another, and the sum with the
// residual along with the product. The shim's products make each number by itself, whatever lies beside it,
// so that every bit can be compared with those of products one by one.
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda/gated_cases.h"
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

std::vector<float> rounded_to_bf16(std::vector<float> values) {
  for (float& value : values) value = round_to_bf16(value);
  return values;
}

// What project and glu make of a unit, its products rounded in between or not.
std::vector<float> in_steps(Backend& backend, const GatedCase& c, const GatedOperands& of, DType compute,
                            bool rounds) {
  const auto [tokens, cols, rows] = c.shape;
  const Tensor gate(backend, tokens, rows), up(backend, tokens, rows);
  const Product products[] = {{of.gate.w, of.gate.bias, gate.view()}, {of.up.w, {}, up.view()}};
  backend.project(of.x.view(), products, compute);
  const auto factor = [&, tokens = tokens, rows = rows](const Tensor& product) {
    return Tensor(backend, rounds ? rounded_to_bf16(product.values()) : product.values(), tokens, rows);
  };
  const Tensor first = factor(gate), second = factor(up), out(backend, tokens, rows, 0, DType::kBF16);
  backend.glu(first.view(), second.view(), c.activation, out.view());
  return out.values();
}

using SimtGated = testing::TestWithParam<GatedCase>;

// Gate and up are sums in f32, rounded once and to the nearest, the same bits joined or one by one; exchanged
// or read from another row than they are written to, they would be other numbers.
TEST_P(SimtGated, RoundsItsProductsOnce) {
  const GatedCase& c = GetParam();
  CudaBackend cuda;
  const GatedOperands of(cuda, c);
  const uint64_t before = gemms();
  const std::vector<float> actual = of.run(cuda, c.activation);
  EXPECT_EQ(gemms() - before, c.layout == GatedLayout::kJoined ? 1U : 2U);
  expect_close(actual, in_steps(cuda, c, of, kBF16, true), 0, 0, "unit");
  EXPECT_NE(actual, in_steps(cuda, c, of, kBF16, false)) << "gate and up in f32";
}

INSTANTIATE_TEST_SUITE_P(Cases, SimtGated, testing::ValuesIn(gated_cases()));

// Few tokens, products of f32, weights that cuBLAS does not multiply as they are, and a bias.
TEST(SimtGatedInF32, WhereProductsAreNotCublasOwnBf16) {
  CudaBackend cuda;
  for (const GatedLayout layout : kGatedLayouts) {
    const auto check = [&](int64_t tokens, DType weights, DType compute, bool bias) {
      const GatedCase c{{tokens, 72, 40}, layout};
      const GatedOperands of(cuda, c, weights, bias);
      expect_close(of.run(cuda, c.activation, compute), in_steps(cuda, c, of, compute, false), 0, 0,
                   testing::PrintToString(c));
    };
    check(16, kBF16, kBF16, false);
    check(17, kBF16, kF32, false);
    check(17, kF16, kBF16, false);
    check(17, kF16, kF32, false);
    check(17, kBF16, kBF16, true);
  }
}

}  // namespace
}  // namespace simt
