#include "tests/tools/program.h"

namespace lariat::test {
namespace {

Json inspected(const std::filesystem::path& model, const std::string& options = "") {
  return json_of(run_lariat("inspect --json --model " + model.string() + " " + options));
}

TEST(Inspect, DescribesTheDemo) {
  const Json got = inspected(kDemo, "--ctx 300");
  EXPECT_EQ(got["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(got["family"], "llama");
  EXPECT_EQ(got["runs"], true);
  EXPECT_EQ(got["reason"], nullptr);
  EXPECT_EQ(got["quantization"], nullptr);
  EXPECT_EQ(got["context"], 512);
  EXPECT_EQ(got["rope"],
            Json({{"type", "default"}, {"theta", 10000.0}, {"factor", 1.0}, {"original_ctx", 512}}));
  for (const auto& [key, value] :
       {std::pair("layers", 4), {"hidden", 256}, {"heads", 4}, {"kv_heads", 2}, {"head_dim", 64}})
    EXPECT_EQ(got[key], value) << key;
  // Embedding; four layers of q and o, k and v, gate, up and down, two norms; a final norm.
  const int64_t embedding = 2048 * 256, attention = 4 * 256 * (256 * 2 + 128 * 2), mlp = 4 * 3 * 704 * 256,
                norms = 9 * 256, all = embedding + attention + mlp + norms;
  EXPECT_EQ(got["parameters"], Json({{"total", all}, {"per_token", all}}));
  const auto bf16 = [](int tensors, int64_t elements) {
    return Json({{"BF16", {{"tensors", tensors}, {"elements", elements}, {"bytes", 2 * elements}}}});
  };
  EXPECT_EQ(got["tensors"], Json({{"embedding", bf16(1, embedding)},
                                  {"attention", bf16(16, attention)},
                                  {"feed_forward", bf16(12, mlp)},
                                  {"experts", Json::object()},
                                  {"norm", bf16(9, norms)},
                                  {"head", Json::object()},
                                  {"other", Json::object()}}));
  EXPECT_EQ(got["tokenizer"]["kind"], "SentencePiece");
  EXPECT_EQ(got["tokenizer"]["vocabulary"], 2048);
  EXPECT_EQ(got["tokenizer"]["special_tokens"]["eos_token"], "</s>");
  EXPECT_EQ(got["chat_template"], false);
  // Two pages of 256 positions: f16 keys, bf16 values. Norms are not counted.
  EXPECT_EQ(got["memory"],
            Json({{"weights", 2 * (all - norms)}, {"ctx", 300}, {"kv_cache", 512 * 4 * 2 * 64 * (2 + 2)}}));
}

TEST(Inspect, CountsTheActiveExperts) {
  const Json got = inspected(kSource / "tests/golden/checkpoints/mixtral");
  EXPECT_EQ(got["experts"], Json({{"of", 8}, {"chosen", 2}}));
  EXPECT_EQ(got["parameters"]["total"].get<int64_t>() - got["parameters"]["per_token"].get<int64_t>(),
            2 * 6 * 3 * 24 * 32);
  EXPECT_EQ(got["tensors"]["experts"]["BF16"]["tensors"], 2 * (8 * 3 + 1));
  EXPECT_EQ(got["tensors"]["head"]["BF16"]["elements"], 96 * 32);
  EXPECT_EQ(got["tensors"]["other"], Json::object());
  EXPECT_EQ(got["memory"]["ctx"], 256);
  EXPECT_EQ(got["runs"], false);  // no tokenizer
  EXPECT_TRUE(names(got["reason"].get<std::string>(), "tokenizer.json"));
}

TEST(Inspect, ShowsAnUnsupportedModel) {
  const TempFolder folder;
  link_files(kDemo, folder.path / "model");
  const Json config = Json::parse(slurp(kDemo / "config.json"));
  Json other = config;
  other["architectures"] = {"TwistForCausalLM"};
  other["quantization_config"] = {{"quant_method", "fp8"}};
  folder.put("model/config.json", other.dump());
  const Json got = inspected(folder.path / "model");
  EXPECT_EQ(got["runs"], false);
  EXPECT_TRUE(names(got["reason"].get<std::string>(), "TwistForCausalLM"));
  EXPECT_EQ(got["quantization"], "fp8");
  EXPECT_EQ(got["layers"], 4);
  EXPECT_EQ(got["tensors"]["attention"]["BF16"]["tensors"], 16);
  EXPECT_FALSE(got.contains("memory"));
  const Outcome text = run_lariat("inspect --model " + (folder.path / "model").string());
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(names(text.out, "runs | no | TwistForCausalLM"));
  folder.put("model/config.json",
             R"({"text_config": {"num_hidden_layers": 7, "quantization_config": {"bits": 4}}})");
  const Json inner = inspected(folder.path / "model");
  EXPECT_EQ(inner["architecture"], nullptr);
  EXPECT_EQ(inner["quantization"], "mlx");
  EXPECT_EQ(inner["layers"], 7);
  std::filesystem::remove(folder.path / "model" / "model.safetensors");
  folder.put("model/config.json", config.dump());
  const Json bare = inspected(folder.path / "model");
  EXPECT_EQ(bare["runs"], false);
  EXPECT_EQ(bare["heads"], 4);
  EXPECT_FALSE(bare.contains("tensors"));
}

TEST(Inspect, AnUnsupportedTemplateIsAWarning) {
  const TempFolder folder;
  link_files(kDemo, folder.path / "model");
  folder.put("model/chat_template.jinja", "{% raw %}x{% endraw %}");
  const std::string model = " --model " + (folder.path / "model").string();
  const Outcome outcome = run_lariat("inspect --json" + model);
  const Json got = json_of(outcome);
  EXPECT_EQ(got["runs"], true);
  EXPECT_EQ(got["chat_template"], false);
  EXPECT_TRUE(holds(outcome.err, "warning: "));
  EXPECT_TRUE(holds(outcome.err, "chat_template.jinja"));
  EXPECT_EQ(run_lariat("generate -p Once -n 3" + model).code, 0);
  EXPECT_EQ(run_lariat("generate -p Once -n 3 --chat" + model).code, 1);
}

}  // namespace
}  // namespace lariat::test
