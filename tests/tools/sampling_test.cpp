// generation_config.json sets defaults; options override them.
#include "tests/tools/chat_program.h"

namespace lariat::test {
namespace {

class SamplingProgram : public ChatProgram {
 protected:
  void ask_for(const Json& generation) const { put("model/generation_config.json", generation.dump()); }
  Json written(const std::string& more) const {
    return json_of(generate(golden_["prompt"], "--json -n 60 " + more));
  }

  Json golden_ = Json::parse(slurp(kSource / "tests" / "golden" / "generation.json"));
};

TEST_F(SamplingProgram, GreedyTextEqualsTransformers) {
  for (const Json& one : golden_["greedy"]) {
    ask_for(one["file"]);
    const Json json = written("");
    EXPECT_EQ(json["tokens"], one["tokens"]) << one["file"];
    EXPECT_EQ(json["sampling"]["temperature"], 0.0);
    EXPECT_EQ(json["sampling"]["repetition_penalty"], one["file"]["repetition_penalty"]);
  }
}

TEST_F(SamplingProgram, TheCommandLineWins) {
  const Json plain = written("");
  ask_for(golden_["greedy"][0]["file"]);
  EXPECT_NE(written("")["tokens"], plain["tokens"]);
  EXPECT_EQ(written("--repetition-penalty 1")["tokens"], plain["tokens"]);
  EXPECT_EQ(written("--repetition-penalty 1")["sampling"]["repetition_penalty"], 1.0);
}

TEST_F(SamplingProgram, GenerateSamplesOnlyOnRequest) {
  const Json plain = written("");
  ask_for({{"eos_token_id", 2}, {"do_sample", true}, {"temperature", 0.7}, {"top_p", 0.9}});
  EXPECT_EQ(written("")["tokens"], plain["tokens"]);
  EXPECT_EQ(written("--sampling greedy")["tokens"], plain["tokens"]);
  EXPECT_EQ(written("--sampling model --seed 5")["sampling"],
            Json::parse(R"({"temperature": 0.7, "top_k": 50, "top_p": 0.9, "min_p": 0.0,
                                      "repetition_penalty": 1.0, "seed": 5})"));
  EXPECT_EQ(written("--sampling model --seed 5")["tokens"],
            written("--temperature 0.7 --top-k 50 --top-p 0.9 --seed 5")["tokens"]);
  EXPECT_EQ(written("--sampling model --temperature 0 --top-k 3")["tokens"], plain["tokens"]);
  EXPECT_EQ(written("--sampling model --top-k 3")["sampling"]["top_k"], 3);
}

TEST_F(SamplingProgram, ChatUsesTheModelsSampling) {
  ask_for({{"eos_token_id", 2}, {"do_sample", true}, {"temperature", 0.7}, {"repetition_penalty", 1.2}});
  const auto answer = [&](const std::string& more) {
    return json_of(pipe("Once upon a time\n", "-n 20 --json " + more));
  };
  const Json json = answer("");
  EXPECT_EQ(json["sampling"], Json::parse(R"({"temperature": 0.7, "top_k": 50, "top_p": 1.0, "min_p": 0.0,
                                                        "repetition_penalty": 1.2, "seed": 0})"));
  EXPECT_EQ(answer("--temperature 0.7 --top-k 50 --repetition-penalty 1.2")["tokens"], json["tokens"]);
  const Json greedy = answer("--temperature 0 --repetition-penalty 1");
  EXPECT_EQ(greedy["sampling"]["temperature"], 0.0);
  ask_for({{"eos_token_id", 2}});
  EXPECT_EQ(answer("")["tokens"], greedy["tokens"]);
}

TEST_F(SamplingProgram, StopStrings) {
  ask_for({{"eos_token_id", 2}, {"stop_strings", {"friend"}}});
  const Json json = written("");
  EXPECT_EQ(json["stop_reason"], "stop");
  EXPECT_FALSE(names(json["text"].get<std::string>(), "friend"));
  EXPECT_TRUE(names(written("--stop Ella")["text"].get<std::string>(), "friend"));
}

TEST_F(SamplingProgram, UnusedSettingsMayBeInvalid) {
  const Json plain = written(""), config = Json::parse(slurp(model_ / "config.json"));
  put("text", slurp(kDemo / "heldout.txt").substr(0, 300));
  const std::string measure =
      fmt::format("perplexity --json -c 32 -f {} -m {}", (dir_ / "text").string(), model_.string());
  const Json measured = json_of(run_lariat(measure));
  const std::string samples = "--temperature 0.7 --top-k 5 --top-p 1 --min-p 0";
  const Json sampled = written(samples)["tokens"];
  for (const char* key : {R"({"top_k": -1})", R"({"top_k": 50.0})", R"({"top_p": 1.2})",
                          R"({"do_sample": 1})", R"({"temperature": "0.7"})", R"({"min_p": "x"})"}) {
    for (const bool own_file : {true, false}) {
      SCOPED_TRACE(std::string(key) + (own_file ? "" : " in config.json"));
      Json keys = config;
      keys.update(Json::parse(key));
      fs::remove(model_ / "generation_config.json");
      own_file ? ask_for(Json::parse(key)) : put("model/config.json", keys.dump());
      const Outcome outcome = run_lariat(measure);
      EXPECT_EQ(outcome.err, "");
      EXPECT_EQ(json_of(outcome), measured);
      EXPECT_EQ(written("")["tokens"], plain["tokens"]);
      EXPECT_EQ(written(samples)["tokens"], sampled);
      put("model/config.json", config.dump());
    }
  }
  for (const char* key : {"top_k", "top_p", "temperature", "min_p"}) {
    ask_for({{"do_sample", true}, {key, "x"}});
    expect_error(generate("x", "--sampling model"), 1, fmt::format("generation_config.json | {} | x", key));
    EXPECT_EQ(generate("x", "-n 0 --sampling model").code, 0);
    EXPECT_EQ(written("--sampling model " + samples)["tokens"], sampled);
  }
  ask_for({{"stop_strings", 5}, {"repetition_penalty", 0}});
  EXPECT_EQ(json_of(run_lariat(measure)), measured);
  expect_error(generate("x", "--stop x"), 1, "generation_config.json | repetition_penalty | 0");
  expect_error(generate("x", "--repetition-penalty 1"), 1, "generation_config.json | stop_strings | 5");
  EXPECT_EQ(written("--stop % --repetition-penalty 1")["tokens"], plain["tokens"]);
}

// Numbers are transformers', with f32 weights and f64 sums.
TEST_F(SamplingProgram, AModelWithVllmsKeys) {
  const fs::path model = shared_dir() / "cases" / "sampling-keys";
  LARIAT_NEEDS(model);
  const std::string of_model = fmt::format("-m {} --kv-dtype f32 --json ", model.string());
  const Json measured =
      json_of(run_lariat(fmt::format("perplexity -c 46 -f {}/text.txt ", model.string()) + of_model));
  EXPECT_EQ(measured["results"][0]["tokens"], 45);
  EXPECT_NEAR(measured["results"][0]["ppl"].get<double>(), 218.4733, 2e-3);
  EXPECT_EQ(json_of(run_lariat("generate -p hi -n 5 " + of_model))["tokens"],
            Json({204, 204, 204, 204, 204}));
  const Json sampled = json_of(run_lariat("generate -p hi -n 5 --temperature 0.7 --top-k 5 " + of_model));
  EXPECT_EQ(sampled["sampling"]["top_k"], 5);
}

// The token is not printed: from either configuration, alone and within text.
TEST_F(SamplingProgram, ASpecialTokenEndsAText) {
  put("model/tokenizer_config.json", R"({"additional_special_tokens": ["."]})");
  const Json whole = written("");
  const Json dot = json_of(run_lariat("tokenize --no-bos --json --text . -m " + model_.string()))["tokens"];
  const std::vector<int> all = whole["tokens"];
  const auto found = std::find(all.begin(), all.end(), dot[0].get<int>());
  ASSERT_LT(found + 1, all.end());
  EXPECT_FALSE(names(whole["text"].get<std::string>(), "."));
  const auto expect_ended = [&](const Json& json, int64_t tokens, size_t hidden = 0) {
    const std::vector<int> until(all.begin(), all.begin() + tokens);
    const std::string text =
        json_of(generate(golden_["prompt"], fmt::format("--json -n {}", found - all.begin())))["text"];
    EXPECT_EQ(json["stop_reason"], "stop");
    EXPECT_EQ(json["tokens"], Json(until));
    EXPECT_EQ(json["text"], text.substr(0, text.size() - hidden));
  };
  const int64_t n = found + 1 - all.begin();
  const std::string text = whole["text"],
                    before = json_of(generate(golden_["prompt"], fmt::format("--json -n {}", n)))["text"];
  expect_ended(written("--stop ."), n);
  expect_ended(written("--stop '" + before.substr(before.size() - 2) + ".'"), n, 2);
  expect_ended(written("--stop '." + text.substr(before.size(), 2) + "'"), n + 1);
  EXPECT_EQ(generate(golden_["prompt"], "-n 60 --stop .").out, before + "\n");
  ask_for({{"eos_token_id", 2}, {"stop_strings", {"."}}});
  expect_ended(written(""), n);
  Json config = Json::parse(slurp(model_ / "config.json"));
  config["stop_strings"] = {"."};
  put("model/config.json", config.dump());
  fs::remove(model_ / "generation_config.json");
  expect_ended(written(""), n);
  const Json answer = json_of(pipe("Once upon a time\n", "-n 60 --json"));
  EXPECT_EQ(answer["stop_reason"], "stop");
  EXPECT_EQ(answer["tokens"].back(), dot[0]);
}

TEST_F(SamplingProgram, OnlyGeneratingCommandsWarn) {
  ask_for({{"eos_token_id", 2}, {"num_beams", 4}, {"strange", 1}});
  const std::string model = "-m " + model_.string() + " ",
                    err = run_lariat("generate -n 2 -p x " + model).err,
                    warning = "lariat: warning: " + (model_ / "generation_config.json").string();
  EXPECT_TRUE(names(err.substr(0, err.find('\n')), warning + " | num_beams"));
  EXPECT_TRUE(names(err.substr(err.find('\n')), warning + " | strange"));
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 2);
  EXPECT_EQ(pipe("x\n", "-n 2").err, err);
  EXPECT_EQ(run_lariat("generate -n 2 --quiet -p x " + model).err, "");
  EXPECT_EQ(run_lariat("logits --tokens 1 --out " + (dir_ / "out").string() + " " + model).err, "");
}

TEST_F(SamplingProgram, SamplingOptionsApplyIfTheModelSamples) {
  ask_for({{"do_sample", true}});
  EXPECT_EQ(run_lariat("generate -n 2 -p x --top-p 0.5 --sampling model -m " + model_.string()).err, "");
}

}  // namespace
}  // namespace lariat::test
