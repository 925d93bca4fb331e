// Whether the head of a model with an image part is its embedding: every combination of true, false and
// absent at the two places that may say so, against transformers (tests/golden/ties.json).
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/config.h"
#include "models/io/json_file.h"

namespace lariat::ties_test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json golden() {
  return json::parse(read_file(fs::path(LARIAT_SOURCE_DIR) / "tests" / "golden" / "ties.json", 1 << 20));
}

TEST(Ties, AreThoseOfTransformers) {
  const json all = golden();
  std::map<std::string, size_t> seen;
  for (const json& kind : all["kinds"]) {
    for (const json& tie : kind["ties"]) {
      json config = kind["config"];
      if (!tie["outer"].is_null()) config["tie_word_embeddings"] = tie["outer"];
      if (!tie["inner"].is_null()) config["text_config"]["tie_word_embeddings"] = tie["inner"];
      const ModelSpec spec = parse_config(config.dump(), "config.json");
      EXPECT_EQ(spec.tie_word_embeddings, tie["tied"].get<bool>())
          << config["model_type"] << " of " << config["text_config"]["model_type"] << " " << tie;
      ++seen[config["model_type"]];
    }
  }
  EXPECT_EQ(seen, (std::map<std::string, size_t>{{"gemma3", 9},
                                                 {"llava", 18},
                                                 {"mistral3", 18},
                                                 {"qwen2_5_vl", 9},
                                                 {"qwen2_vl", 9},
                                                 {"qwen3_vl", 9}}));
}

TEST(Ties, ANameStandsForAMissingType) {
  const json all = golden();
  for (const json& kind : all["kinds"]) {
    json config = kind["config"];
    config.erase("model_type");
    const bool tied = parse_config(kind["config"].dump(), "config.json").tie_word_embeddings;
    EXPECT_EQ(parse_config(config.dump(), "config.json").tie_word_embeddings, tied) << config;
  }
}

TEST(Ties, AWordIsNoBoolean) {
  json config = golden()["kinds"].back()["config"];
  config["tie_word_embeddings"] = "yes";
  try {
    parse_config(config.dump(), "config.json");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "config.json: \"tie_word_embeddings\" is \"yes\"; expected true or false");
  }
}

}  // namespace
}  // namespace lariat::ties_test
