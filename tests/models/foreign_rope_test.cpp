// `lariat rope` reads any config.json: that of an architecture that does not run as a Llama's, which it says,
// with the keys of RoPE that this leaves out.
#include "tests/models/config_cases.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

struct ForeignRope {
  const char* config;
  int64_t rotary_dim;
  bool interleaved;
  std::vector<std::string> unread;  // keys of positions that are named, with their values
};

const ForeignRope kForeign[] = {
    {R"({"architectures": ["Phi3SmallForCausalLM"], "model_type": "phi3small", "hidden_size": 4096,
      "num_attention_heads": 32, "max_position_embeddings": 8192, "rope_embedding_base": 1000000,
      "rope_position_scale": 1.0, "rope_scaling": null})",
     128,
     false,
     {"\"rope_embedding_base\" is 1000000", "\"rope_position_scale\" is 1.0"}},
    {R"({"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "hidden_size": 4096,
      "num_attention_heads": 32, "max_position_embeddings": 8192, "rotary_emb_base": 10000, "rotary_pct": 1.0,
      "use_dynamic_ntk": true, "use_logn_attn": true})",
     128,
     false,
     {"\"rotary_emb_base\" is 10000", "\"rotary_pct\" is 1.0", "\"use_dynamic_ntk\" is true",
      "\"use_logn_attn\" is true"}},
    // Their classes heed partial_rotary_factor, and nothing says that they do not.
    {R"({"architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "hidden_size": 2048,
      "num_attention_heads": 32, "max_position_embeddings": 4096, "partial_rotary_factor": 0.25,
      "rope_theta": 10000})",
     16,
     false,
     {}},
    {R"({"architectures": ["PhiForCausalLM"], "model_type": "phi", "hidden_size": 2560, "num_attention_heads": 32,
      "max_position_embeddings": 2048, "partial_rotary_factor": 0.4, "rope_theta": 10000.0, "rope_scaling": null})",
     32,
     false,
     {}},
    // What is false or null is no news.
    {R"({"model_type": "mystery", "head_dim": 64, "max_position_embeddings": 64, "alibi": false,
      "rope_ratio": null, "rope_interleave": true})",
     64,
     true,
     {}},
};

TEST(ForeignRope, IsALlamasAndSaysSo) {
  for (const ForeignRope& row : kForeign) {
    const json config = json::parse(row.config);
    const TempDir dir;
    dir.write("config.json", row.config);
    std::vector<std::string> warnings;
    const RopeScaling rope = load_rope(dir.path, warnings);
    EXPECT_EQ(rope.rotary_dim, row.rotary_dim) << row.config;
    EXPECT_EQ(rope.interleaved, row.interleaved) << row.config;
    const char* key = config.contains("architectures") ? "architectures" : "model_type";
    const std::string file = (dir.path / "config.json").string() + ": ";
    std::vector<std::string> expected{file + "\"" + key + "\" is " + config[key].dump() +
                                      "; unknown to lariat; this is the RoPE that a Llama with these keys "
                                      "would have, and may not be the model's"};
    for (const std::string& unread : row.unread)
      expected.push_back(file + unread + "; not read: a Llama has no such key");
    EXPECT_EQ(warnings, expected);
  }
}

}  // namespace
}  // namespace lariat::test
