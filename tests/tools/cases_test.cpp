// Small checkpoints with transformers' answers.
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

class Cases : public testing::Test {
 protected:
  void SetUp() override { LARIAT_NEEDS(cases_); }
  Json written(const std::string& arguments) const {
    return json_of(run_lariat(arguments + " --kv-dtype f32 --json"));
  }
  std::string model(const std::string& name) const { return " -m " + (cases_ / name).string() + " "; }

  const fs::path cases_ = shared_dir() / "cases";
};

TEST_F(Cases, AStopStringIsASpecialToken) {
  const std::string generate = "generate -p why -n 40" + model("stop-special");
  std::vector<int> tokens = {168, 114, 114, 114, 69, 95, 258};
  const std::string text =
      json_of(run_lariat("detokenize --tokens 168,114,114,114,69,95 --json" + model("stop-special")))
          .at("text");
  for (const char* stop : {"", "--stop '<|im_end|>'", "--stop '<|im_end|>0'"}) {
    if (std::string(stop).ends_with("0'")) tokens.push_back(15);
    const Json json = written(generate + stop);
    EXPECT_EQ(json["tokens"], Json(tokens)) << stop;
    EXPECT_EQ(json["stop_reason"], "stop");
    EXPECT_EQ(json["text"], text);
  }
}

TEST_F(Cases, ATemplatePrintsTheClassesTokens) {
  const std::string tail =
      "--no-generation-prompt --json --messages " + (cases_ / "template-bos/messages.json").string();
  const Json llama = json_of(run_lariat("tokenize" + model("template-bos/llama") + tail)),
             qwen2 = json_of(run_lariat("tokenize" + model("template-bos/qwen2") + tail));
  EXPECT_EQ(
      llama,
      Json::parse(R"({"text": "<s>user: hi</s>\n", "tokens": [1, 1996, 1989, 271, 61, 273, 1988, 2, 13]})"));
  EXPECT_EQ(qwen2, Json::parse(R"({"text": "user: hi<|endoftext|>\n",
                                    "tokens": [84, 82, 68, 81, 25, 220, 71, 72, 256, 198]})"));
}

TEST_F(Cases, ATemplateRendersItsConversation) {
  const Json first = written("generate --chat -p hi -n 5 --system x" + model("template-probe/system-first")),
             last = written("generate --chat -p hi -n 5" + model("template-probe/last-user"));
  EXPECT_EQ(first["prompt_tokens"], 32);
  EXPECT_EQ(first["tokens"], Json({259, 259, 259, 259, 259}));
  EXPECT_EQ(last["prompt_tokens"], 21);
  EXPECT_EQ(last["tokens"], Json({259, 259, 259, 259, 247}));
  expect_error(run_lariat("generate --chat -p hi -n 5" + model("template-probe/system-first")), 1,
               "a system message comes first");
}

}  // namespace
}  // namespace lariat::test
