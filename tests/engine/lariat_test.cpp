#include "engine/lariat.h"

#include "engine/runtime/session.h"
#include "models/io/json_fields.h"
#include "tests/engine/engine_test_util.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

constexpr const char* kDual = "dual_chunk_attention_config";
class OpenedFolder : public FolderTest {};

std::string refusal_to_open(const std::filesystem::path& path, OpenOptions options) {
  options.device = "cpu";
  try {
    Engine::open(path, std::move(options));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(EngineOpen, ReadsTheRequestedFiles) {
  const Engine engine = Engine::open(demo_dir(), {.device = "cpu", .max_ctx = 99});
  ASSERT_TRUE(engine.tokenizer);
  EXPECT_FALSE(engine.chat);
  EXPECT_EQ(engine.eos_ids(), engine.model.spec.eos_token_ids);
  EXPECT_EQ(engine.session_options.max_ctx, 99);
  EXPECT_EQ(engine.session_options.k_dtype, DType::kF16);
  EXPECT_EQ(engine.session_options.v_dtype, engine.model.weights.embed.m.dtype);
  EXPECT_EQ(*engine.session_options.rope, engine.model.spec.rope());
  EXPECT_TRUE(engine.warnings.empty());
  EXPECT_FALSE(engine.session_options.on_saturated) << "no callback is set";
  EXPECT_FALSE(
      Engine::open(checkpoint_dir("llama_gqa"), {.reads = Reads::kTokens, .device = "cpu"}).tokenizer);
  EXPECT_NE(refusal_to_open(checkpoint_dir("llama_gqa"), {}), "");
  const OpenOptions random{
      .reads = Reads::kTokens, .device = "cpu", .quantize = DType::kQ4, .random_weights = true};
  EXPECT_EQ(Engine::open(demo_dir() / "config.json", random).model.quantization(), "q4");
}

TEST(EngineOpen, RefusesInvalidOptions) {
  const auto bloom = checkpoint_dir("bloom");
  const std::vector<std::tuple<std::filesystem::path, OpenOptions, std::string>> table = {
      {"/no/such/folder", {}, "/no/such/folder"},
      {demo_dir(), {.reads = Reads::kChat}, demo_dir().string()},
      {demo_dir(), {.dtype = DType::kF32, .quantize = DType::kQ8}, "`quantize`"},
      {demo_dir(), {.rope = {.factor = 2.0}}, "`rope_factor`"},
      {bloom, {.reads = Reads::kTokens, .rope = {.theta = 2e4}}, "RoPE | ALiBi"}};
  for (const auto& [path, options, words] : table) EXPECT_TRUE(names(refusal_to_open(path, options), words));
}

TEST_F(OpenedFolder, AConfigSelectsAPositionMethod) {
  link_files(checkpoint_dir("qwen2"), dir_ / "model");
  nlohmann::json config = read_json_object(dir_ / "model" / "config.json");
  const auto logits = [&](const std::string& method) {
    put("model/config.json", config.dump());
    const Engine engine =
        Engine::open(dir_ / "model", {.reads = Reads::kTokens, .device = "cpu", .position_method = method});
    EXPECT_EQ(engine.model.spec.warnings.size(), config.contains(kDual) ? 1U : 0U);
    Session session = engine.session();
    return std::pair(engine.session_options.positions.name,
                     all_logits(session, some_tokens(200, engine.model.spec.vocab_size), 150));
  };
  const auto plain = logits("");
  EXPECT_EQ(plain.first, "");
  const std::string same = "dca/chunk=24/window=9/temperature=length";
  config["max_position_embeddings"] = 32;
  const auto expected = logits(same);
  config["max_position_embeddings"] = 128;
  config[kDual] = {{"chunk_size", 32}, {"local_size", 8}, {"original_max_position_embeddings", 32}};
  EXPECT_EQ(logits(""), expected);
  EXPECT_EQ(logits("none"), plain);
  const auto other = logits("dca/chunk=32/window=9");
  EXPECT_EQ(other.first, "dca/chunk=32/window=9");
  EXPECT_NE(other.second, expected.second);
  EXPECT_NE(plain.second, expected.second);
}

// Reports at destruction the number of allocations still in use.
class OutlivedBackend : public ForwardingBackend {
 public:
  OutlivedBackend(Backend& inner, int64_t& left) : ForwardingBackend(inner), left_(left) {}
  ~OutlivedBackend() override { left_ = used_; }
  Buffer allocate(size_t bytes) override { return ++used_, Buffer(this, ::operator new(bytes), bytes); }
  void release(void* data, size_t) noexcept override { --used_, ::operator delete(data); }

 private:
  int64_t& left_;
  int64_t used_ = 0;
};

TEST(EngineMove, AModelIsFreedBeforeItsBackend) {
  CpuBackend cpu(1);
  const auto engine_on = [&](int64_t& left) {
    Engine engine;
    engine.backend = std::make_unique<OutlivedBackend>(cpu, left);
    engine.model.weights.memory.push_back(engine.backend->allocate(64));
    return engine;
  };
  int64_t first = -1, second = -1;
  {
    Engine engine = engine_on(first);
    engine = engine_on(second);
    EXPECT_EQ(first, 0) << "replaced";
    Engine& same = engine;
    engine = std::move(same);
    EXPECT_EQ(second, -1);
    EXPECT_EQ(engine.model.weights.memory.size(), 1U);
  }
  EXPECT_EQ(second, 0) << "destroyed";
}

// Keys of an exact scale are f32 by default.
TEST(EngineOpen, SessionsWithOtherScalings) {
  OpenOptions options{.reads = Reads::kTokens, .device = "cpu", .rope_steps = 0};
  const Engine engine = Engine::open(demo_dir(), options);
  EXPECT_EQ(engine.session_options.k_dtype, DType::kF16) << "no scaling: keys do not move";
  const RopeScaling dynamic = resolve_rope(engine.model.spec.rope(), {.scaling = "dynamic"});
  EXPECT_EQ(engine.session_for(dynamic).k_dtype, DType::kF32);
  EXPECT_EQ(*engine.session_for(dynamic).rope, dynamic);
  options.rope.scaling = "dynamic";
  EXPECT_TRUE(Engine::open(demo_dir(), options).warnings.empty());
  options.kv_dtype.keys = DType::kF16;
  const Engine rounds = Engine::open(demo_dir(), options);
  EXPECT_EQ(rounds.session_options.k_dtype, DType::kF16);
  ASSERT_EQ(rounds.warnings.size(), 1U);
  EXPECT_TRUE(names(rounds.warnings[0], "`rope_steps` exact | f16 | `kv_dtype` f32"));
}

}  // namespace
}  // namespace lariat::test
