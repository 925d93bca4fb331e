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
  EXPECT_TRUE(names(terminal.until("> "), "/help"));

  const std::string first = terminal.say("Once upon a time");
  EXPECT_EQ(first, generate(rendered({"Once upon a time"}, ""), more).out);
  EXPECT_GT(first.size(), 1000U);

  terminal.type("And then?\n");
  terminal.until("And then?\n");
  const std::string beginning = terminal.until(" ");  // the answer has begun
  terminal.interrupt();
  std::string second = beginning + " " + terminal.until("^C");  // as echoed
  second += terminal.until("\nlariat: ");
  terminal.until("\n> ");
  EXPECT_EQ(messages_of(terminal.say("/context")), 4);

  const std::string third = terminal.say("Why?");
  const std::string all =
      rendered({"Once upon a time", first.substr(0, first.size() - 1), "And then?", second, "Why?"}, "");
  const std::string expected = generate(all, more).out;
  EXPECT_LT(second.size(), expected.size());
  EXPECT_EQ(third, expected);

  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_TRUE(terminal.restored());
  EXPECT_FALSE(names(terminal.rest(), "Once"));
}

TEST_F(ChatProgram, CtrlCAtThePromptClearsTheLine) {
  Terminal terminal(chat({"-n", "8"}));
  terminal.until("> ");
  terminal.type("half a line\x03");
  EXPECT_TRUE(names(terminal.until("\n> "), "/exit"));
  const std::string answer = terminal.say("Hello");
  EXPECT_EQ(answer, generate(rendered({"Hello"}), "-n 8").out);
  EXPECT_EQ(messages_of(terminal.say("/context")), 2);
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_TRUE(terminal.restored());
}

TEST_F(ChatProgram, ASignalEndsItAndRestoresTheTerminal) {
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
    EXPECT_EQ(messages_of(pipe("/context\n", "--load-cache " + (dir_ / "at-prompt").string()).err), 0)
        << "nothing was printed";
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
  EXPECT_EQ(messages_of(later.err), 2) << "the conversation is saved: " << later.err;
}

TEST_F(ChatProgram, CtrlCBeforeTheAnswerDropsTheMessage) {
  Terminal terminal(chat({"-n", "8", "--prefill-chunk", "1"}));
  terminal.until("> ");
  std::string message;
  while (message.size() < 600) message += "zyx ";
  terminal.type("\"\"\"" + message + "\"\"\"\nand this\nand that\n");  // a pasted message
  terminal.until("%");
  terminal.interrupt();
  terminal.until("\n> ");
  EXPECT_EQ(messages_of(terminal.say("/context")), 0);
  EXPECT_EQ(terminal.say("/stats").find_first_of("123456789"), std::string::npos)
      << "the lines after it are dropped, too";
  const std::string answer = terminal.say("Hello");
  EXPECT_NE(answer.find(generate(rendered({"Hello"}), "-n 8").out), std::string::npos) << answer;
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(ChatProgram, CtrlDDuringAnAnswerEndsTheConversation) {
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
  ASSERT_EQ(mkfifo((dir_ / "fifo").c_str(), 0600), 0);  // no reader
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

TEST_F(ChatProgram, MultiLineMessages) {
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
  EXPECT_EQ(terminal.say("/stats").find_first_of("123456789"), std::string::npos);
  EXPECT_EQ(terminal.say("/system Be brief."), "");
  const std::string first = terminal.say("Once upon a time");
  EXPECT_TRUE(names(terminal.say("/stats"), "12"));
  EXPECT_TRUE(names(terminal.say("/save " + file), file));
  const std::string second = terminal.say("And then?");
  const std::string context = terminal.say("/context");
  EXPECT_EQ(messages_of(context), 5);
  EXPECT_TRUE(names(context, "64 | dynamic-yarn | 1"));
  EXPECT_EQ(context.find(" 0\n"), std::string::npos) << "its keys were re-rotated: " << context;
  EXPECT_EQ(terminal.say("/reset"), "");
  EXPECT_EQ(messages_of(terminal.say("/context")), 1);
  EXPECT_EQ(messages_of(terminal.say("/load " + file)), 3);
  EXPECT_EQ(terminal.say("And then?"), second);
  EXPECT_TRUE(names(terminal.say("/nonsense"), "lariat: error: | /nonsense | /help"));
  EXPECT_TRUE(names(terminal.say("/load /no/such/file"), "lariat: error: /no/such/file"));
  EXPECT_TRUE(names(terminal.say("/save"), "lariat: error: /save"));
  terminal.type("caf\xE9 au lait\n");
  EXPECT_TRUE(names(terminal.until("> "), "U+FFFD | UTF-8"));
  EXPECT_TRUE(names(terminal.say("/help"), "/system TEXT"));
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(ChatProgram, AFullContextNamesTheOptions) {
  make_endless();
  Terminal terminal(chat({}));
  terminal.until("> ");
  const std::string answer = terminal.say("Once upon a time");
  EXPECT_TRUE(names(answer, "lariat: | 512 | /reset | --rope-scaling dynamic-yarn"));
  EXPECT_TRUE(names(terminal.say("More"), "lariat: error: | 512 | --ctx | /reset"));
  EXPECT_EQ(messages_of(terminal.say("/context")), 2) << "it is kept";
  terminal.say("/reset");
  const std::string again = terminal.say("Once upon a time");
  EXPECT_EQ(again.substr(0, 300), answer.substr(0, 300));
  EXPECT_FALSE(names(again, "dynamic-yarn")) << "proposed once";
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

// Earlier messages are answered and saved.
TEST_F(ChatProgram, InvalidUtf8EndsAPipe) {
  const std::string file = (dir_ / "context").string(), far(5000, ' ');
  const Outcome outcome = pipe("Hello\n" + far + "caf\xE9\n", "-n 5 --save-cache " + file);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(names(outcome.err, "standard input | 5009 | UTF-8"));
  EXPECT_EQ(outcome.out, pipe("Hello\n", "-n 5").out);
  EXPECT_EQ(messages_of(pipe("/context\n", "--load-cache " + file).err), 2);
}

TEST_F(ChatProgram, MultiLineMessagesInAPipe) {
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
}

TEST_F(ChatProgram, TemplateVariables) {
  put("model/chat_template.jinja", replace_all(slurp(model_ / "chat_template.jinja"), "{{ bos_token }}",
                                               "{{ bos_token }}{% if enable_thinking is false %}<none>{% "
                                               "endif %}{{ 'deep' if effort == 'high' }}"));
  const Outcome outcome =
      pipe("Hello\n", "-n 6 --template-var enable_thinking=false --template-var effort=high");
  EXPECT_EQ(outcome.out, generate("<none>deep" + rendered({"Hello"}), "-n 6").out);
  const std::string chat = "--chat -n 6 ";
  EXPECT_EQ(generate("Hello", chat + "--template-var effort=high --template-var enable_thinking=0").out,
            generate("deep" + rendered({"Hello"}), "-n 6").out);
}

TEST_F(ChatProgram, AnErrorInAPipeKeepsTheConversation) {
  const std::string file = (dir_ / "context").string();
  const Outcome outcome = pipe("Hello\n/nonsense\nAnd then?\n", "-n 5 --save-cache " + file);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(names(outcome.err, "/nonsense"));
  EXPECT_EQ(messages_of(pipe("/context\n", "--load-cache " + file).err), 2);
}

TEST_F(ChatProgram, AnInterruptedPipeHasFailed) {
  make_endless();
  const std::string file = (dir_ / "context").string(), out = (dir_ / "out").string(),
                    err = (dir_ / "err").string();
  put("input", "Once upon a time\nAnd then?\n");
  std::string line;
  for (const std::string& word : chat({"--ctx", "1000000", "--save-cache", file})) line += " " + word;
  // Output means that an endless answer is running.
  const std::string script = lariat_program() + line + " <" + (dir_ / "input").string() + " >" + out + " 2>" +
                             err + " & while [ ! -s " + out +
                             " ]; do sleep 0.1; done; kill -TERM $!; wait $!";
  const int status = std::system(script.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  // A fast machine may print a warning first.
  const std::string said = slurp(err);
  EXPECT_TRUE(names(said.substr(said.rfind("lariat: ")), "lariat: error: | 1")) << said;
  EXPECT_EQ(messages_of(pipe("/context\n", "--ctx 1000000 --load-cache " + file).err), 2);
}

TEST_F(ChatProgram, AContextWithoutMessagesContinues) {
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

TEST_F(ChatProgram, CommandsInAPipe) {
  const Outcome outcome = pipe("/system Be brief.\nHello\n/context\n", "-n 5 --json");
  const Json json = json_of(outcome);
  EXPECT_EQ(json.at("tokens").size(), 5U);
  EXPECT_EQ(json.at("reused_tokens"), 0);
  for (const char* key : {"prefill_s", "prefill_tok_s", "decode_s", "decode_tok_s"})
    EXPECT_GT(json.at("timings").at(key), 0) << key;
  EXPECT_EQ(messages_of(outcome.err), 3);
  EXPECT_EQ(pipe("Hello\n/reset\nOnce\n/reset\nHello\n", "-n 5").out,
            pipe("Hello\n", "-n 5").out + pipe("Once\n", "-n 5").out + pipe("Hello\n", "-n 5").out);
  EXPECT_EQ(pipe("", "").code, 0);
}

}  // namespace
}  // namespace lariat::test
