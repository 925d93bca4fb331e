// lariat chat as a person uses it on a terminal and a script in a pipe, and what generate has of it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/tools/terminal.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}{{ eos_token }}\n{% endfor "
    "%}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";

// What kTemplate makes of messages (the last one is the user's), without its BOS.
std::string rendered(const std::vector<std::string>& messages, const std::string& end = "</s>") {
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i)
    text += (i % 2 == 0 ? "<|user|>\n" : "<|assistant|>\n") + messages[i] + end + "\n";
  return text + "<|assistant|>\n";
}

class ChatProgram : public testing::Test {
 protected:
  ChatProgram()
      : dir_(fs::path(testing::TempDir()) / fmt::format("lariat-chat-{}", getpid())), model_(dir_ / "model") {
    fs::remove_all(dir_);
    fs::create_directories(model_);
    for (const auto& entry : fs::directory_iterator(fs::path(LARIAT_SOURCE_DIR) / "configs" / "demo"))
      fs::create_symlink(entry.path(), model_ / entry.path().filename());
    write(model_ / "chat_template.jinja", kTemplate);
  }
  ~ChatProgram() override { fs::remove_all(dir_); }

  static void write(const fs::path& file, const std::string& text) {
    fs::remove(file);
    std::ofstream(file, std::ios::binary) << text;
  }
  // From now on no answer ends by itself: nothing that the model writes is an end of the text or of a turn.
  void make_endless() const {
    write(model_ / "chat_template.jinja",
          "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}\n{% endfor %}"
          "{% if add_generation_prompt %}<|assistant|>\n{% endif %}");
    nlohmann::json config = nlohmann::json::parse(slurp(model_ / "config.json"));
    config["eos_token_id"] = 0;
    write(model_ / "config.json", config.dump());
    write(model_ / "generation_config.json", R"({"bos_token_id": 1, "eos_token_id": 0})");
  }
  static std::vector<std::string> words(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--device", "cpu", "--threads",  "1",
                                    "--dtype",  "f32", "--kv-dtype", "f32"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> chat(const std::vector<std::string>& more) const {
    std::vector<std::string> all = words(more);
    all.insert(all.begin(), {"chat", "-m", model_.string()});
    return all;
  }
  Outcome pipe(const std::string& input, const std::string& more) const {
    write(dir_ / "input", input);
    std::string line;
    for (const std::string& word : chat({})) line += word + " ";
    return run_lariat(line + more, dir_ / "input");
  }
  Outcome generate(const std::string& prompt, const std::string& more) const {
    write(dir_ / "prompt", prompt);
    std::string line =
        "generate -m " + model_.string() + " --quiet --prompt-file " + (dir_ / "prompt").string();
    for (const std::string& word : words({})) line += " " + word;
    return run_lariat(line + " " + more);
  }

  fs::path dir_, model_;
};

TEST_F(ChatProgram, ThreeTurnsOnATerminalAndOneInterrupted) {
  make_endless();
  const std::string more = "-n 600 --rope-scaling yarn --rope-factor 8";
  Terminal terminal(chat({"-n", "600", "--rope-scaling", "yarn", "--rope-factor", "8"}));
  EXPECT_NE(terminal.until("> ").find("/help"), std::string::npos);

  const std::string first = terminal.say("Once upon a time");
  EXPECT_EQ(first, generate(rendered({"Once upon a time"}, ""), more).out);
  EXPECT_GT(first.size(), 1000U);

  terminal.type("And then?\n");
  terminal.until("And then?\n");
  const std::string beginning = terminal.until(" ");  // the answer has begun
  terminal.type("\x03");
  std::string second = beginning + " " + terminal.until("^C");  // as the terminal shows the key
  second += terminal.until("\nlariat: stopped; what was said stays\n> ");
  const std::string context = terminal.say("/context");
  EXPECT_NE(context.find("4 messages"), std::string::npos) << context;

  const std::string third = terminal.say("Why?");
  const std::string all =
      rendered({"Once upon a time", first.substr(0, first.size() - 1), "And then?", second, "Why?"}, "");
  const std::string expected = generate(all, more).out;
  EXPECT_LT(second.size(), expected.size());
  EXPECT_EQ(third, expected);

  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_TRUE(terminal.restored());
  EXPECT_EQ(terminal.rest().find("Once"), std::string::npos) << terminal.rest();
}

TEST_F(ChatProgram, CtrlCAtThePromptClearsTheLine) {
  Terminal terminal(chat({"-n", "8"}));
  terminal.until("> ");
  terminal.type("half a line\x03");
  EXPECT_NE(terminal.until("\n> ").find("Ctrl-D or /exit ends"), std::string::npos);
  const std::string answer = terminal.say("Hello");
  EXPECT_EQ(answer, generate(rendered({"Hello"}), "-n 8").out);
  EXPECT_NE(terminal.say("/context").find("2 messages"), std::string::npos);
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_TRUE(terminal.restored());
}

TEST_F(ChatProgram, ASignalEndsItAndGivesTheTerminalBack) {
  make_endless();
  {
    Terminal terminal(chat({"--save-cache", (dir_ / "at-prompt").string()}));
    terminal.until("> ");
    terminal.type("half a line");
    terminal.until("half a line");
    EXPECT_FALSE(terminal.restored()) << "while a line is edited";
    terminal.signal(SIGTERM);
    EXPECT_EQ(terminal.wait(), 0);
    EXPECT_TRUE(terminal.restored());
    EXPECT_TRUE(fs::exists(dir_ / "at-prompt"));
  }
  Terminal terminal(chat({"--ctx", "100000", "--save-cache", (dir_ / "in-answer").string()}));
  terminal.until("> ");
  terminal.type("Once\n");
  terminal.until("Once\n");
  terminal.until(" ");
  terminal.signal(SIGHUP);
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_TRUE(terminal.restored());
  EXPECT_TRUE(fs::exists(dir_ / "in-answer")) << "what was said is kept";
}

TEST_F(ChatProgram, MessagesOfSeveralLines) {
  Terminal terminal(chat({"-n", "6"}));
  terminal.until("> ");
  terminal.type("one\\\n");
  terminal.until("... ");
  EXPECT_EQ(terminal.say("two"), generate(rendered({"one\ntwo"}), "-n 6").out);
  terminal.say("/reset");
  terminal.type("\"\"\"\n");
  terminal.until("... ");
  terminal.type("/reset\n");
  terminal.until("... ");
  terminal.type("\n");
  terminal.until("... ");
  EXPECT_EQ(terminal.say("grün\"\"\""), generate(rendered({"/reset\n\ngrün"}), "-n 6").out);
  terminal.type("\"\"\"never ended\n");
  terminal.until("... ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(ChatProgram, CommandsOnATerminal) {
  const std::string file = (dir_ / "a conversation").string();
  Terminal terminal(chat({"-n", "12", "--rope-scaling", "dynamic-yarn", "--rope-original-ctx", "64"}));
  terminal.until("> ");
  EXPECT_EQ(terminal.say("/stats"), "no answer yet\n");
  EXPECT_EQ(terminal.say("/system Be brief."), "");
  const std::string first = terminal.say("Once upon a time");
  EXPECT_NE(terminal.say("/stats").find("written            12 tokens"), std::string::npos);
  EXPECT_NE(terminal.say("/save " + file).find(file), std::string::npos);
  const std::string second = terminal.say("And then?");
  const std::string context = terminal.say("/context");
  EXPECT_NE(context.find("5 messages\ntrained context  64 tokens\n"), std::string::npos) << context;
  EXPECT_NE(context.find("scaling          dynamic-yarn\nscale            1."), std::string::npos) << context;
  EXPECT_EQ(context.find("re-rotations     0"), std::string::npos) << context;
  EXPECT_NE(terminal.say("/reset"), first);
  EXPECT_NE(terminal.say("/context").find("0 tokens, 1 messages"), std::string::npos);
  EXPECT_NE(terminal.say("/load " + file).find("3 messages"), std::string::npos);
  EXPECT_EQ(terminal.say("And then?"), second);
  EXPECT_EQ(terminal.say("/nonsense"),
            "lariat: error: there is no command /nonsense; /help lists them, a space before it makes it a "
            "message\n");
  const std::string missing = terminal.say("/load /no/such/file");
  EXPECT_EQ(missing.rfind("lariat: error: /no/such/file", 0), 0U) << missing;
  EXPECT_EQ(terminal.say("/save"), "lariat: error: /save needs the name of a file\n");
  EXPECT_NE(terminal.say("/help").find("/system TEXT"), std::string::npos);
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(ChatProgram, AFullContextAndTheWayOn) {
  make_endless();
  Terminal terminal(chat({}));
  terminal.until("> ");
  const std::string answer = terminal.say("Once upon a time");
  EXPECT_NE(answer.find("lariat: the context of 512 tokens is full; /reset"), std::string::npos) << answer;
  EXPECT_NE(answer.find("--rope-scaling dynamic-yarn"), std::string::npos) << answer;
  const std::string refused = terminal.say("More");
  EXPECT_EQ(refused.rfind("lariat: error: the sequence would have", 0), 0U) << refused;
  EXPECT_NE(refused.find("the context allows 512; /reset forgets the conversation"), std::string::npos);
  EXPECT_NE(terminal.say("/context").find("2 messages"), std::string::npos) << "it is kept";
  terminal.say("/reset");
  const std::string again = terminal.say("Once upon a time");
  EXPECT_EQ(again.substr(0, 300), answer.substr(0, 300));
  EXPECT_EQ(again.find("dynamic-yarn"), std::string::npos) << "proposed once";
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(ChatProgram, OneTurnPerLineInAPipe) {
  const Outcome outcome = pipe("Once upon a time\n\nAnd then?\n/etc/passwd\nthe last", "-n 10");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::vector<std::string> messages;
  std::string expected;
  for (const char* message : {"Once upon a time", "And then?", "/etc/passwd", "the last"}) {
    messages.emplace_back(message);
    const std::string answer = generate(rendered(messages), "-n 10").out;
    expected += answer;
    messages.push_back(answer.substr(0, answer.size() - 1));
  }
  EXPECT_EQ(outcome.out, expected);
}

TEST_F(ChatProgram, CommandsAndMistakesInAPipe) {
  const Outcome outcome = pipe("/system Be brief.\nHello\n/context\n", "-n 5 --json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("tokens").size(), 5U);
  EXPECT_EQ(json.at("reused_tokens"), 0);
  EXPECT_NE(outcome.err.find("3 messages"), std::string::npos) << outcome.err;
  expect_error(pipe("/nonsense\nHello\n", ""), 1, "there is no command /nonsense");
  expect_error(pipe("/load /no/such/file\nHello\n", ""), 1, "/no/such/file");
  expect_error(pipe("Hello\n", "--ctx 4"), 1, "the context allows 4");
  EXPECT_EQ(pipe("", "").code, 0);
  fs::remove(model_ / "chat_template.jinja");
  expect_error(pipe("Hello\n", ""), 1, "there is no chat template");
}

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
  const Outcome chat = generate("Hello \"you\"", "--chat -n 20 --json");
  const Outcome raw = generate(rendered({"Hello \"you\""}), "--raw -n 20 --json");
  ASSERT_EQ(chat.code, 0) << chat.err;
  const auto a = nlohmann::json::parse(chat.out), b = nlohmann::json::parse(raw.out);
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
  write(model_ / "chat_template.jinja", kTemplate);
  const auto json = nlohmann::json::parse(generate("What is the pass key?", "--chat -n 400 --json").out);
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
  const Outcome more = run_lariat(line + " --json -p 'and then'");
  ASSERT_EQ(more.code, 0) << more.err;
  const Outcome tokens =
      run_lariat("tokenize --json --no-bos --model " + model_.string() + " --text 'and then'");
  EXPECT_EQ(nlohmann::json::parse(more.out).at("prompt_tokens"),
            nlohmann::json::parse(tokens.out).at("tokens").size());
}

TEST_F(ChatProgram, PromptsWithEscapesAndFromStdin) {
  const std::string model = "generate --quiet -n 8 -m " + model_.string() + " ";
  const std::string expected = run_lariat(model + "-p 'A \"b\"\n\tcé\\'").out;
  EXPECT_EQ(run_lariat(model + R"(--escape -p 'A "b"\n\tc\u00e9\\')").out, expected);
  expect_error(run_lariat(model + R"(--escape -p 'a\q')"), 2, "--escape");
  expect_error(run_lariat(model + R"(--escape -p 'a\')"), 2, "--escape");
  write(dir_ / "input", "A \"b\"\n\tcé\\");
  EXPECT_EQ(run_lariat(model + "--prompt-file -", dir_ / "input").out, expected);
  expect_error(run_lariat(model + "--prompt-file -"), 1, "standard input: the prompt file is empty");
}

}  // namespace
}  // namespace lariat::test
