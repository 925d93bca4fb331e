// `lariat rope` reads any config.json: that of an architecture that does not run as a Llama's, which it says,
// with the keys of RoPE that this leaves out.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/config.h"

namespace lariat::foreign_rope_test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct Read {
  RopeScaling rope;
  std::string lines;
};

Read read(const json& config) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const fs::path dir =
      fs::temp_directory_path() / ("lariat_foreign_" + std::to_string(getpid()) + info->name());
  fs::create_directories(dir);
  std::ofstream(dir / "config.json") << config.dump();
  std::vector<std::string> warnings;
  Read result{load_rope(dir, warnings), ""};
  for (const std::string& line : warnings) {
    EXPECT_EQ(line.rfind((dir / "config.json").string() + ": ", 0), 0U) << line;
    result.lines += line.substr((dir / "config.json").string().size() + 2) + "\n";
  }
  fs::remove_all(dir);
  return result;
}

std::string unknown(const std::string& name) {
  return "\"architectures\" is [\"" + name +
         "\"]; unknown to lariat; this is the RoPE that a Llama with these keys would have, and may not be "
         "the "
         "model's\n";
}

TEST(ForeignRope, Phi3Small) {
  const Read phi = read({{"architectures", {"Phi3SmallForCausalLM"}},
                         {"model_type", "phi3small"},
                         {"hidden_size", 4096},
                         {"num_attention_heads", 32},
                         {"max_position_embeddings", 8192},
                         {"rope_embedding_base", 1000000},
                         {"rope_position_scale", 1.0},
                         {"rope_scaling", nullptr}});
  EXPECT_EQ(phi.lines, unknown("Phi3SmallForCausalLM") +
                           "\"rope_embedding_base\" is 1000000; not read: a Llama has no such key\n"
                           "\"rope_position_scale\" is 1.0; not read: a Llama has no such key\n");
}

TEST(ForeignRope, Qwen1) {
  const Read qwen = read({{"architectures", {"QWenLMHeadModel"}},
                          {"model_type", "qwen"},
                          {"hidden_size", 4096},
                          {"num_attention_heads", 32},
                          {"max_position_embeddings", 8192},
                          {"rotary_emb_base", 10000},
                          {"rotary_pct", 1.0},
                          {"use_dynamic_ntk", true},
                          {"use_logn_attn", true}});
  EXPECT_EQ(qwen.lines, unknown("QWenLMHeadModel") +
                            "\"rotary_emb_base\" is 10000; not read: a Llama has no such key\n"
                            "\"rotary_pct\" is 1.0; not read: a Llama has no such key\n"
                            "\"use_dynamic_ntk\" is true; not read: a Llama has no such key\n"
                            "\"use_logn_attn\" is true; not read: a Llama has no such key\n");
}

// Their classes heed partial_rotary_factor, and nothing says that they do not.
TEST(ForeignRope, StableLmAndPhi) {
  const Read stable = read({{"architectures", {"StableLmForCausalLM"}},
                            {"model_type", "stablelm"},
                            {"hidden_size", 2048},
                            {"num_attention_heads", 32},
                            {"max_position_embeddings", 4096},
                            {"partial_rotary_factor", 0.25},
                            {"rope_theta", 10000}});
  EXPECT_EQ(stable.lines, unknown("StableLmForCausalLM"));
  EXPECT_EQ(stable.rope.rotary_dim, 16);
  const Read phi = read({{"architectures", {"PhiForCausalLM"}},
                         {"model_type", "phi"},
                         {"hidden_size", 2560},
                         {"num_attention_heads", 32},
                         {"max_position_embeddings", 2048},
                         {"partial_rotary_factor", 0.4},
                         {"rope_theta", 10000.0},
                         {"rope_scaling", nullptr}});
  EXPECT_EQ(phi.lines, unknown("PhiForCausalLM"));
  EXPECT_EQ(phi.rope.rotary_dim, 32);
}

TEST(ForeignRope, WhatIsFalseOrOffIsNoNews) {
  EXPECT_EQ(
      read({{"model_type", "mystery"},
            {"head_dim", 64},
            {"max_position_embeddings", 64},
            {"alibi", false},
            {"rope_ratio", nullptr},
            {"rope_interleave", true}})
          .lines,
      "\"model_type\" is \"mystery\"; unknown to lariat; this is the RoPE that a Llama with these keys would "
      "have, and may not be the model's\n");
  EXPECT_TRUE(
      read({{"head_dim", 64}, {"max_position_embeddings", 64}, {"rope_interleave", true}}).rope.interleaved);
}

}  // namespace
}  // namespace lariat::foreign_rope_test
