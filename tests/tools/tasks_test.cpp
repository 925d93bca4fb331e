// tasks: rows of RULER's tasks in files.
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

const fs::path kTokenizers = kSource / "tests" / "golden" / "tokenizers";

class TasksProgram : public FolderTest {
 protected:
  Outcome tasks(const std::string& tokenizer, const std::string& more) const {
    return run_lariat("tasks --rows 2 --tokenizer " + tokenizer + " " + more);
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
};

TEST_F(TasksProgram, WritesAFileOrAFolder) {
  const Outcome one = tasks(kDemo.string(), "--task niah_single_1 --lengths 1024 --out " + at("one.jsonl"));
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, "");
  EXPECT_TRUE(names(one.err, "c3f5e3b | 3.0.1 | seed 42 | " + kDemo.string()));
  const std::string rows = slurp(dir_ / "one.jsonl");
  EXPECT_EQ(std::ranges::count(rows, '\n'), 2);
  const Outcome printed = tasks(kDemo.string(), "--task niah_single_1 --lengths 1024 --quiet --out -");
  EXPECT_EQ(printed.out, rows);
  EXPECT_EQ(printed.err, "");
  const Outcome all =
      tasks(kDemo.string(), "--task niah_single_1,fwe --lengths 1024,2048 --out " + at("new/rows"));
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(slurp(dir_ / "new/rows/1024/niah_single_1.jsonl"), rows);
  for (const char* file : {"1024/fwe.jsonl", "2048/fwe.jsonl", "2048/niah_single_1.jsonl"})
    EXPECT_EQ(std::ranges::count(slurp(dir_ / "new/rows" / file), '\n'), 2) << file;
}

TEST_F(TasksProgram, SeedsChangeRows) {
  const std::string fwe = "--task fwe --lengths 1024 --quiet --out - ";
  EXPECT_EQ(tasks(kDemo.string(), fwe).out, tasks(kDemo.string(), fwe + "--seed 42").out);
  EXPECT_NE(tasks(kDemo.string(), fwe).out, tasks(kDemo.string(), fwe + "--seed 43").out);
}

// A folder, its tokenizer.json, a copy under another name, and a GGUF of the same vocabulary.
TEST_F(TasksProgram, OpensATokenizerInAnyForm) {
  const std::string fwe = "--task fwe --lengths 1024 --quiet --out -";
  const fs::path mini = kTokenizers / "llama3-mini", pieces = kTokenizers / "sp-mini";
  const std::string rows = tasks(mini.string(), fwe).out;
  EXPECT_EQ(std::ranges::count(rows, '\n'), 2);
  put("tokens.json", slurp(mini / "tokenizer.json"));
  for (const fs::path& other : {mini / "tokenizer.json", dir_ / "tokens.json",
                                kSource / "tests" / "golden" / "gguf" / "llama3-mini.gguf"})
    EXPECT_EQ(tasks(other.string(), fwe).out, rows) << other;
  put("pieces", slurp(pieces / "tokenizer.model"));
  EXPECT_EQ(tasks(at("pieces"), fwe).out, tasks(pieces.string(), fwe).out);
}

TEST_F(TasksProgram, KeepsItsInputsAndWritesWholeFiles) {
  const std::string fwe = "--task fwe --lengths 1024 --out ";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(tasks(kDemo.string(), fwe + at("rows.jsonl")).code, 0);
  link_files(kTokenizers / "llama3-mini", dir_ / "mini");
  expect_error(tasks(at("mini"), fwe + at("mini/tokenizer.json")), 2, "--out | mini/tokenizer.json");
  expect_error(tasks(kDemo.string(), "--task fwe,vt --lengths 1024 --out -"), 2, "--out");
  expect_error(tasks(kDemo.string(), "--task fwe --lengths 64,1024 --out " + at("rows")), 1, "fwe | 64");
  EXPECT_TRUE(fs::is_empty(dir_ / "rows/64"));
}

}  // namespace
}  // namespace lariat::test
