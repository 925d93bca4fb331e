// lariat generate: messages, contexts that were put away, and prompts.
#include "tests/tools/chat_program.h"

namespace lariat::test {
namespace {

TEST_F(ChatProgram, AConversationGoesOnInAnotherRun) {
  const std::string file = (dir_ / "context").string();
  const Outcome whole = pipe("Once upon a time\nAnd then?\n", "-n 10 --system Brief.");
  const Outcome first = pipe("Once upon a time\n", "-n 10 --system Brief. --save-cache " + file);
  EXPECT_EQ(first.code, 0) << first.err;
  const Outcome second = pipe("And then?\n", "-n 10 --load-cache " + file);
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.out + second.out, whole.out);
  // and in generate
  EXPECT_EQ(first.out + generate("And then?", "-n 10 --chat --load-cache " + file).out, whole.out);
}

TEST_F(ChatProgram, GenerateAnswersAMessage) {
  const Json a = json_of(generate("Hello \"you\"", "--chat -n 20 --json"));
  const Json b = json_of(generate(rendered({"Hello \"you\""}), "--raw -n 20 --json"));
  EXPECT_EQ(a.at("tokens"), b.at("tokens"));
  EXPECT_EQ(a.at("prompt_tokens"), b.at("prompt_tokens")) << "one BOS in both";
  const std::string model = "generate -m " + model_.string() + " ";
  expect_error(run_lariat(model + "-p x --chat --raw"), 2, "--raw");
  expect_error(run_lariat(model + "-p x --raw --system y"), 2, "--raw");
  expect_error(run_lariat(model + "--chat"), 2, "--prompt");
  expect_error(run_lariat(model), 2, "--prompt");
  fs::remove(model_ / "chat_template.jinja");
  expect_error(run_lariat(model + "-p x --chat"), 1, "there is no chat template");
}

TEST_F(ChatProgram, AnAnswerEndsWithTheTurn) {
  // The model's own end-of-text token is another, so only the template tells.
  make_endless();
  put("model/chat_template.jinja", kTemplate);
  const Json json = json_of(generate("What is the pass key?", "--chat -n 400 --json"));
  EXPECT_EQ(json.at("stop_reason"), "eos");
  EXPECT_LT(json.at("tokens").size(), 400U);
}

TEST_F(ChatProgram, GenerateGoesOnFromAContext) {
  const std::string file = (dir_ / "context").string();
  const std::string whole = generate("Once upon a time", "-n 60").out;
  const std::string first = generate("Once upon a time", "-n 25 --save-cache " + file).out;
  std::string line = "generate --quiet -m " + model_.string() + " -n 35 --load-cache " + file;
  for (const std::string& word : words({})) line += " " + word;
  EXPECT_EQ(first.substr(0, first.size() - 1) + run_lariat(line).out, whole);
  // A prompt stands behind it, without a BOS.
  const Json more = json_of(run_lariat(line + " --json -p 'and then'"));
  const Json tokens =
      json_of(run_lariat("tokenize --json --no-bos --model " + model_.string() + " --text 'and then'"));
  EXPECT_EQ(more.at("prompt_tokens"), tokens.at("tokens").size());
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
  expect_error(run_lariat(model + "--escape -p 'a\xff'"), 2, "--prompt: the text: byte 1 is not UTF-8");
  expect_error(run_lariat(model + R"(--escape -p 'a\q')"), 2, "--escape");
  expect_error(run_lariat(model + R"(--escape -p 'a\')"), 2, "--escape");
  put("input", "A \"b\"\n\tcé\\");
  EXPECT_EQ(run_lariat(model + "--prompt-file -", dir_ / "input").out, expected);
  // A script has begun to read the file: the rest of it is the prompt.
  put("input", "a line\nA \"b\"\n\tcé\\");
  const std::string script = "{ read -r line; " + std::string(LARIAT_PROGRAM) + " " + model +
                             "--prompt-file -; } <" + (dir_ / "input").string() + " >" +
                             (dir_ / "out").string();
  EXPECT_EQ(std::system(script.c_str()), 0);
  EXPECT_EQ(slurp(dir_ / "out"), expected);
  expect_error(run_lariat(model + "--prompt-file -"), 1, "standard input: the prompt file is empty");
}

}  // namespace
}  // namespace lariat::test
