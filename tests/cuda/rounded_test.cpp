// Activations in bf16: where products round x to it anyway (Backend::input_dtype), what makes x writes it so.
// Each op against itself in f32 and rounded afterwards, of which it must have every bit, and against the
// float64 reference; then whole prefills.
#include "tests/cuda/cuda_fixture.h"
#include "tests/engine/engine_test_util.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

constexpr DType kRounded = DType::kBF16;

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = round_to_bf16(value);
  return values;
}

// What `write` puts into an output of so many rows and columns, in bf16 and in f32.
template <class Write>
void expect_rounds(Backend& tested, Backend& reference, const RowCase& c, const std::string& what,
                   const Write& write) {
  const auto run = [&](Backend& backend, DType dtype) {
    const Tensor out(backend, c.rows, c.cols, c.gap, dtype);
    write(backend, out.view());
    return out.values();
  };
  const std::vector<float> actual = run(tested, kRounded), expected = run(reference, kRounded);
  expect_close(actual, rounded(run(tested, DType::kF32)), 0, 0, what + ", f32 rounded");
  expect_same_rounding(actual, expected, kRounded, 4 * largest_magnitude(expected), what);
}

using CudaRounded = OnCudaWith<RowCase>;

TEST_P(CudaRounded, Norm) {
  const RowCase& c = GetParam();
  const std::vector<float> values = Rng(61).normals(c.rows * c.cols, 3.0F);
  for (const NormKind kind : kNormKinds) {
    expect_rounds(*cuda_, reference_, c, testing::PrintToString(kind), [&](Backend& b, const Matrix& out) {
      const Tensor x(b, values, c.rows, c.cols, DType::kF32, c.gap);
      const NormData data(b, c, kind, 1e-5F);
      b.norm(x.view(), data.norm, out);
    });
  }
}

TEST_P(CudaRounded, AddNorm) {
  const RowCase& c = GetParam();
  Rng rng(62);
  const std::vector<float> values = rng.normals(c.rows * c.cols), change = rng.normals(c.rows * c.cols);
  for (const NormKind kind : kNormKinds) {
    expect_rounds(*cuda_, reference_, c, testing::PrintToString(kind), [&](Backend& b, const Matrix& out) {
      const Tensor x(b, values, c.rows, c.cols, DType::kF32, c.gap), delta(b, change, c.rows, c.cols);
      const NormData data(b, c, kind, 1e-5F);
      b.add_norm(x.view(), delta.view(), 1.0F, data.norm, out);
    });
  }
}

TEST_P(CudaRounded, Glu) {
  const RowCase& c = GetParam();
  Rng rng(63);
  const std::vector<float> values = rng.normals(c.rows * c.cols, 3.0F), factor = rng.normals(c.rows * c.cols);
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
    for (const bool gated : {true, false}) {
      expect_rounds(*cuda_, reference_, c, "glu", [&](Backend& b, const Matrix& out) {
        const Tensor gate(b, values, c.rows, c.cols, DType::kF32, c.gap), up(b, factor, c.rows, c.cols);
        b.glu(gate.view(), gated ? up.view() : Matrix(), activation, out);
      });
    }
  }
}

// Rows of one element and of several blocks; rows that are aligned to 16 bytes in f32 alone, in both, and in
// neither.
INSTANTIATE_TEST_SUITE_P(Cases, CudaRounded,
                         testing::Values(RowCase{1, 1}, RowCase{3, 2}, RowCase{3, 7, DType::kBF16, 5},
                                         RowCase{2, 64}, RowCase{5, 65, DType::kF16, 3}, RowCase{4, 100},
                                         RowCase{4, 100, DType::kBF16, 4}, RowCase{3, 1000, DType::kF32, 8},
                                         RowCase{2, 4096, DType::kBF16}, RowCase{19, 2051, DType::kBF16, 3}));

// Through every kernel, with splits that merge by the last block and by a kernel of their own, over several
// shapes of heads. (attention_test.cpp compares the same in f32 with the reference.)
std::vector<AttentionCase> rounded_attention_cases() {
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16, q8 = DType::kQ8;
  return {{1, 0, 1, 1, 64, 64},
          {1, 3000, 8, 2, 64, 64},                 // one token, split
          {3, 700, 4, 2, 128, 128, f16, bf16},     // few tokens, split
          {20, 30, 2, 2, 80, 80, bf16, bf16},      // few tokens
          {70, 130, 4, 2, 96, 96, f16, bf16, 40},  // 64 rows per block
          {40, 2100, 2, 1, 64, 64, f16, f16},      // split, merged by a kernel of its own
          {34, 40, 268, 67, 64, 64, f16, bf16},    // 128 rows per block
          {70, 250, 2, 2, 256, 256, bf16, bf16},
          {33, 5, 5, 1, 34, 34, f16, f16},    // plain
          {9, 300, 2, 1, 10, 10, f32, f32},   // plain, rows that are not aligned
          {3, 1200, 3, 1, 24, 24, f32, q8}};  // plain, split
}

using CudaRoundedAttention = OnCudaWith<AttentionCase>;
TEST_P(CudaRoundedAttention, HasTheBitsOfF32) {
  const AttentionCase& c = GetParam();
  expect_close(run_attention(*cuda_, c, {c.n}, kRounded), rounded(run_attention(*cuda_, c, {c.n})), 0, 0,
               "attention");
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaRoundedAttention, testing::ValuesIn(rounded_attention_cases()));

// Weights in one backend's memory, and what the products with all of them want.
struct RoundedProducts : OnCuda {
  struct Weights {
    std::vector<Weight> quantized;
    std::vector<Tensor> w;
    std::vector<Matrix> views;

    Weights(Backend& b, int64_t rows, int64_t cols, DType dtype) {
      for (uint64_t i = 0; i < 2; ++i) {
        std::vector<float> values = Rng(1000000 * (i + 1)).normals(rows * cols, 0.2F);
        if (is_quantized(dtype)) {
          quantized.push_back(b.load_weight(Matrix(values.data(), DType::kF32, rows, cols), dtype));
          views.push_back(quantized.back().matrix);
        } else {
          w.emplace_back(b, values, rows, cols, dtype);
          views.push_back(w.back().view());
        }
      }
    }
  };
  static constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16;
};

TEST_F(RoundedProducts, AreWantedWhereXIsRoundedAnyway) {
  const auto wanted = [&](int64_t rows, DType weights, DType compute) {
    return cuda_->input_dtype(rows, Matrix(nullptr, weights, 8, 8), compute);
  };
  EXPECT_EQ(wanted(17, kBF16, kBF16), kBF16);
  EXPECT_EQ(wanted(4096, kBF16, kBF16), kBF16);
  EXPECT_EQ(wanted(17, DType::kQ8, kF32), kBF16);
  EXPECT_EQ(wanted(17, DType::kQ4, kF32), kBF16);
  // Decoding, and products of f32.
  EXPECT_EQ(wanted(16, kBF16, kBF16), kF32);
  EXPECT_EQ(wanted(16, DType::kQ8, kF32), kF32);
  EXPECT_EQ(wanted(17, kBF16, kF32), kF32);
  EXPECT_EQ(wanted(17, kF16, kF32), kF32);
  EXPECT_EQ(wanted(17, kF16, kBF16), kF32);
  EXPECT_EQ(wanted(17, kF32, kF32), kF32);
  CpuBackend cpu(1);
  EXPECT_EQ(cpu.input_dtype(17, Matrix(nullptr, kBF16, 8, 8), kBF16), kF32);
}

TEST_F(RoundedProducts, HaveTheBitsOfF32) {
  for (const DType dtype : {kBF16, DType::kQ8, DType::kQ4}) {
    const DType compute = is_quantized(dtype) ? kF32 : kBF16;
    for (const auto& [tokens, cols, rows] : {std::tuple{17, 72, 33}, {40, 67, 5}, {18, 128, 64}}) {
      ASSERT_EQ(cuda_->input_dtype(tokens, Matrix(nullptr, dtype, rows, cols), compute), kRounded);
      const Weights weights(*cuda_, rows, cols, dtype);
      const std::vector<float> values = Rng(73).normals(tokens * cols), bias = Rng(74).normals(rows);
      const auto run = [&, tokens = tokens, cols = cols, rows = rows](DType x_dtype) {
        const Tensor x(*cuda_, values, tokens, cols, x_dtype, 8), b(*cuda_, bias, 1, rows);
        const Tensor first(*cuda_, tokens, rows), second(*cuda_, tokens, rows);
        const Tensor unit(*cuda_, tokens, rows, 0, kRounded);
        const Product products[] = {{weights.views[0], b.view(), first.view()},
                                    {weights.views[1], {}, second.view()}};
        cuda_->gated(x.view(), products[0], products[1], Activation::kSilu, compute, unit.view());
        cuda_->project(x.view(), products, compute);
        std::vector<float> all = first.values();
        for (const Tensor* more : {&second, &unit}) {
          const std::vector<float> part = more->values();
          all.insert(all.end(), part.begin(), part.end());
        }
        return all;
      };
      const std::vector<float> actual = run(kRounded);
      EXPECT_GT(largest_magnitude(actual), 0.1);
      expect_close(actual, run(kF32), 0, 0, std::string(name_of(dtype)) + " weights");
    }
  }
}

// As if no product wanted anything but f32, or counting the products that are given something else.
struct InputsOf final : ForwardingBackend {
  InputsOf(Backend& inner, bool plain) : ForwardingBackend(inner), plain_(plain) {}
  DType input_dtype(int64_t rows, const Matrix& w, DType compute) const override {
    return plain_ ? DType::kF32 : inner_.input_dtype(rows, w, compute);
  }
  void matmul(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
              const Matrix& out) override {
    count(x, 1);
    ForwardingBackend::matmul(x, w, bias, compute, out);
  }
  void project(const Matrix& x, std::span<const Product> products, DType compute) override {
    count(x, static_cast<int>(products.size()));
    ForwardingBackend::project(x, products, compute);
  }
  void matmul_add_norm(const Matrix& x, const Product& product, DType compute, const Matrix& residual,
                       float scale, const Norm& norm, const Matrix& out) override {
    count(x, 1);
    ForwardingBackend::matmul_add_norm(x, product, compute, residual, scale, norm, out);
  }
  void gated(const Matrix& x, const Product& gate, const Product& up, Activation activation, DType compute,
             const Matrix& out) override {
    count(x, 2);
    const bool rounds = plain_ && inner_.input_dtype(x.rows, gate.w, compute) == kRounded;
    if (!rounds) return ForwardingBackend::gated(x, gate, up, activation, compute, out);
    // Whether gate and up are rounded goes by out's dtype. That is as tested here, too: what differs is x.
    const Tensor unit(inner_, out.rows, out.cols, 0, kRounded);
    ForwardingBackend::gated(x, gate, up, activation, compute, unit.view());
    const Tensor wide(inner_, unit.values(), out.rows, out.cols);
    for (int64_t r = 0; r < out.rows; ++r) {
      inner_.copy(out.row_range(r, 1).data, wide.view().row_range(r, 1).data,
                  static_cast<size_t>(out.cols) * sizeof(float));
    }
  }
  void count(const Matrix& x, int products) { (x.dtype == DType::kF32 ? f32 : bf16) += products; }

  int f32 = 0, bf16 = 0;

 private:
  bool plain_;
};

struct RoundedPrefill {
  const char* name;
  int bf16_per_layer;  // products that read bf16, in each layer
  int further = 0;     // and beside those
};

void PrintTo(const RoundedPrefill& c, std::ostream* out) { *out << c.name; }

// Layers of every kind: the logits of a prefill, bit for bit, and what its products were given. (The logits'
// own product, of all rows here, is given f32.)
struct CudaRoundedPrefill : OnCudaWith<RoundedPrefill> {
  std::vector<float> logits(InputsOf& backend, DType dtype, size_t n_tokens) {
    const auto dir = checkpoint_dir(GetParam().name);
    const ModelSpec spec = load_config(dir);
    n_layers = static_cast<int>(spec.layers.size());
    const Model model = load_model(dir, spec, backend, dtype);
    SessionOptions options;
    options.v_dtype = DType::kBF16;
    Session session(model, backend, options);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < n_tokens; ++i) {
      tokens.push_back(static_cast<int32_t>((i * 37 + 11) % static_cast<size_t>(spec.vocab_size)));
    }
    Sequence sequence = session.new_sequence();
    std::vector<float> all;
    session.prefill(sequence, tokens, 0, [&](int64_t, const Matrix& rows) {
      const auto count = static_cast<size_t>(rows.rows * rows.cols);
      all.resize(all.size() + count);
      backend.copy_out(all.data() + all.size() - count, rows.data, count * sizeof(float));
    });
    return all;
  }
  int n_layers = 0;
};

TEST_P(CudaRoundedPrefill, HasTheBitsOfF32) {
  InputsOf plain(*cuda_, true), tested(*cuda_, false);
  const std::vector<float> expected = logits(plain, DType::kBF16, 24), actual = logits(tested, kRounded, 24);
  expect_close(actual, expected, 0, 0, GetParam().name);
  EXPECT_EQ(plain.bf16, 0);
  EXPECT_EQ(tested.bf16, n_layers * GetParam().bf16_per_layer + GetParam().further);
}

INSTANTIATE_TEST_SUITE_P(
    Families, CudaRoundedPrefill,
    testing::Values(RoundedPrefill{"llama_gqa", 7}, RoundedPrefill{"llama_odd", 7},
                    RoundedPrefill{"llama_bias", 7}, RoundedPrefill{"phi4_mini", 7},
                    RoundedPrefill{"qwen3", 7}, RoundedPrefill{"gemma2", 7}, RoundedPrefill{"granite", 7},
                    RoundedPrefill{"gpt_neox", 6},  // both blocks read the same residual; not gated
                    RoundedPrefill{"bloom", 6},     // LayerNorms with biases
                    RoundedPrefill{"olmo2", 2},     // nothing in front of a block: only what is inside
                    RoundedPrefill{"mixtral", 4},   // experts
                    // latent attention: what is no expert's down; gate and up of the layer without experts
                    RoundedPrefill{"deepseek_v2", 1, 2}),
    [](const auto& test) { return std::string(test.param.name); });

struct CudaRoundedQuant : CudaRoundedPrefill {};

TEST_P(CudaRoundedQuant, HasTheBitsOfF32) {
  for (const DType dtype : {DType::kQ8, DType::kQ4}) {
    InputsOf plain(*cuda_, true), tested(*cuda_, false);
    const std::vector<float> expected = logits(plain, dtype, 24), actual = logits(tested, dtype, 24);
    expect_close(actual, expected, 0, 0, GetParam().name);
    EXPECT_EQ(tested.bf16, n_layers * GetParam().bf16_per_layer);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CudaRoundedQuant, testing::Values(RoundedPrefill{"llama_gqa", 7}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lariat::test
