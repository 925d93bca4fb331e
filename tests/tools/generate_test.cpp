#include <fmt/ranges.h>

#include "tests/tools/chat_program.h"

namespace lariat::test {
namespace {

TEST_F(ChatProgram, AConversationContinuesInAnotherRun) {
  const std::string file = (dir_ / "context").string();
  const Outcome whole = pipe("Once upon a time\nAnd then?\n", "-n 10 --system Brief.");
  const Outcome first = pipe("Once upon a time\n", "-n 10 --system Brief. --save-cache " + file);
  EXPECT_EQ(first.code, 0) << first.err;
  const Outcome second = pipe("And then?\n", "-n 10 --load-cache " + file);
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.out + second.out, whole.out);
  EXPECT_EQ(first.out + generate("And then?", "-n 10 --chat --load-cache " + file).out, whole.out);
}

TEST_F(ChatProgram, GenerateAnswersAMessage) {
  const Json a = json_of(generate("Hello \"you\"", "--chat -n 20 --json"));
  const Json b = json_of(generate(rendered({"Hello \"you\""}), "--raw -n 20 --json"));
  EXPECT_EQ(a.at("tokens"), b.at("tokens"));
  EXPECT_EQ(a.at("prompt_tokens"), b.at("prompt_tokens")) << "one BOS in both";
}

TEST_F(ChatProgram, AnAnswerEndsWithTheTurn) {
  // The model has another end token: only the template ends the turn.
  make_endless();
  put("model/chat_template.jinja", kTemplate);
  const Json json = json_of(generate("What is the pass key?", "--chat -n 400 --json"));
  EXPECT_EQ(json.at("stop_reason"), "eos");
  EXPECT_LT(json.at("tokens").size(), 400U);
}

TEST_F(ChatProgram, GenerateContinuesAContext) {
  const std::string file = (dir_ / "context").string();
  const std::string whole = generate("Once upon a time", "-n 60").out;
  const std::string first = generate("Once upon a time", "-n 25 --save-cache " + file).out;
  std::string line = "generate --quiet -m " + model_.string() + " -n 35 --load-cache " + file;
  for (const std::string& word : words({})) line += " " + word;
  EXPECT_EQ(first.substr(0, first.size() - 1) + run_lariat(line).out, whole);
  // A prompt follows without BOS.
  const Json more = json_of(run_lariat(line + " --json -p 'and then'"));
  const Json tokens =
      json_of(run_lariat("tokenize --json --no-bos --model " + model_.string() + " --text 'and then'"));
  EXPECT_EQ(more.at("prompt_tokens"), tokens.at("tokens").size());
}

// A text may also end at a full context or as a chat answer.
TEST_F(ChatProgram, ATextContinuesAfterItsLastToken) {
  const std::string file = (dir_ / "context").string();
  const auto tokens = [&](const std::string& prompt, const std::string& more) {
    return json_of(generate(prompt, "--json --ignore-eos " + more))["tokens"];
  };
  const auto rest = [&](const std::string& more) {
    std::string line = "generate --quiet --json --ignore-eos -m " + model_.string() + " --load-cache " + file;
    for (const std::string& word : words({})) line += " " + word;
    return json_of(run_lariat(line + " " + more));
  };
  const Json whole = tokens("Once upon a time", "-n 20");
  for (const char* end : {"--ctx 10", "--ctx 5", "-n 6", "-n 1", "--stop little"}) {
    SCOPED_TRACE(end);
    Json all = tokens("Once upon a time", std::string(end) + " --save-cache " + file);
    const Json more = rest(fmt::format("-n {}", 20 - all.size()))["tokens"];
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(all, whole);
  }
  // A sampled text, and a text that is only saved again.
  Json sampled = tokens("Once upon a time", "--ctx 10 --temperature 2 --seed 4 --save-cache " + file);
  ASSERT_EQ(sampled.size(), 6U);
  EXPECT_EQ(rest("-n 0 --save-cache " + file)["tokens"], Json::array());
  const std::string text = run_lariat("detokenize -m " + model_.string() + " --tokens " +
                                      fmt::format("{}", fmt::join(sampled.get<std::vector<int>>(), ",")))
                               .out;
  const Json typed = tokens("Once upon a time" + text.substr(0, text.size() - 1), "-n 8");
  EXPECT_EQ(rest("-n 8")["tokens"], typed);
  // The context is full.
  generate("Once upon a time", "--ctx 10 --save-cache " + file);
  expect_error(run_lariat("generate -n 3 --ctx 10 --kv-dtype f32 --dtype f32 -m " + model_.string() +
                          " --load-cache " + file),
               1, "11 | 10 | --ctx");
  const std::string other = (dir_ / "other").string();
  generate("Once upon a time", "-n 6 --save-cache " + other);
  const auto scored = [&](const std::string& context) {
    return json_of(run_lariat("perplexity --json --kv-dtype f32 --dtype f32 --max-tokens 30 -m " +
                              model_.string() + " -f " + (kDemo / "heldout.txt").string() + " --load-cache " +
                              context));
  };
  EXPECT_EQ(scored(file)["results"][0]["tokens"], 30);
  EXPECT_EQ(scored(file), scored(other));
  make_endless();
  const Json answer = json_of(pipe("Once upon a time\n", "-n 6 --json --save-cache " + file));
  Json behind = tokens("<|user|>\nOnce upon a time\n<|assistant|>\n", "-n 12");
  EXPECT_EQ(rest("-n 6")["tokens"], Json(std::vector<Json>(behind.begin() + 6, behind.end())));
  EXPECT_EQ(answer["tokens"], Json(std::vector<Json>(behind.begin(), behind.begin() + 6)));
}

TEST_F(ChatProgram, NeverASecondBos) {
  const auto expect_same = [&](const std::string& text, const std::string& more) {
    const Json once = json_of(generate(text, more)), twice = json_of(generate("<s>" + text, more));
    for (const char* key : {"prompt_tokens", "tokens"}) EXPECT_EQ(once.at(key), twice.at(key)) << text;
  };
  expect_same("Once upon a time", "-n 10 --json");
  const std::string file = (dir_ / "context").string();
  ASSERT_EQ(generate("Once upon", "-n 0 --save-cache " + file).code, 0);
  expect_same("a time", "-n 10 --json --load-cache " + file);
}

TEST_F(ChatProgram, PromptsWithEscapesAndFromStdin) {
  const std::string model = "generate --quiet -n 8 -m " + model_.string() + " ";
  const std::string expected = run_lariat(model + "-p 'A \"b\"\n\tcé\\'").out;
  EXPECT_EQ(run_lariat(model + R"(--escape -p 'A "b"\n\tc\u00e9\\')").out, expected);
  put("input", "A \"b\"\n\tcé\\");
  EXPECT_EQ(run_lariat(model + "--prompt-file -", dir_ / "input").out, expected);
  // The script has read a line; the rest is the prompt.
  put("input", "a line\nA \"b\"\n\tcé\\");
  const std::string script = "{ read -r line; " + lariat_program() + " " + model + "--prompt-file -; } <" +
                             (dir_ / "input").string() + " >" + (dir_ / "out").string();
  EXPECT_EQ(std::system(script.c_str()), 0);
  EXPECT_EQ(slurp(dir_ / "out"), expected);
}

TEST_F(ChatProgram, GuessesChangeNoText) {
  const std::string prompt = "Tom had a red ball. Tom had a red ball. Tom had a red";
  for (const std::string more : {"-n 80", "-n 80 --chat --temperature 0.5 --seed 3", "-n 80 --stop ball"}) {
    const Json plain = json_of(generate(prompt, "--json " + more));
    const Json guessed = json_of(generate(prompt, "--json --lookup 7 " + more));
    EXPECT_EQ(guessed["tokens"], plain["tokens"]) << more;
    EXPECT_EQ(guessed["stop_reason"], plain["stop_reason"]) << more;
    EXPECT_FALSE(plain.contains("lookup"));
    EXPECT_GE(guessed["lookup"]["proposed"], guessed["lookup"]["accepted"]);
    EXPECT_GT(guessed["lookup"]["accepted"], 0) << more;
    const Json drafted = json_of(generate(prompt, "--json --draft " + model_.string() + " " + more));
    EXPECT_EQ(drafted["tokens"], plain["tokens"]) << more;
    EXPECT_GT(drafted["lookup"]["accepted"], 0) << more;
  }
  // The lines share the saved context's last page.
  const std::string file = (dir_ / "context").string();
  generate(prompt, "-n 0 --save-cache " + file);
  put("lines", "{\"prompt\": \" ball. Tom had\"}\n{\"prompt\": \" car. Tom had\"}\n");
  const auto lines = [&](const std::string& more) {
    const std::string run = "generate --quiet --logprobs 0 -n 60 -m " + model_.string() + " --load-cache " +
                            file + " --dtype f32 --kv-dtype f32 --prompts " + (dir_ / "lines").string() +
                            more;
    return run_lariat(run).out;
  };
  const std::string plain = lines(""), guessed = lines(" --lookup 7");
  const auto without_counts = [](std::string text) {
    for (size_t at = 0; (at = text.find(",\"lookup\":{")) != std::string::npos;)
      text.erase(at, text.find('}', at) + 1 - at);
    return text;
  };
  EXPECT_NE(guessed, plain);
  EXPECT_EQ(without_counts(guessed), plain);
}

}  // namespace
}  // namespace lariat::test
