// Recorded decode steps, replayed at other positions, in other pages, after other work, equal the float64
// reference. A changing launch argument would replay its recorded value and fail.
#include <functional>
#include <memory>
#include <optional>

#include "tests/cuda/cuda_fixture.h"
#include "tests/engine/engine_test_util.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {
namespace {

class CudaStep : public OnCuda {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (IsSkipped()) return;
    device_ = dynamic_cast<CudaBackend*>(cuda_.get());
    ASSERT_NE(device_, nullptr);
  }
  CudaBackend::StepCounts counts() const { return device_->step_counts(); }

  CudaBackend* device_ = nullptr;
};

struct TestRun {
  TestRun(Backend& b, DType kv_dtype, const char* name = "llama_gqa",
          const std::function<void(RopeScaling&)>& change_rope = {})
      : backend(b), model(open_f32(checkpoint_dir(name), b)) {
    SessionOptions options;
    options.k_dtype = options.v_dtype = kv_dtype;
    if (change_rope) change_rope(options.rope.emplace(model.spec.rope()));
    session = std::make_unique<Session>(model, backend, options);
  }
  int32_t token(int64_t i) const { return static_cast<int32_t>((i * 37 + 11) % model.spec.vocab_size); }

  Sequence begin(int64_t length) {
    Sequence sequence = session->new_sequence();
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < length; ++i) tokens.push_back(token(i));
    prefill(*session, sequence, tokens);
    backend.synchronize();  // excludes the prompt from the counts
    return sequence;
  }
  std::vector<float> step(const std::vector<Sequence*>& sequences) {
    std::vector<int32_t> tokens;
    for (const Sequence* sequence : sequences) tokens.push_back(token(sequence->length()));
    const Matrix logits = decode(*session, sequences, tokens);
    std::vector<float> host(static_cast<size_t>(logits.rows * logits.cols));
    backend.copy_out(host.data(), logits.data, host.size() * sizeof(float));
    return host;
  }

  Backend& backend;
  Model model;
  std::unique_ptr<Session> session;
};

constexpr double kTolerance = 1e-4;
// Prefill rounds q and its weights to 16 bits; then a cached key may round differently. Another position's
// logits differ by 0.1 and more.
constexpr double kF16Tolerance = 1e-2;

// f32 keys use the plain kernel, f16 keys tensor cores. At 256 a page is added and the planned length
// doubles.
TEST_F(CudaStep, RepeatsTheRecordedStepAtNewPositions) {
  for (auto [dtype, start, tolerance] : {std::tuple{DType::kF32, 5, kTolerance},
                                         {DType::kF16, 5, kF16Tolerance},
                                         {DType::kF16, 251, kF16Tolerance}}) {
    TestRun tested(*cuda_, dtype), expected(reference_, dtype);
    Sequence a = tested.begin(start), b = expected.begin(start);
    const auto before = counts();
    for (int i = 0; i < 10; ++i) {
      EXPECT_LE(max_abs_difference(tested.step({&a}), expected.step({&b})), tolerance)
          << name_of(dtype) << " keys, position " << b.length() - 1;
    }
    const auto after = counts();
    EXPECT_GE(after.replayed - before.replayed, start == 5 ? 8 : 3);
    EXPECT_EQ(after.direct + after.recorded + after.replayed,
              before.direct + before.recorded + before.replayed + 10);
  }
}

// A decode step takes as long as its launches. Per layer: qkv; qkv to cache; attention; its product; add and
// norm; gate and up; down; add and norm. Per model: first norm, logits. Inputs of a step are not recorded.
TEST_F(CudaStep, ALayerIsEightLaunches) {
  const auto dir = checkpoint_dir("llama_bf16");
  const Model model = load_model(dir, load_config(dir), *cuda_, std::nullopt);
  ASSERT_EQ(model.weights.format.dtype, DType::kBF16);
  SessionOptions options;
  options.k_dtype = DType::kF16;
  options.v_dtype = DType::kBF16;
  for (const size_t count : {1, 8, 16}) {
    Session session(model, *cuda_, options);
    std::vector<Sequence> sequences;
    std::vector<Sequence*> all;
    for (size_t i = 0; i < count; ++i) sequences.push_back(session.new_sequence());
    for (Sequence& sequence : sequences) {
      const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
      prefill(session, sequence, prompt);
      all.push_back(&sequence);
    }
    for (int i = 0; i < 4; ++i) decode(session, all, std::vector<int32_t>(count, 7 + i));
    cuda_->synchronize();
    EXPECT_EQ(counts().launches, 8 * model.spec.layers.size() + 2) << count << " sequences";
  }
}

// The record is bitwise identical to single launches, and valid after a prompt moved the many-token memory.
struct CudaSixteen : CudaStep, testing::WithParamInterface<DType> {};

TEST_P(CudaSixteen, SequencesAreRecorded) {
  constexpr size_t kCount = 16;
  const auto dir = checkpoint_dir("llama_bf16");
  const Model model = load_model(dir, load_config(dir), *cuda_, GetParam());
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5}, long_prompt(40, 6);
  // Two other steps in between: no list of sixteen comes twice in a row.
  const auto run = [&](bool record) {
    Session session(model, *cuda_, {});
    std::vector<Sequence> sequences;
    std::vector<Sequence*> all;
    for (size_t i = 0; i < kCount; ++i) sequences.push_back(session.new_sequence());
    for (size_t i = 0; i < kCount; ++i) {
      prefill(session, sequences[i], std::span(prompt).first(1 + i % 5));
      all.push_back(&sequences[i]);
    }
    Sequence other = session.new_sequence(), third = session.new_sequence();
    const std::vector<Sequence*> both = {&other, &third};
    std::vector<float> logits(kCount * static_cast<size_t>(model.spec.vocab_size));
    for (int32_t i = 0; i < 6; ++i) {
      if (i == 4) prefill(session, other, long_prompt);
      std::vector<int32_t> tokens;
      for (size_t s = 0; s < kCount; ++s) tokens.push_back(static_cast<int32_t>(s) + i);
      if (!record) {
        decode(session, other, 7);
        decode(session, both, std::vector<int32_t>{8, 9});
      }
      cuda_->synchronize();
      const auto at = counts();
      const Matrix row = decode(session, all, tokens);
      cuda_->synchronize();
      EXPECT_EQ(counts().replayed - at.replayed, record && i >= 2 ? 1 : 0) << "step " << i;
      cuda_->copy_out(logits.data(), row.data, logits.size() * sizeof(float));
    }
    return logits;
  };
  EXPECT_EQ(run(true), run(false));
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaSixteen, testing::Values(DType::kBF16, DType::kQ8, DType::kQ4),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// Windows, ALiBi, soft caps, norms, biases, M-RoPE, position-scaled queries and experts.
struct CudaStepOf : CudaStep, testing::WithParamInterface<const char*> {};

TEST_P(CudaStepOf, RepeatsTheRecordedStep) {
  TestRun tested(*cuda_, DType::kF32, GetParam()), expected(reference_, DType::kF32, GetParam());
  Sequence a = tested.begin(3), b = expected.begin(3);
  for (int i = 0; i < 20; ++i) {
    EXPECT_LE(max_abs_difference(tested.step({&a}), expected.step({&b})), kTolerance) << i;
  }
  EXPECT_GE(counts().replayed, 17);
  // A fork has another last page.
  const auto before = counts();
  Sequence fork = tested.session->fork(a, a.length());
  EXPECT_LE(max_abs_difference(tested.step({&fork}), expected.step({&b})), kTolerance) << "in other pages";
  EXPECT_EQ(counts().replayed, before.replayed + 1);
  Sequence a2 = tested.begin(5), b2 = expected.begin(5);
  for (int i = 0; i < 6; ++i) {
    EXPECT_LE(max_abs_difference(tested.step({&fork, &a2}), expected.step({&b, &b2})), kTolerance) << i;
  }
  EXPECT_EQ(counts().replayed, before.replayed + 5);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaStepOf,
                         testing::Values("mistral_window", "bloom", "gemma2", "gpt_neox", "qwen2_vl",
                                         "ministral3", "mixtral", "qwen3_moe", "deepseek_v3"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(CudaStep, SequencesOfABatchHaveDifferentPositions) {
  TestRun tested(*cuda_, DType::kF32), expected(reference_, DType::kF32);
  Sequence a1 = tested.begin(4), a2 = tested.begin(21), b1 = expected.begin(4), b2 = expected.begin(21);
  for (int i = 0; i < 6; ++i) {
    EXPECT_LE(max_abs_difference(tested.step({&a1, &a2}), expected.step({&b1, &b2})), kTolerance) << i;
  }
  EXPECT_EQ(counts().replayed, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_LE(max_abs_difference(tested.step({&a2}), expected.step({&b2})), kTolerance) << i;
  }
  std::vector<Sequence> many;
  std::vector<Sequence*> all;
  for (int64_t i = 0; i < 9; ++i) many.push_back(tested.begin(2 + i));
  for (Sequence& sequence : many) all.push_back(&sequence);
  const auto before = counts();
  for (int i = 0; i < 3; ++i) tested.step(all);
  EXPECT_EQ(counts().replayed, before.replayed);  // too many to record
}

TEST_F(CudaStep, RerotatedCachesAndChangedFactorsAreNoticed) {
  const auto dynamic_yarn = [](RopeScaling& rope) {
    rope.type = RopeType::kDynamicYarn;
    rope.factor = 4.0;
    rope.original_ctx = 8;
  };
  TestRun tested(*cuda_, DType::kF32, "llama_gqa", dynamic_yarn);
  TestRun expected(reference_, DType::kF32, "llama_gqa", dynamic_yarn);
  Sequence a = tested.begin(6), b = expected.begin(6);
  for (int i = 0; i < 30; ++i) {
    EXPECT_LE(max_abs_difference(tested.step({&a}), expected.step({&b})), kTolerance) << i;
  }
  EXPECT_GE(a.cache().rerotations().count, 4);
  EXPECT_GE(counts().replayed, 26);  // one record serves all steps
}

TEST_F(CudaStep, OtherWorkBetweenStepsKeepsTheRecord) {
  TestRun tested(*cuda_, DType::kF16), expected(reference_, DType::kF16);
  std::optional<Sequence> a = tested.begin(4), b = expected.begin(4);
  const auto compare = [&](const char* when) {
    EXPECT_LE(max_abs_difference(tested.step({&*a}), expected.step({&*b})), kF16Tolerance) << when;
  };
  for (int i = 0; i < 4; ++i) compare("at first");
  EXPECT_EQ(counts().replayed, 2);
  {
    Sequence other = tested.begin(300);  // moves activations, logits and working memory
    compare("after another prompt");
    for (int i = 0; i < 3; ++i) tested.step({&other});
  }
  for (int i = 0; i < 3; ++i) compare("after another text");
  a->truncate(2);
  b->truncate(2);
  for (int i = 0; i < 3; ++i) compare("after going back");
  a.emplace(tested.begin(7));
  b.emplace(expected.begin(7));
  for (int i = 0; i < 4; ++i) compare("with a new cache");
}

using CudaQueue = OnCuda;

TEST_F(CudaQueue, FreedMemoryHasBeenUsedBefore) {
  const std::vector<float> values = Rng(3).normals(256);
  const Tensor out(*cuda_, 1, 256), ones(*cuda_, std::vector<float>(256, 1.0F), 1, 256);
  {
    const Tensor x(*cuda_, values, 1, 256);
    cuda_->norm(x.view(), {ones.view(), Matrix()}, out.view());
  }
  const Tensor x(reference_, values, 1, 256), expected(reference_, 1, 256);
  const Tensor host_ones(reference_, std::vector<float>(256, 1.0F), 1, 256);
  reference_.norm(x.view(), {host_ones.view(), Matrix()}, expected.view());
  expect_close(out.values(), expected.values(), 1e-5, 0, "norm");
}

// The next waiting call reports it, also after memory was freed; the backend keeps working.
TEST_F(CudaQueue, AFailedLaunchIsReportedOnce) {
  for (bool freed : {false, true}) {
    const std::vector<float> values = Rng(4).normals(64);
    const Tensor x(*cuda_, values, 1, 64), ones(*cuda_, std::vector<float>(64, 1.0F), 1, 64);
    cuda_->norm(x.view().row_range(0, 0), {ones.view(), Matrix()}, x.view());  // no blocks
    if (freed) cuda_->allocate(64);
    EXPECT_ANY_THROW(cuda_->synchronize());
    EXPECT_NO_THROW(cuda_->synchronize());
    EXPECT_EQ(x.values(), values);
  }
}

}  // namespace
}  // namespace lariat::test
