// lariat chat as a person uses it on a terminal and a script in a pipe.
#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "models/text/unicode.h"
#include "tests/tools/chat_program.h"

namespace lariat::test {
namespace {

TEST_F(ChatProgram, ThreeTurnsOnATerminalAndOneInterrupted) {
  make_endless();
  const std::string more = "-n 600 --rope-scaling yarn --rope-factor 8";
  Terminal terminal(chat({"-n", "600", "--rope-scaling", "yarn", "--rope-factor", "8"}));
  EXPECT_TRUE(holds(terminal.until("> "), "/help"));

  const std::string first = terminal.say("Once upon a time");
  EXPECT_EQ(first, generate(rendered({"Once upon a time"}, ""), more).out);
  EXPECT_GT(first.size(), 1000U);

  terminal.type("And then?\n");
  terminal.until("And then?\n");
  const std::string beginning = terminal.until(" ");  // the answer has begun
  terminal.interrupt();
  std::string second = beginning + " " + terminal.until("^C");  // as the terminal shows the key
  second += terminal.until("\nlariat: stopped; what was said stays\n> ");
  const std::string context = terminal.say("/context");
  EXPECT_TRUE(holds(context, "4 messages"));

  const std::string third = terminal.say("Why?");
  const std::string all =
      rendered({"Once upon a time", first.substr(0, first.size() - 1), "And then?", second, "Why?"}, "");
  const std::string expected = generate(all, more).out;
  EXPECT_LT(second.size(), expected.size());
  EXPECT_EQ(third, expected);

  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_TRUE(terminal.restored());
  EXPECT_FALSE(holds(terminal.rest(), "Once"));
}

TEST_F(ChatProgram, CtrlCAtThePromptClearsTheLine) {
  Terminal terminal(chat({"-n", "8"}));
  terminal.until("> ");
  terminal.type("half a line\x03");
  EXPECT_TRUE(holds(terminal.until("\n> "), "Ctrl-D or /exit ends"));
  const std::string answer = terminal.say("Hello");
  EXPECT_EQ(answer, generate(rendered({"Hello"}), "-n 8").out);
  EXPECT_TRUE(holds(terminal.say("/context"), "2 messages"));
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
    EXPECT_TRUE(holds(pipe("/context\n", "--load-cache " + (dir_ / "at-prompt").string()).err, "0 messages"))
        << "nothing was said";
  }
  {
    Terminal terminal(chat({}));
    terminal.until("> ");
    terminal.type("\x1c");  // SIGQUIT
    EXPECT_EQ(terminal.wait(), 0);
    EXPECT_TRUE(terminal.restored());
  }
  Terminal terminal(chat({"--ctx", "100000", "--save-cache", (dir_ / "in-answer").string()}));
  terminal.until("> ");
  terminal.type("Once\n");
  terminal.until("Once\n");
  terminal.until(" ");
  terminal.signal(SIGHUP);
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_TRUE(terminal.restored());
  const Outcome later = pipe("/context\n", "--ctx 100000 --load-cache " + (dir_ / "in-answer").string());
  EXPECT_TRUE(holds(later.err, "2 messages")) << "what was said is kept: " << later.err;
}

TEST_F(ChatProgram, CtrlCBeforeTheAnswerForgetsTheMessage) {
  Terminal terminal(chat({"-n", "8", "--prefill-chunk", "1"}));
  terminal.until("> ");
  std::string message;
  while (message.size() < 600) message += "zyx ";
  terminal.type("\"\"\"" + message + "\"\"\"\nand this\nand that\n");  // as if pasted
  terminal.until("reading");
  terminal.interrupt();
  terminal.until("stopped before the answer began; the message is forgotten\n> ");
  EXPECT_TRUE(holds(terminal.say("/context"), "0 messages"));
  EXPECT_EQ(terminal.say("/stats"), "no answer yet\n") << "the lines after it are forgotten, too";
  const std::string answer = terminal.say("Hello");
  EXPECT_TRUE(holds(answer, generate(rendered({"Hello"}), "-n 8").out));
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(ChatProgram, CtrlDWhileAnAnswerIsWrittenEndsTheConversation) {
  make_endless();
  Terminal terminal(chat({"-n", "300"}));
  terminal.until("> ");
  terminal.type("Once\n");
  terminal.until("Once\n");
  terminal.until(" ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(ChatProgram, ASecondSignalEndsACommand) {
  ASSERT_EQ(mkfifo((dir_ / "fifo").c_str(), 0600), 0);  // nobody reads it
  Terminal terminal(chat({"-n", "4"}));
  terminal.until("> ");
  terminal.type("/save " + (dir_ / "fifo").string() + "\n");
  terminal.until("fifo\n");
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    terminal.signal(SIGTERM);
  }
  EXPECT_EQ(terminal.wait(), 128 + SIGTERM);
  EXPECT_TRUE(terminal.restored());
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
  EXPECT_TRUE(holds(terminal.say("/stats"), "written            12 tokens"));
  EXPECT_TRUE(holds(terminal.say("/save " + file), file));
  const std::string second = terminal.say("And then?");
  const std::string context = terminal.say("/context");
  EXPECT_TRUE(holds(context, "5 messages\ntrained context  64 tokens\n"));
  EXPECT_TRUE(holds(context, "scaling          dynamic-yarn\nscale            1."));
  EXPECT_FALSE(holds(context, "re-rotations     0"));
  EXPECT_EQ(terminal.say("/reset"), "");
  EXPECT_TRUE(holds(terminal.say("/context"), "0 tokens, 1 message"));
  EXPECT_TRUE(holds(terminal.say("/load " + file), "3 messages"));
  EXPECT_EQ(terminal.say("And then?"), second);
  EXPECT_EQ(terminal.say("/nonsense"),
            "lariat: error: there is no command /nonsense; /help lists them, a space before it makes it a "
            "message\n");
  const std::string missing = terminal.say("/load /no/such/file");
  EXPECT_EQ(missing.rfind("lariat: error: /no/such/file", 0), 0U) << missing;
  EXPECT_EQ(terminal.say("/save"), "lariat: error: /save needs the name of a file\n");
  terminal.type("caf\xE9 au lait\n");
  EXPECT_TRUE(holds(terminal.until("> "), "the message holds U+FFFD, as bytes that are not UTF-8 are read"));
  EXPECT_TRUE(holds(terminal.say("/help"), "/system TEXT"));
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(ChatProgram, AFullContextAndTheWayOn) {
  make_endless();
  Terminal terminal(chat({}));
  terminal.until("> ");
  const std::string answer = terminal.say("Once upon a time");
  EXPECT_TRUE(holds(answer, "lariat: the context of 512 tokens is full; /reset"));
  EXPECT_TRUE(holds(answer, "--rope-scaling dynamic-yarn"));
  const std::string refused = terminal.say("More");
  EXPECT_EQ(refused.rfind("lariat: error: the sequence would have", 0), 0U) << refused;
  EXPECT_TRUE(holds(refused, "the context allows 512; shorten the prompt or raise --ctx; /reset forgets"));
  EXPECT_TRUE(holds(terminal.say("/context"), "2 messages")) << "it is kept";
  terminal.say("/reset");
  const std::string again = terminal.say("Once upon a time");
  EXPECT_EQ(again.substr(0, 300), answer.substr(0, 300));
  EXPECT_FALSE(holds(again, "dynamic-yarn")) << "proposed once";
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
  const Outcome windows = pipe("Once upon a time\r\n\r\nAnd then?\r\n/etc/passwd\r\nthe last\r", "-n 10");
  EXPECT_EQ(windows.out, expected);
}

// Messages that came before the byte are answered, and what was said is put away.
TEST_F(ChatProgram, AByteThatIsNotUtf8EndsAPipe) {
  const std::string file = (dir_ / "context").string(), far(5000, ' ');
  const Outcome outcome = pipe("Hello\n" + far + "caf\xE9\n", "-n 5 --save-cache " + file);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(holds(outcome.err, "standard input: byte 5009 is not UTF-8; convert the text"));
  EXPECT_EQ(outcome.out, pipe("Hello\n", "-n 5").out);
  EXPECT_TRUE(holds(pipe("/context\n", "--load-cache " + file).err, "2 messages"));
}

TEST_F(ChatProgram, MessagesOfSeveralLinesInAPipe) {
  const auto answers = [&](std::vector<std::string> said) {
    std::vector<std::string> messages;
    std::string all;
    for (std::string& message : said) {
      messages.push_back(std::move(message));
      const std::string answer = generate(rendered(messages), "-n 6").out;
      all += answer;
      messages.push_back(answer.substr(0, answer.size() - 1));
    }
    return all;
  };
  const Outcome outcome = pipe("one\\\ntwo\\\n\nthree\n\"\"\"\n/reset\n\ngrün\n\"\"\"\nlast\\", "-n 6");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, answers({"one\ntwo\n", "three", "/reset\n\ngrün", "last"}));
  EXPECT_EQ(pipe("one\\\r\ntwo\r\n", "-n 6").out, answers({"one\ntwo"}));
  EXPECT_EQ(pipe("\"\"\"/exit\"\"\"\n", "-n 6").out, answers({"/exit"}));
  expect_error(pipe("\"\"\"one\ntwo\n", "-n 6"), 1,
               R"(standard input: the message that """ begins has no end; put """ behind it)");
}

TEST_F(ChatProgram, VariablesOfTheTemplate) {
  put("model/chat_template.jinja", replace_all(slurp(model_ / "chat_template.jinja"), "{{ bos_token }}",
                                               "{{ bos_token }}{% if enable_thinking is false %}<none>{% "
                                               "endif %}{{ 'deep' if effort == 'high' }}"));
  const Outcome outcome =
      pipe("Hello\n", "-n 6 --template-var enable_thinking=false --template-var effort=high");
  EXPECT_EQ(outcome.out, generate("<none>deep" + rendered({"Hello"}), "-n 6").out);
  const std::string chat = "--chat -n 6 ";
  EXPECT_EQ(generate("Hello", chat + "--template-var effort=high --template-var enable_thinking=0").out,
            generate("deep" + rendered({"Hello"}), "-n 6").out);
  expect_error(generate("Hello", "--template-var effort=high"), 2,
               "--template-var is for a chat template; add --chat");
  expect_error(generate("Hello", chat + "--template-var effort"), 2, "expected NAME=VALUE");
  for (const char* name : {"messages", "add_generation_prompt", "bos_token", "pad_token", "tools"})
    expect_error(generate("Hello", chat + "--template-var " + name + "=1"), 2, "use another name");
  expect_error(run_lariat("passkey -m x --template-var a=1"), 2, "--chat");
  expect_error(run_lariat("tokenize -m x --text a --template-var a=1"), 2, "--messages");
}

// Whatever ends it, what was said is put away.
TEST_F(ChatProgram, AnErrorInAPipeKeepsTheConversation) {
  const std::string file = (dir_ / "context").string();
  const Outcome outcome = pipe("Hello\n/nonsense\nAnd then?\n", "-n 5 --save-cache " + file);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(holds(outcome.err, "there is no command /nonsense"));
  EXPECT_TRUE(holds(pipe("/context\n", "--load-cache " + file).err, "2 messages"));
}

TEST_F(ChatProgram, AnInterruptedPipeHasFailed) {
  make_endless();
  const std::string file = (dir_ / "context").string(), out = (dir_ / "out").string(),
                    err = (dir_ / "err").string();
  put("input", "Once upon a time\nAnd then?\n");
  std::string line;
  for (const std::string& word : chat({"--ctx", "1000000", "--save-cache", file})) line += " " + word;
  // The answer has no end, so it is under way once some of it is there.
  const std::string script = std::string(LARIAT_PROGRAM) + line + " <" + (dir_ / "input").string() + " >" +
                             out + " 2>" + err + " & while [ ! -s " + out +
                             " ]; do sleep 0.1; done; kill -TERM $!; wait $!";
  const int status = std::system(script.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  // Before it may stand that the answer has outgrown the model, which a quick machine reaches first.
  EXPECT_TRUE(
      slurp(err).ends_with("lariat: error: interrupted after 1 answer; start again with the "
                           "turns that remain\n"));
  EXPECT_TRUE(holds(pipe("/context\n", "--ctx 1000000 --load-cache " + file).err, "2 messages"));
}

TEST_F(ChatProgram, AContextWithoutMessagesGoesOn) {
  const std::string file = (dir_ / "context").string(), load = "-n 6 --load-cache " + file;
  const Outcome expected = pipe("Hello\n", "-n 6");
  for (const char* nothing : {"", "Hello\n/reset\n"}) {
    EXPECT_EQ(pipe(nothing, "-n 6 --save-cache " + file).code, 0);
    EXPECT_EQ(pipe("Hello\n", load).out, expected.out);
  }
  ASSERT_EQ(generate("Once upon a time", "-n 0 --save-cache " + file).code, 0);
  const Outcome behind = pipe("Hello\n", load);
  EXPECT_EQ(pipe("", load + " --save-cache " + file).code, 0);
  const Outcome again = pipe("Hello\n", load);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, behind.out);
}

TEST_F(ChatProgram, AMessageLongerThanTheTrainedContext) {
  std::string message;
  while (message.size() < 4000) message += "zyx ";
  expect_error(pipe(message + "\n", ""), 1,
               "raise --ctx; --rope-scaling dynamic-yarn goes beyond the 512 tokens");
}

TEST_F(ChatProgram, CommandsAndMistakesInAPipe) {
  const Outcome outcome = pipe("/system Be brief.\nHello\n/context\n", "-n 5 --json");
  const Json json = json_of(outcome);
  EXPECT_EQ(json.at("tokens").size(), 5U);
  EXPECT_EQ(json.at("reused_tokens"), 0);
  for (const char* key : {"prefill_s", "prefill_tok_s", "decode_s", "decode_tok_s"})
    EXPECT_GT(json.at("timings").at(key), 0) << key;
  EXPECT_TRUE(holds(outcome.err, "3 messages"));
  // Questions that have nothing to do with each other.
  EXPECT_EQ(pipe("Hello\n/reset\nOnce\n/reset\nHello\n", "-n 5").out,
            pipe("Hello\n", "-n 5").out + pipe("Once\n", "-n 5").out + pipe("Hello\n", "-n 5").out);
  expect_error(pipe("/nonsense\nHello\n", ""), 1, "there is no command /nonsense");
  expect_error(pipe("/load /no/such/file\nHello\n", ""), 1, "/no/such/file");
  expect_error(pipe("Hello\n", "--ctx 4"), 1, "the context allows 4");
  EXPECT_EQ(pipe("", "").code, 0);
  fs::remove(model_ / "chat_template.jinja");
  expect_error(pipe("Hello\n", ""), 1, "there is no chat template");
}

}  // namespace
}  // namespace lariat::test
