#include <set>

#include "tests/tools/chat_program.h"
#include "tools/help.h"

namespace lariat::test {
namespace {

// Add each new option with a file name to its side.
TEST(Files, AreInputsUnlessDeclaredAsOutputs) {
  const std::set<std::string> written = {"save-cache", "report", "results", "out",
                                         "trace",      "svg",    "csv",     "losses"};
  const std::set<std::string> read = {
      "model",        "prompt-file", "load-cache", "rope-config", "file",
      "against",      "haystack",    "merge",      "config",      "messages",
      "tokens-file",  "positions",   "prompts",    "draft",       "against-rope-config",
      "api-key-file", "tokenizer",   "text"};
  const auto app = make_app();
  for (const CLI::App* command : commands_of(*app)) {
    for (const CLI::Option* option : options_of(*command)) {
      const std::string name = option->get_lnames().at(0), type = plain_type(*option);
      if (type.find("FILE") == type.npos && type.find("DIR") == type.npos) continue;
      // Files with lariat's names, which a command checks itself.
      if ((name == "svg" && type == "DIR") || name == "cache-dir" || type == "FILE|DIR") continue;
      EXPECT_NE(written.contains(name), read.contains(name)) << command->get_name() << " --" << name;
      EXPECT_EQ(written.contains(name), option->get_option_text() == "written") << name;
    }
  }
}

// Chat commands may overwrite only the conversation's file and --save-cache's.
TEST_F(ChatProgram, ACommandNeverOverwritesAnInput) {
  const std::string tokens = (model_ / "tokenizer.model").string(), file = (dir_ / "context").string();
  put("model/tokenizer.model", slurp(kDemo / "tokenizer.model"));  // not a link into the repository
  expect_error(pipe("/save " + tokens + "\n", ""), 1, "/save " + tokens + " | --model");
  EXPECT_EQ(slurp(tokens), slurp(kDemo / "tokenizer.model"));
  EXPECT_EQ(pipe("Hello\n/save " + file + "\n", "-n 3 --save-cache " + file).code, 0);
  EXPECT_EQ(pipe("Hello\n/save " + file + "\n", "-n 3 --load-cache " + file).code, 0);
  EXPECT_EQ(messages_of(pipe("/context\n", "--load-cache " + file).err), 4);
}

// docs/chat.md: the same command every day.
TEST_F(ChatProgram, TheFirstDailyRunCreatesTheContext) {
  const std::string file = (dir_ / "context").string(),
                    both = " --load-cache " + file + " --save-cache " + file;
  const Outcome whole = pipe("Once upon a time\nAnd then?\n", "-n 10");
  const Outcome first = pipe("Once upon a time\n", "-n 10" + both),
                second = pipe("And then?\n", "-n 10" + both);
  EXPECT_TRUE(names(first.err, "lariat: " + file));
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(first.out + second.out, whole.out);
  fs::remove(file);
  EXPECT_EQ(generate("Once upon a time", "-n 3" + both).err, "") << "--quiet";
  EXPECT_EQ(json_of(generate("Once upon a time", "-n 3 --json" + both))["cached_tokens"], 8);
  fs::remove(file);
  expect_error(pipe("x\n", "--load-cache " + file), 1, file);
  const std::string perplexity =
      "perplexity --max-tokens 20 -m " + kDemo.string() + " -f " + (kDemo / "heldout.txt").string() + both;
  EXPECT_EQ(run_lariat(perplexity).err, first.err);
  EXPECT_EQ(json_of(run_lariat(perplexity + " --json"))["context_tokens"], 21);
}

}  // namespace
}  // namespace lariat::test
