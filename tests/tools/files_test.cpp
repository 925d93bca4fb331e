// Files that are written over others that are read: refused before anything is opened.
#include <algorithm>
#include <set>

#include "tests/tools/chat_program.h"
#include "tools/common.h"
#include "tools/help.h"

namespace lariat::test {
namespace {

// A folder with a model, in which commands are typed.
class Overwriting : public ChatProgram {
 protected:
  Overwriting() {
    for (const char* name : {"model.safetensors", "config.json", "tokenizer.model", "heldout.txt"})
      put(fmt::format("model/{}", name),
          slurp(kDemo / name).substr(0, 10000));  // no links into the repository
    for (const char* name : {"a.txt", "a.jsonl", "b.jsonl", "ids", "rope.json"}) put(name, name);
    fs::create_symlink("a.txt", dir_ / "soft.txt");
    fs::create_hard_link(dir_ / "a.txt", dir_ / "hard.txt");
    fs::create_directory_symlink(".", dir_ / "here");
    fs::create_symlink("model/config.json", dir_ / "config.ctx");
  }
  std::string everything() const {
    std::string all;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(dir_)) files.push_back(entry.path());
    for (const auto& entry : fs::directory_iterator(model_)) files.push_back(entry.path());
    std::ranges::sort(files);
    for (const fs::path& file : files)
      all += file.string() + "\n" + (fs::is_regular_file(file) ? slurp(file) : "") + "\n";
    return all;
  }
  // As typed in the folder, without the program's name.
  Outcome type(const std::string& line) const {
    const TempFolder logs;
    const std::string out = (logs.path / "out").string(), err = (logs.path / "err").string();
    logs.put("typed.sh", fmt::format("cd {}\n{} {}\n", dir_.string(), LARIAT_PROGRAM, line));
    const int status = std::system(
        fmt::format("sh {} </dev/null >{} 2>{}", (logs.path / "typed.sh").string(), out, err).c_str());
    return {WEXITSTATUS(status), slurp(out), slurp(err)};
  }
};

TEST_F(Overwriting, WhatIsReadOrWrittenTooIsWrongUsage) {
  const std::string before = everything();
  const std::pair<const char*, const char*> cases[] = {
      {"sweep -m model --report s.jsonl", "its results in s.jsonl and --report s.jsonl are one file"},
      {"sweep -m model --report r.html --results r.html",
       "--results r.html and --report r.html are one file"},
      {"sweep -m model --report r.html --results here/r.html",
       "--results here/r.html and --report r.html are"},
      {"sweep -m model --report a.html -f a.jsonl", "its results in a.jsonl and --file a.jsonl are one file"},
      {"sweep --merge a.jsonl b.jsonl --report b.jsonl", "--report b.jsonl and --merge b.jsonl are one file"},
      {"sweep -m model --haystack a.txt --report a.txt", "--report a.txt and --haystack a.txt are one file"},
      {"passkey -m model --haystack a.txt --report a.txt",
       "--report a.txt and --haystack a.txt are one file"},
      {"passkey -m model --haystack a.txt --report soft.txt",
       "--report soft.txt and --haystack a.txt are one"},
      {"passkey -m model --haystack soft.txt --report hard.txt", "--report hard.txt and --haystack soft.txt"},
      {"generate -m model -p x --save-cache model/model.safetensors",
       "--save-cache model/model.safetensors is a file that --model model is read from"},
      {"generate -m model -p x --save-cache config.ctx",
       "--save-cache config.ctx is a file that --model model"},
      {"generate -m model -f a.txt --save-cache ./a.txt",
       "--save-cache ./a.txt and --prompt-file a.txt are one"},
      {"generate -m model -f - --save-cache a.txt <a.txt",
       "--save-cache a.txt and standard input are one file"},
      {"chat -m model --save-cache a.txt <hard.txt", "--save-cache a.txt and standard input are one file"},
      {"chat -m model --save-cache model/tokenizer.model",
       "--save-cache model/tokenizer.model is a file that"},
      {"perplexity -m model -f a.txt --save-cache a.txt", "--save-cache a.txt and --file a.txt are one file"},
      {"perplexity -m model -f a.txt --rope-config rope.json --save-cache rope.json",
       "--rope-config rope.json"},
      {"logits -m model --tokens 1 --out model/model.safetensors",
       "--out model/model.safetensors is a file that"},
      {"logits -m model --tokens-file ids --out ids", "--out ids and --tokens-file ids are one file"},
      {"logits -m model --tokens 1 --positions ids --out x --trace ids",
       "--trace ids and --positions ids are"},
      {"logits -m model --tokens 1 --out x --trace x", "--trace x and --out x are one file"},
      {"rope -m model --svg model/heldout.txt",
       "--svg model/heldout.txt is a file that --model model is read"},
      {"rope -m model/config.json --svg model/config.json",
       "--svg model/config.json and --model model/config.json"},
      {"rope -m model --rope-config rope.json --svg rope.json",
       "--svg rope.json and --rope-config rope.json are"},
  };
  for (const auto& [line, says] : cases) {
    SCOPED_TRACE(line);
    expect_error(type(line), 2, says);
    EXPECT_EQ(everything(), before);
  }
  expect_error(type("rope -m model --svg new.svg >new.svg"), 2, "--svg new.svg and standard output are one");
}

TEST_F(Overwriting, WhatIsNoFileTakesAll) {
  EXPECT_EQ(type("rope -m model --svg /dev/null </dev/null").code, 0);
  EXPECT_EQ(type("rope -m model --svg model/rope.svg").code, 0) << "a new file beside the model's";
  EXPECT_EQ(type("rope -m model --svg model/rope.svg").code, 0) << "and the same again";
}

// Every option that names a file: those that are written were declared so, all others are read. A new option
// is to be added on its side.
TEST(Files, AreReadUnlessAnOptionSaysThatTheyAreWritten) {
  const std::set<std::string> written = {"save-cache", "report", "results", "out",
                                         "trace",      "svg",    "csv",     "losses"};
  const std::set<std::string> read = {"model",       "prompt-file", "load-cache", "rope-config", "file",
                                      "against",     "haystack",    "merge",      "config",      "messages",
                                      "tokens-file", "positions",   "prompts"};
  const auto app = make_app();
  for (const CLI::App* command : commands_of(*app)) {
    for (const CLI::Option* option : options_of(*command)) {
      const std::string name = option->get_lnames().at(0), type = plain_type(*option);
      if (type.find("FILE") == type.npos && type.find("DIR") == type.npos) continue;
      if (name == "svg" && type == "DIR") continue;  // a folder, which pictures are added to
      EXPECT_NE(written.contains(name), read.contains(name)) << command->get_name() << " --" << name;
      EXPECT_EQ(written.contains(name), option->get_option_text() == "written") << name;
    }
  }
}

// A conversation's commands too; its own file may be saved over, and --save-cache's.
TEST_F(ChatProgram, ACommandSavesOverNothingThatIsRead) {
  const std::string tokens = (model_ / "tokenizer.model").string(), file = (dir_ / "context").string();
  put("model/tokenizer.model", slurp(kDemo / "tokenizer.model"));  // no link into the repository
  expect_error(pipe("/save " + tokens + "\n", ""), 1, "/save " + tokens + " is a file that --model");
  EXPECT_EQ(slurp(tokens), slurp(kDemo / "tokenizer.model"));
  EXPECT_EQ(pipe("Hello\n/save " + file + "\n", "-n 3 --save-cache " + file).code, 0);
  EXPECT_EQ(pipe("Hello\n/save " + file + "\n", "-n 3 --load-cache " + file).code, 0);
  EXPECT_TRUE(holds(pipe("/context\n", "--load-cache " + file).err, "4 messages"));
}

// docs/chat.md: the same command every day. A context that is nowhere else is an error.
TEST_F(ChatProgram, TheFirstOfARowOfRunsBeginsTheContext) {
  const std::string file = (dir_ / "context").string(),
                    both = " --load-cache " + file + " --save-cache " + file;
  const std::string begins = "lariat: " + file + " is not there yet; this run begins it\n";
  const Outcome whole = pipe("Once upon a time\nAnd then?\n", "-n 10");
  const Outcome first = pipe("Once upon a time\n", "-n 10" + both),
                second = pipe("And then?\n", "-n 10" + both);
  EXPECT_EQ(first.err, begins);
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(first.out + second.out, whole.out);
  fs::remove(file);
  EXPECT_EQ(generate("Once upon a time", "-n 3" + both).err, "") << "--quiet";
  EXPECT_EQ(json_of(generate("Once upon a time", "-n 3 --json" + both))["cached_tokens"], 8);
  fs::remove(file);
  expect_error(pipe("x\n", "--load-cache " + file), 1, file + ": cannot be opened");
  const std::string perplexity =
      "perplexity --max-tokens 20 -m " + kDemo.string() + " -f " + (kDemo / "heldout.txt").string() + both;
  EXPECT_EQ(run_lariat(perplexity).err, begins);
  EXPECT_EQ(json_of(run_lariat(perplexity + " --json"))["context_tokens"], 21);
}

}  // namespace
}  // namespace lariat::test
