// score and generate --prompts: one output line per input line.
#include <regex>

#include "tests/tools/chat_program.h"

namespace lariat::test {
namespace {

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

class JsonLineProgram : public ChatProgram {
 protected:
  Outcome run(const std::string& command, const std::string& option, const std::string& lines,
              const std::string& more = "") const {
    put("lines.jsonl", lines);
    std::string line =
        command + " -m " + model_.string() + " " + option + " " + (dir_ / "lines.jsonl").string();
    for (const std::string& word : words({})) line += " " + word;
    return run_lariat(line + " " + more);
  }
  Outcome score(const std::string& lines, const std::string& more = "") const {
    return run("score", "--file", lines, more);
  }
  Outcome prompts(const std::string& lines, const std::string& more = "") const {
    return run("generate", "--prompts", lines, more);
  }
};

TEST_F(JsonLineProgram, ScoresEachLine) {
  const Outcome outcome = score(
      "\xEF\xBB\xBF{\"prompt\": \"Once upon a time\", \"continuation\": \", there lived\"}\r\n\n"
      "{\"prompt\": \"Once upon a \", \"choices\": [\"pass key\", \"time, there\"], \"id\": 7}",
      "--top 2");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(names(outcome.err, "lariat: | 2 | 3 | 8 | 10"));
  const auto lines = json_lines(outcome.out);
  ASSERT_EQ(lines.size(), 2U);
  const Json& one = lines[0];
  EXPECT_EQ(one.at("line"), 1);
  EXPECT_EQ(one.at("greedy"), true);
  double sum = 0;
  for (const double logprob : one.at("logprobs")) sum += logprob;
  EXPECT_EQ(one.at("sum").get<double>(), sum);
  EXPECT_EQ(one.at("per_byte").get<double>(), sum / 13);
  ASSERT_EQ(one.at("top").size(), one.at("tokens").size());
  for (size_t i = 0; i < one.at("tokens").size(); ++i) {
    EXPECT_EQ(one.at("top")[i].size(), 2U);
    EXPECT_EQ(one.at("top")[i][0].at("token"), one.at("tokens")[i]);
    EXPECT_EQ(one.at("top")[i][0].at("logprob"), one.at("logprobs")[i]);
  }
  EXPECT_EQ(lines[1].at("line"), 3);
  EXPECT_EQ(lines[1].at("id"), 7);
  EXPECT_EQ(lines[1].at("best"), 1);
  EXPECT_EQ(lines[1].at("best_per_byte"), 1);
  // The space belongs to the choice's first token, but not to its bytes.
  const Json& second = lines[1].at("choices")[1];
  EXPECT_EQ(second.at("tokens")[0], 450);
  EXPECT_EQ(second.at("per_byte").get<double>(), second.at("sum").get<double>() / 11);
}

// Weights are floats. With integers a warning suggests an option.
TEST_F(JsonLineProgram, ALineScoresTheSameAloneAndAmongOthers) {
  const std::string text = slurp(kDemo / "heldout.txt");
  std::string lines, last;
  for (size_t i = 0; i < 8; ++i) {
    last =
        Json{{"prompt", text.substr(700 * i, 200)}, {"continuation", text.substr(700 * i + 200, 60)}}.dump() +
        "\n";
    lines += last;
  }
  const auto run = [&](const std::string& some, const std::string& options) {
    put("some.jsonl", some);
    return run_lariat("score -m " + model_.string() + " --device cpu --threads 1 --file " +
                      (dir_ / "some.jsonl").string() + " " + options);
  };
  for (const char* dtype : {"--dtype bf16", "--dtype f32", "--quantize q4"}) {
    const Outcome all = run(lines, dtype), alone = run(last, dtype);
    EXPECT_FALSE(holds(all.err, "warning"));
    EXPECT_NEAR(json_lines(all.out).at(7)["sum"], json_lines(alone.out).at(0)["sum"].get<double>(), 0.01)
        << dtype;
  }
  const Outcome quantized = run(last, "--quantize q4 --activations 8");
  EXPECT_EQ(quantized.code, 0);
  EXPECT_TRUE(holds(quantized.err, "lariat: warning: "));
  EXPECT_TRUE(holds(quantized.err, "--activations 16"));
}

TEST_F(JsonLineProgram, BadLinesAreNamedAndTheRestIsScored) {
  const std::string good = R"({"prompt": "a", "continuation": " b"})";
  const Outcome outcome =
      score(good + "\n{\n[]\n" + R"({"prompt": "a"})" + "\n" + R"({"prompt": 1, "choices": ["a"]})" + "\n" +
                R"({"prompt": "a", "choices": []})" + "\n" +
                R"({"prompt": "a", "continuation": " b", "choices": ["b"]})" + "\n" +
                R"({"prompt": "a", "continuation": ""})" + "\n{\"prompt\": \"a\xFF\"}\n" +
                R"({"prompt": "a b c d e f g h i j k", "continuation": " b"})" + "\n" + good,
            "--ctx 8");
  EXPECT_EQ(outcome.code, 1);
  const auto lines = json_lines(outcome.out);
  ASSERT_EQ(lines.size(), 11U);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("line"), i + 1);
    EXPECT_EQ(lines[i].contains("error"), i != 0 && i != 10) << lines[i];
  }
  EXPECT_EQ(lines[0].at("logprobs"), lines[10].at("logprobs"));
  const char* const expected[] = {"2 | JSON",   "3 | []",      "4 | continuation | choices",
                                  "5 | prompt", "6 | choices", "7 | continuation | choices",
                                  "8",          "9 | JSON",    "10 | 8"};
  std::istringstream said(outcome.err);
  std::string line;
  for (const char* words : expected) {
    std::getline(said, line);
    EXPECT_TRUE(names(line, std::string("lines.jsonl | ") + words));
  }
  std::getline(said, line);
  EXPECT_TRUE(names(line, "2"));
  std::getline(said, line);
  EXPECT_TRUE(names(line, "lariat: error: | lines.jsonl | 9"));
}

TEST_F(JsonLineProgram, AThousandLinesPrefillTheirPromptOnce) {
  const std::string text = slurp(kDemo / "heldout.txt").substr(0, 1500);
  std::string lines;
  for (int i = 0; i < 1000; ++i)
    lines += Json({{"prompt", text}, {"continuation", fmt::format(" {}", i % 10)}}).dump() + "\n";
  const Outcome outcome = score(lines);
  EXPECT_EQ(outcome.code, 0);
  const Json tokens = json_of(run_lariat("tokenize --json -m " + model_.string() + " --text '" + text + "'"));
  const auto prompt = static_cast<int>(tokens.at("tokens").size());
  // On a busy machine a warning comes first.
  std::istringstream last(
      std::regex_replace(outcome.err.substr(outcome.err.rfind("lariat: ")), std::regex("[^0-9]+"), " "));
  int line_count = 0, continuations = 0, read = 0, shared = 0;
  last >> line_count >> continuations >> read >> shared;
  EXPECT_EQ(line_count, 1000) << outcome.err;
  EXPECT_GE(read, prompt);
  EXPECT_LE(read, prompt + 40);  // the last token again for each of 16 groups
  EXPECT_GE(read + shared, 1000 * prompt);
}

TEST_F(JsonLineProgram, ScoresAfterASavedContextAndWithoutABos) {
  const std::string file = (dir_ / "context").string();
  ASSERT_EQ(generate("Once upon a time", "-n 0 --save-cache " + file).code, 0);
  const auto behind =
      json_lines(score(R"({"prompt": "", "continuation": ", there"})", "--load-cache " + file).out);
  const auto whole = json_lines(score(R"({"prompt": "Once upon a time", "continuation": ", there"})").out);
  const auto bare =
      json_lines(score(R"({"prompt": "Once upon a time", "continuation": ", there"})", "--no-bos").out);
  EXPECT_EQ(behind[0].at("tokens").size(),
            whole[0].at("tokens").size() + 1);  // leading space
  EXPECT_EQ(bare[0].at("tokens"), whole[0].at("tokens"));
  EXPECT_NE(bare[0].at("logprobs"), whole[0].at("logprobs"));
}

TEST_F(JsonLineProgram, GeneratesTheSameForEachPromptAlone) {
  const std::vector<std::string> texts = {"Once upon a time", "The old king", "Her mother said", "a",
                                          "One day, a boy"};
  std::string lines;
  for (int round = 0; round < 4; ++round) {
    for (const std::string& text : texts) lines += Json({{"prompt", text}}).dump() + "\n";
  }
  for (const std::string& options :
       {std::string("-n 40"), std::string("-n 30 --temperature 0.8 --seed 3 --stop .")}) {
    const Outcome together = prompts(lines, options + " --logprobs 1");
    EXPECT_EQ(together.code, 0) << together.err;
    EXPECT_TRUE(names(together.err, "lariat: | 20"));
    const auto answers = json_lines(together.out);
    ASSERT_EQ(answers.size(), 20U);
    for (size_t i = 0; i < answers.size(); ++i) {
      const Json alone = json_of(generate(texts[i % texts.size()], options + " --json --logprobs 1"));
      for (const char* key : {"tokens", "text", "stop_reason", "prompt_tokens"})
        EXPECT_EQ(answers[i].at(key), alone.at(key)) << options << " " << texts[i % texts.size()];
      ASSERT_EQ(alone.at("logprobs").size(), alone.at("tokens").size());
      for (size_t k = 0; k < alone.at("logprobs").size(); ++k) {
        const Json &a = answers[i].at("logprobs")[k], &b = alone.at("logprobs")[k];
        EXPECT_EQ(a.at("token"), alone.at("tokens")[k]);
        EXPECT_EQ(a.at("top")[0].at("token"), b.at("top")[0].at("token"));
        EXPECT_NEAR(a.at("logprob").get<double>(), b.at("logprob").get<double>(), 1e-4);
      }
    }
  }
}

TEST_F(JsonLineProgram, PromptsAreMessagesOrFollowAContext) {
  const std::string messages = R"({"messages": [{"role": "user", "content": "Hello"}]})";
  const auto asked = json_lines(prompts(messages + "\n{\"prompt\": \"Hello\"}", "--chat -n 12").out);
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked[0].at("text"), asked[1].at("text"));
  EXPECT_EQ(asked[0].at("tokens"), json_of(generate("Hello", "--chat -n 12 --json")).at("tokens"));
  const Outcome refused = prompts(messages);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(names(refused.err, "lines.jsonl | 1 | messages | --chat"));

  const std::string file = (dir_ / "context").string();
  ASSERT_EQ(generate("Once upon a time", "-n 4 --save-cache " + file).code, 0);
  const std::string load = "-n 12 --load-cache " + file;
  const auto behind = json_lines(prompts("{\"prompt\": \" and\"}\n{\"prompt\": \" but\"}", load).out);
  EXPECT_EQ(behind[1].at("tokens"), json_of(generate(" but", load + " --json")).at("tokens"));
}

TEST_F(JsonLineProgram, UnknownKeysAreRefused) {
  const std::string good = R"({"prompt": "Once", "id": "a"})";
  for (const char* key : {"max_tokens", "stop", "temperature", "messagez"}) {
    Json line = {{"prompt", "Once"}, {key, 1}};
    const Outcome written = prompts(good + "\n" + line.dump(), "-n 2");
    EXPECT_EQ(written.code, 1);
    EXPECT_TRUE(holds(written.err, std::string("line 2: key '") + key + "'"));
    const auto answers = json_lines(written.out);
    ASSERT_EQ(answers.size(), 2U);
    EXPECT_EQ(answers[0].at("id"), "a");
    EXPECT_EQ(answers[0].at("tokens").size(), 2U);
    EXPECT_TRUE(holds(answers[1].at("error").get<std::string>(), key));
    line["continuation"] = " upon";
    EXPECT_TRUE(holds(score(line.dump()).err, std::string("line 1: key '") + key + "'"));
  }
}

TEST_F(JsonLineProgram, FirstTokensAndTokensFiles) {
  const std::string model = " -m " + model_.string() + " ";
  const Json all = json_of(run_lariat("tokenize --json" + model + "--text 'Once upon a time, there'"));
  const Json some =
      json_of(run_lariat("tokenize --json --first-tokens 4" + model + "--text 'Once upon a time, there'"));
  EXPECT_EQ(some.at("tokens"),
            Json(std::vector<int>(all.at("tokens").begin(), all.at("tokens").begin() + 4)));
  EXPECT_EQ(json_of(generate("Once upon a time, there", "--json -n 5 --first-tokens 5")).at("tokens"),
            json_of(generate("Once upon a time", "--json -n 5")).at("tokens"));
  const std::string ids = some.at("tokens").dump();
  put("ids", ids.substr(1, ids.size() - 2));
  EXPECT_EQ(run_lariat("detokenize" + model + "--tokens-file " + (dir_ / "ids").string()).out,
            "Once upon a\n");
  EXPECT_EQ(run_lariat("detokenize" + model + "--tokens-file -", dir_ / "ids").out, "Once upon a\n");
}

}  // namespace
}  // namespace lariat::test
