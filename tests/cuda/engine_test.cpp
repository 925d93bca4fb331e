// Every family vs transformers; quantized experts and re-rotated caches vs the float64 reference; batches vs
// separate runs.
#include <array>
#include <deque>

#include "models/load/open_files.h"
#include "models/positions/parse_position_method.h"
#include "models/text/tokenizer.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/engine/batch_cases.h"
#include "tests/engine/long_golden.h"

namespace lariat::test {
namespace {

std::vector<float> logits_of(Backend& backend, const Model& model, const SessionOptions& options,
                             std::span<const int32_t> tokens, size_t prefilled) {
  Session session(model, backend, options);
  return all_logits(session, tokens, prefilled);
}

struct CudaCheckpoint : OnCudaWith<const char*> {};

TEST_P(CudaCheckpoint, LogitsOfTransformers) {
  const auto dir = checkpoint_dir(GetParam());
  const Tensors golden = open_safetensors_file(dir / "golden.safetensors");
  const std::vector<int32_t> tokens = int_tensor(golden, "tokens");
  const Model model = open_f32(dir, *cuda_);
  EXPECT_LE(max_abs_difference(logits_of(*cuda_, model, f32_session(), tokens, tokens.size() - 3),
                               float_tensor(golden, "logits")),
            1e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaCheckpoint, testing::ValuesIn(GoldenList::names(GoldenList::kCuda)),
                         [](const auto& test) { return std::string(test.param); });

// 16-bit caches use tensor-core attention: 312 tokens the many-row kernel, 8 the few-row kernel. Like
// transformers, both round queries and softmax weights to the cache's dtype.
struct CudaLongPrompt : OnCudaWith<LongCase> {};

TEST_P(CudaLongPrompt, LogitsOfTransformers) {
  const LongGolden golden(GetParam());
  const Model model = open_long(GetParam(), *cuda_);
  const SessionOptions options = long_session(GetParam());
  const int64_t head_dim = model.spec.layers[0].attention.head_dim;
  EXPECT_TRUE(cuda::tensor_cores_support(options.k_dtype, options.v_dtype, head_dim))
      << "attention() requires tensor cores";
  const size_t at_once = golden.tokens.size() - 8;
  golden.expect(logits_of(*cuda_, model, options, golden.tokens, at_once));
}

INSTANTIATE_TEST_SUITE_P(Families, CudaLongPrompt,
                         testing::ValuesIn(long_cases(std::span(kLongNames).first(6),
                                                      {DType::kBF16, DType::kF16})),
                         long_case_name);
// Other layers use the same kernels: one dtype.
INSTANTIATE_TEST_SUITE_P(Layers, CudaLongPrompt,
                         testing::ValuesIn(long_cases(std::array{"phi3_window", "gemma2", "gemma3", "smollm3",
                                                                 "olmo2", "ministral3"},
                                                      {DType::kBF16})),
                         long_case_name);

using CudaEngine = OnCuda;

// bf16 products, f16 keys, bf16 values. The error may not exceed bfloat16 transformers' error.
TEST_F(CudaEngine, Bf16NoFurtherFromF32ThanTransformers) {
  const auto dir = checkpoint_dir("llama_bf16");
  const Tensors golden = open_safetensors_file(dir / "golden.safetensors");
  const std::vector<int32_t> tokens = int_tensor(golden, "tokens");
  const Model model = load_model(dir, load_config(dir), *cuda_, std::nullopt);
  ASSERT_EQ(model.product_dtype(), DType::kBF16);
  SessionOptions options;
  options.v_dtype = DType::kBF16;
  const std::vector<float> exact = float_tensor(golden, "logits");
  EXPECT_LE(max_abs_difference(logits_of(*cuda_, model, options, tokens, tokens.size() - 3), exact),
            max_abs_difference(float_tensor(golden, "logits_bf16"), exact));
}

// Chunks of over 16 tokens round gate and up to bf16. bfloat16 transformers rounds more: its error is the
// bound.
TEST_F(CudaEngine, ChunksOfFewTokensAndAPromptAtOnce) {
  const LongCase c{"llama_gqa", DType::kBF16};
  const LongGolden golden(c);
  const Model model = open_long(c, *cuda_);
  const auto run = [&](int64_t chunk) {
    SessionOptions options = long_session(c);
    options.prefill_chunk = chunk;
    return golden.kept(logits_of(*cuda_, model, options, golden.tokens, golden.tokens.size()));
  };
  const std::vector<float> at_once = run(0);
  for (const int64_t chunk : {16, 100}) {
    const std::vector<float> parts = run(chunk);
    EXPECT_LE(rms_difference(parts, at_once), golden.rms) << "chunks of " << chunk;
    EXPECT_LE(max_abs_difference(parts, at_once), golden.tolerance) << "chunks of " << chunk;
  }
}

// Integer products are the CPU's, summed in another order.
TEST_F(CudaEngine, QuantizedLikeTheReference) {
  const auto dir = checkpoint_dir("llama_gqa");
  const Tensors golden = open_safetensors_file(dir / "golden.safetensors");
  const std::vector<int32_t> tokens = int_tensor(golden, "tokens");
  std::vector<float> exact = float_tensor(golden, "logits");
  exact.resize(exact.size() / tokens.size() * 12);
  for (const DType dtype : {DType::kQ8, DType::kQ4}) {
    const auto run = [&](Backend& backend, size_t prefilled) {
      return logits_of(backend, load_model(dir, load_config(dir), backend, dtype), f32_session(),
                       std::span(tokens).first(12), prefilled);
    };
    const std::vector<float> expected = run(reference_, 8);
    // An input half way between two integers may round to either: one step in 127.
    EXPECT_LE(max_abs_difference(run(*cuda_, 8), expected), 2e-3) << name_of(dtype);
    // bf16 products of more tokens are no further from float weights.
    EXPECT_LE(max_abs_difference(run(*cuda_, 12), exact), 1.2 * max_abs_difference(expected, exact))
        << name_of(dtype);
  }
}

// Quantized experts with biases and clamped gates, and latent attention: from a folder, a GGUF or quantized
// at load; prefilled, then decoded by recorded steps with other experts.
struct CodesCase {
  const char* path;
  std::optional<DType> dtype = {};
};

struct CudaExpertCodes : OnCudaWith<CodesCase> {};

TEST_P(CudaExpertCodes, LogitsOfTheReference) {
  const std::filesystem::path path = golden_dir() / GetParam().path;
  const ModelSpec spec = load_config(open_text_files(path).texts);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 28; ++i) tokens.push_back((i * 37 + 11) % static_cast<int32_t>(spec.vocab_size));
  const auto run = [&](Backend& backend, std::optional<DType> dtype, size_t prefilled) {
    const Model model = load_model(open_files(path), spec, backend, dtype);
    EXPECT_EQ(is_quantized(model.weights.layers.back().experts.gate.blocks[0].w.dtype), dtype != DType::kF32);
    return logits_of(backend, model, f32_session(), tokens, prefilled);
  };
  const std::vector<float> expected = run(reference_, GetParam().dtype, 14);
  const double cost = max_abs_difference(expected, run(reference_, DType::kF32, 14));
  // An input may round by one step in 127; float weights round bf16 inputs by 2^-8.
  const double step = GetParam().dtype ? 2e-3 : 0.25 * cost;
  for (const size_t prefilled : {14, 5}) {
    EXPECT_LE(max_abs_difference(run(*cuda_, GetParam().dtype, prefilled), expected), step) << prefilled;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaExpertCodes,
                         testing::Values(CodesCase{"checkpoints/gpt_oss_mxfp4"},
                                         CodesCase{"gguf/gpt_oss_mxfp4.gguf"},
                                         CodesCase{"gguf/qwen3_moe.gguf", DType::kQ8},
                                         CodesCase{"checkpoints/qwen3_moe", DType::kQ4},
                                         CodesCase{"checkpoints/deepseek_v3", DType::kQ8}));

RopeScaling dynamic_scaling(const ModelSpec& spec, double factor, int64_t original_ctx) {
  RopeScaling rope = spec.rope();
  rope.type = RopeType::kDynamic;
  rope.factor = factor;
  rope.original_ctx = original_ctx;
  return rope;
}

// The scale steps in prefill and decode; keys are re-rotated on the device.
TEST_F(CudaEngine, DynamicScaleMovesTheCache) {
  const auto dir = checkpoint_dir("llama_gqa");
  const std::vector<int32_t> tokens = int_tensor(open_safetensors_file(dir / "golden.safetensors"), "tokens");
  ASSERT_GT(tokens.size(), 20U);
  const auto run = [&](Backend& backend, DType k_dtype) {
    SessionOptions options = f32_session();
    options.k_dtype = k_dtype;
    const Model model = open_f32(dir, backend);
    options.rope = dynamic_scaling(model.spec, 2.0, 8);
    return logits_of(backend, model, options, tokens, 10);
  };
  EXPECT_LE(max_abs_difference(run(*cuda_, DType::kF32), run(reference_, DType::kF32)), 1e-4);
  EXPECT_LE(max_abs_difference(run(*cuda_, DType::kF16), run(reference_, DType::kF16)), 2e-3);
}

// One wrong logit of prefill, decode or re-rotation changes every later token.
TEST_F(CudaEngine, DemoGeneratesTheCpusTokens) {
  const std::filesystem::path dir = source_dir() / "configs" / "demo";
  const Tokenizer tokenizer = Tokenizer::load(dir);
  const std::vector<int32_t> prompt =
      tokenizer.encode("Once upon a time there was a little dog who", tokenizer.adds_bos());
  ASSERT_GT(prompt.size(), 8U);  // more than the few-row product takes
  const auto write = [&](Backend& backend) {
    const Model model = open_f32(dir, backend);
    SessionOptions session_options;
    session_options.rope = dynamic_scaling(model.spec, 4.0, 12);
    Session session(model, backend, session_options);
    Sequence sequence = session.new_sequence();
    std::vector<int32_t> tokens = generate(session, sequence, prompt, {.max_new_tokens = 16}).tokens;
    EXPECT_GE(sequence.cache().rerotations().count, 1);
    return tokens;
  };
  CpuBackend cpu(1);
  const std::vector<int32_t> expected = write(cpu);
  ASSERT_EQ(expected.size(), 16U);
  EXPECT_EQ(write(*cuda_), expected);
}

// tests/engine/own_method_test.cpp compares the CPU with separate runs. The second four store second keys: at
// other positions and frequencies, re-rotated when token 33 moves the factors.
TEST_F(CudaEngine, SequencesOfSeveralMethodsShareAStep) {
  const auto run = [](Backend& backend, const std::array<const char*, 4>& methods) {
    const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
    SessionOptions options = f32_session();
    options.rope = resolve_rope(model.spec.rope(), {.scaling = "none", .original_ctx = 16});
    options.positions = parse_position_method(methods[0], 16, 0);
    Session session(model, backend, options);
    const auto texts = batch_prompts(model.spec.vocab_size, std::array<int64_t, 4>{30, 30, 17, 30});
    std::deque<Sequence> sequences;
    std::vector<Prompt> prompts;
    std::vector<Sequence*> all;
    for (const char* name : methods) {
      all.push_back(
          &sequences.emplace_back(session.new_sequence({.method = parse_position_method(name, 16, 0)})));
      prompts.push_back({all.back(), texts[prompts.size()], 0});
    }
    std::vector<float> logits;
    const auto keep = [&](const Matrix& rows) {
      const size_t before = logits.size(), n = static_cast<size_t>(rows.rows * rows.cols);
      logits.resize(before + n);
      backend.copy_out(logits.data() + before, rows.data, n * sizeof(float));
    };
    session.forward(prompts, [&](size_t, int64_t, const Matrix& rows) { keep(rows); });
    for (int32_t token = 5; token < 9; ++token) keep(decode(session, all, std::vector<int32_t>(4, token)));
    return logits;
  };
  CpuBackend cpu(1);
  for (const auto& methods :
       {std::array{"dca/chunk=8/window=4", "none", "sinks/sinks=2/window=9", "dca/chunk=8/window=4"},
        {"jet-long/window=6", "none", "jet-long-freq/window=6/far=linear",
         "jet-long-freq/window=6/far=bands/factors=1,3"}}) {
    const std::vector<float> expected = run(cpu, methods);
    EXPECT_LE(max_abs_difference(run(*cuda_, methods), expected), 1e-4) << methods[0];
    // Different from a sequence without far keys.
    std::array<const char*, 4> other = methods;
    other[2] = "none";
    EXPECT_GT(max_abs_difference(run(cpu, other), expected), 1e-1);
  }
}

TEST_F(CudaEngine, BatchEqualsSeparateRuns) {
  check_batch_equals_separate_runs(*cuda_, f32_session(), kShortBatchLengths, 6);
}

}  // namespace
}  // namespace lariat::test
