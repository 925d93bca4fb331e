// Caches of f16 whose keys are beyond it.
#include "tests/engine/large_keys.h"

namespace lariat::test {
namespace {

class SaturatedKeys : public testing::Test {
 protected:
  SaturatedKeys()
      : dir_(std::filesystem::path(testing::TempDir()) / ("lariat-keys-" + std::to_string(getpid()))) {
    write_large_keys(dir_, 1e5F);
  }
  ~SaturatedKeys() override {
    std::error_code ec;
    std::filesystem::remove_all(dir_, ec);
  }
  SessionOptions options(DType k_dtype) {
    SessionOptions options = f32_session();
    options.k_dtype = k_dtype;
    options.on_saturated = [this](const Saturation& found) { told_.push_back(found); };
    return options;
  }
  static std::vector<int32_t> tokens() {
    return int_tensor(Checkpoint::open_file(checkpoint_dir("llama_gqa") / "golden.safetensors"), "tokens");
  }

  std::filesystem::path dir_;
  CpuBackend cpu_{1};
  std::vector<Saturation> told_;
};

TEST_F(SaturatedKeys, AreToldOfOnce) {
  const Model model = open_f32(dir_, cpu_);
  {
    Session session(model, cpu_, options(DType::kF16));
    const auto ids = tokens();
    EXPECT_LT(golden_argmaxes(all_logits(session, ids, ids.size())), 64);
    ASSERT_EQ(told_.size(), 1U);
    EXPECT_GT(told_[0].keys, 100);
    EXPECT_EQ(told_[0].values, 0);
    all_logits(session, ids, 8);
  }
  EXPECT_EQ(told_.size(), 1U);
}

TEST_F(SaturatedKeys, OfADecodeAreToldOfAtTheEnd) {
  const Model model = open_f32(dir_, cpu_);
  {
    Session session(model, cpu_, options(DType::kF16));
    Sequence sequence = session.new_sequence();
    for (const int32_t token : tokens()) session.decode(sequence, token);
    EXPECT_EQ(told_.size(), 0U);
  }
  EXPECT_EQ(told_.size(), 1U);
}

TEST_F(SaturatedKeys, FitIntoWiderDtypes) {
  const Model model = open_f32(dir_, cpu_);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    Session session(model, cpu_, options(dtype));
    const auto ids = tokens();
    EXPECT_EQ(golden_argmaxes(all_logits(session, ids, ids.size())), 64);
    EXPECT_EQ(golden_argmaxes(all_logits(session, ids, 8)), 64);
  }
  EXPECT_EQ(told_.size(), 0U);
}

// What others on the backend came to is not this session's.
TEST_F(SaturatedKeys, AreThoseOfTheSession) {
  const Model large = open_f32(dir_, cpu_), plain = open_f32(checkpoint_dir("llama_gqa"), cpu_);
  const auto ids = tokens();
  Session first(large, cpu_, options(DType::kF16));
  all_logits(first, ids, ids.size());
  EXPECT_EQ(told_.size(), 1U);
  Session second(plain, cpu_, options(DType::kF16));
  EXPECT_EQ(golden_argmaxes(all_logits(second, ids, ids.size())), 64);
  EXPECT_EQ(told_.size(), 1U);
}

}  // namespace
}  // namespace lariat::test
