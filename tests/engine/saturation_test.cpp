// Keys that exceed f16: one warning with a remedy.
#include "engine/lariat.h"
#include "models/files/safetensors.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

constexpr KvDTypes kOfBf16{.keys = DType::kBF16}, kOfF32{.keys = DType::kF32, .values = DType::kF32};

// Keys times 1e5, most beyond f16, and queries divided by 1e5: the same model.
void write_large_keys(const std::filesystem::path& dir) {
  const std::filesystem::path from = checkpoint_dir("llama_gqa");
  std::filesystem::copy_file(from / "config.json", dir / "config.json");
  const Tensors weights = open_safetensors(from);
  std::vector<NamedShape> shapes;
  for (const auto& [name, tensor] : weights.all()) shapes.push_back({name, tensor.shape});
  SafetensorsWriter writer(dir / "model.safetensors", shapes);
  for (const auto& [name, tensor] : weights.all()) {
    std::vector<float> values = float_tensor(weights, name);
    for (float& value : values)
      value *= name.find("k_proj") != name.npos ? 1e5F : name.find("q_proj") != name.npos ? 1e-5F : 1.0F;
    writer.append(values);
  }
  writer.finish();
}

// Golden tokens whose argmax equals transformers'.
int64_t golden_argmaxes(std::span<const float> logits) {
  const Tensors golden = open_safetensors_file(checkpoint_dir("llama_gqa") / "golden.safetensors");
  const std::vector<float> expected = float_tensor(golden, "logits");
  if (logits.size() != expected.size()) return -1;
  const size_t tokens = int_tensor(golden, "tokens").size(), vocab = logits.size() / tokens;
  const auto likeliest = [&](std::span<const float> of, size_t token) {
    const auto row = of.subspan(token * vocab, vocab);
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  int64_t equal = 0;
  for (size_t i = 0; i < tokens; ++i) equal += likeliest(logits, i) == likeliest(expected, i) ? 1 : 0;
  return equal;
}

class SaturatedKeys : public FolderTest {
 protected:
  SaturatedKeys() { write_large_keys(dir_); }

  Engine open(const KvDTypes& kv_dtype = {}, bool quiet = false) {
    OpenOptions options{.reads = Reads::kTokens, .device = "cpu", .threads = 1, .kv_dtype = kv_dtype};
    if (!quiet) options.warn = [this](const std::string& line) { told_.push_back(line); };
    return Engine::open(dir_, options);
  }
  int64_t right(const Engine& engine, size_t decoded) {
    Session session = engine.session();
    return golden_argmaxes(all_logits(session, ids_, decoded));
  }

  const std::vector<int32_t> ids_ =
      int_tensor(open_safetensors_file(checkpoint_dir("llama_gqa") / "golden.safetensors"), "tokens");
  std::vector<std::string> told_;
};

TEST_F(SaturatedKeys, WarnOnce) {
  for (const size_t decoded : {ids_.size(), size_t{8}}) {
    told_.clear();
    const Engine engine = open();
    EXPECT_LT(right(engine, decoded), 64);
    ASSERT_EQ(told_.size(), 1U);
    EXPECT_GT(std::stoi(told_[0].substr(told_[0].find_first_of("123456789"))), 100);
    EXPECT_TRUE(names(told_[0], "f16 | 65504 | `kv_dtype` k=bf16"));
    right(engine, 8);
    EXPECT_EQ(told_.size(), 1U);
  }
  right(open({}, /*quiet=*/true), 8);
  EXPECT_EQ(told_.size(), 1U);
}

TEST_F(SaturatedKeys, OfADecodeWarnAtTheEnd) {
  const Engine engine = open();
  {
    Session session = engine.session();
    Sequence sequence = session.new_sequence();
    for (const int32_t token : ids_) decode(session, sequence, token);
    EXPECT_EQ(told_.size(), 0U);
  }
  EXPECT_EQ(told_.size(), 1U);
}

TEST_F(SaturatedKeys, FitIntoWiderDtypes) {
  for (const KvDTypes& kv_dtype : {kOfBf16, kOfF32}) {
    const Engine engine = open(kv_dtype);
    EXPECT_EQ(right(engine, ids_.size()), 64);
    EXPECT_EQ(right(engine, 8), 64);
  }
  EXPECT_EQ(told_.size(), 0U);
}

// Another session on the same backend does not report them.
TEST_F(SaturatedKeys, BelongToTheSession) {
  const Engine engine = open();
  const Model plain = open_f32(checkpoint_dir("llama_gqa"), *engine.backend);
  right(engine, ids_.size());
  EXPECT_EQ(told_.size(), 1U);
  SessionOptions options = f32_session();
  options.k_dtype = DType::kF16;
  bool saturated = false;
  options.on_saturated = [&](const Saturation&) { saturated = true; };
  Session second(plain, *engine.backend, options);
  EXPECT_EQ(golden_argmaxes(all_logits(second, ids_, ids_.size())), 64);
  EXPECT_FALSE(saturated);
}

}  // namespace
}  // namespace lariat::test
