// Checks exit codes and named files, options and values of refusals.tsv and accepted.tsv, never the wording.
#include "models/io/json_fields.h"
#include "tests/tools/spoiled.h"

namespace lariat::test {
namespace {

std::vector<std::vector<std::string>> rows_of(const char* table) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream in(kSource / "tests" / "tools" / table);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    std::vector<std::string>& cells = rows.emplace_back();
    for (const std::string_view cell : split(line, '\t')) cells.emplace_back(cell);
    if (cells.size() != 3) throw std::runtime_error("not three cells: " + line);
  }
  return rows;
}

// spoil copies `good` to `bad` and rewrites a file, or removes it without a text; change edits a file of the
// copy with sed.
constexpr const char* kShell = R"(lariat() {{ {} "$@"; }}
spoil() {{ rm -rf bad; cp -r good bad; rm -f "bad/$1"; [ $# = 1 ] || printf "$2" >"bad/$1"; }}
change() {{ rm -rf bad; cp -r good bad; LC_ALL=C sed "$2" "good/$1" >"bad/$1"; }}
{}
)";

class Commands : public FolderTest {
 protected:
  Commands() {
    fs::create_directories(dir_ / "empty");
    fs::create_directory_symlink(kDemo, dir_ / "demo");
    fs::create_directory_symlink(kGoldens / "tokenizers" / "llama3-mini", dir_ / "llama3-mini");
    fs::create_directory_symlink(".", dir_ / "here");
    const std::string config = slurp(kDemo / "config.json"), text = "Once upon a time";
    put("hub/models--org--name/snapshots/0a1b/config.json", config);
    put("hub/models--org--name/refs/main", "0a1b\n");
    for (const char* name :
         {"models/one", "chat", "refuses", "lfs", "lfs-config", "lfs-tokenizer", "lfs-json", "other"})
      link_files(kDemo, dir_ / name);
    put("chat/chat_template.jinja", "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ end }}");
    put("refuses/chat_template.jinja", "\n{{ raise_exception('One at\na time') }}");
    fs::remove(dir_ / "other/tokenizer.model");
    fs::copy_file(kGoldens / "tokenizers/llama-mini/tokenizer.json", dir_ / "other/tokenizer.json");
    const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:aaaa\nsize 6955520\n";
    for (const char* name : {"lfs/model.safetensors", "lfs-config/config.json",
                             "lfs-tokenizer/tokenizer.model", "lfs-json/tokenizer.json"})
      put(name, pointer);
    // Copies: a command that is wrongly accepted may overwrite them.
    for (const char* name : {"model.safetensors", "config.json", "tokenizer.model", "heldout.txt"})
      put(fmt::format("own/{}", name), slurp(kDemo / name).substr(0, 10000));
    for (const char* name : {"config.json", "model.safetensors"})
      put(fmt::format("good/{}", name), slurp(kGoldens / "checkpoints/llama_gqa" / name));
    for (const char* name : {"config.json", "model.safetensors"})
      put(fmt::format("learned/{}", name), slurp(kGoldens / "checkpoints/gpt2" / name));
    put("learned/tokenizer.json", slurp(kGoldens / "tokenizers/byte-mini/tokenizer.json"));
    put("good/tokenizer.json", slurp(kGoldens / "tokenizers/byte-mini/tokenizer.json"));
    put("once.txt", text);
    put("bom.txt", "\xEF\xBB\xBF" + text);
    put("utf16.txt", "\xFF\xFE" + wide(text));
    put("line.txt", text + "\n");
    put("latin1.txt", "caf\xE9");
    put("text.gz", "\x1F\x8B\x08\x00");
    put("doc.pdf", "%PDF-1.4\n%\xE2\xE3\xCF\xD3\n");
    put("bom.json", "\xEF\xBB\xBF" + config);
    put("utf16.json", wide(config));
    put("none.txt", "");
    put("spaces.txt", " \n\t\r\n ");
    put("long.txt", std::string(5000, 'a'));
    put("late.txt", std::string(5400, ' ') + "caf\xE9 " + text);
    put("a.jsonl", "");
    put("b.jsonl", "");
    fs::create_symlink("once.txt", dir_ / "soft.txt");
    fs::create_hard_link(dir_ / "once.txt", dir_ / "hard.txt");
    fs::create_symlink("own/config.json", dir_ / "config.ctx");
    for (const char* context : {"a.ctx", "b.ctx", "dca.ctx --position-method dca"})
      EXPECT_EQ(type(fmt::format("lariat generate -m demo -f once.txt -n 0 --save-cache {}", context)).code,
                0);
  }
  static std::string wide(const std::string& ascii) {  // UTF-16, little-endian
    std::string bytes;
    for (const char c : ascii) bytes.append({c, '\0'});
    return bytes;
  }
  Outcome type(const std::string& line) const {
    logs_.put("typed.sh", fmt::format(fmt::runtime(kShell), lariat_program(), line));
    const std::string logs = logs_.path.string();
    const int status = std::system(
        fmt::format("cd {0} && sh {1}/typed.sh >{1}/out 2>{1}/err </dev/null", dir_.string(), logs).c_str());
    return {WEXITSTATUS(status), slurp(logs_.path / "out"), slurp(logs_.path / "err")};
  }
  std::map<fs::path, fs::file_time_type> files() const {
    std::map<fs::path, fs::file_time_type> all;
    for (const auto& entry : fs::recursive_directory_iterator(dir_))
      if (fs::is_regular_file(entry)) all[entry.path()] = entry.last_write_time();
    return all;
  }

  const TempFolder logs_;
};

TEST_F(Commands, AreRefusedWithTheReason) {
  for (const auto& row : rows_of("refusals.tsv")) {
    SCOPED_TRACE(row[0]);
    const int code = std::stoi(row[1]);
    const auto before = files();
    const Outcome outcome = type(row[0]);
    expect_error(outcome, code, row[2]);
    if (code == 1) continue;
    EXPECT_TRUE(names(outcome.err, "--help"));
    EXPECT_TRUE(files() == before || row[0].ends_with("> new.svg")) << "usage errors write nothing";
  }
}

TEST_F(Commands, AreAcceptedWithAWarningAtMost) {
  for (const auto& row : rows_of("accepted.tsv")) {
    SCOPED_TRACE(row[0]);
    const Outcome outcome = type(row[0]);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.empty(), row[1].empty()) << outcome.err;
    EXPECT_FALSE(names(outcome.err, "lariat: error:"));
    EXPECT_TRUE(names(outcome.err, row[1]));
    EXPECT_TRUE(names(outcome.out, row[2]));
  }
}

// A file size limit ends the run after an unfinished line.
TEST_F(Commands, AnErrorAfterATextStartsANewLine) {
  // Too small for a context, enough for OpenMP's startup file.
  const Outcome outcome = type(
      "(trap '' XFSZ; ulimit -f 8; lariat generate -m demo -p 'Once upon a time' -n 3 --save-cache x) 2>&1 | "
      "cat");
  const size_t error = outcome.out.find("\nlariat: error: ");
  ASSERT_NE(error, std::string::npos) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.out.substr(0, error), ", there lived");
}

}  // namespace
}  // namespace lariat::test
