// Every row of docs/command-line.md is run as it stands: a newcomer types these.
#include <fnmatch.h>

#include <algorithm>

#include "models/text/unicode.h"
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

struct TypedRow {
  std::string typed, code, printed;  // printed: lines joined by <br>, each in backticks
};

std::vector<TypedRow> rows_of(const fs::path& page) {
  std::vector<TypedRow> rows;
  std::ifstream in(page);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `")) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != 3) throw std::runtime_error("not three cells: " + line);
    rows.push_back({cells[0].substr(1, cells[0].size() - 2), cells[1], cells[2]});
  }
  return rows;
}

// The lines as a cell holds them.
std::string as_cell(const std::string& text) {
  std::string cell;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) cell += (cell.empty() ? "`" : "<br>`") + line + "`";
  return cell;
}

// Whether `text` is `pattern`, in which each "…" stands for anything.
bool fits(const std::string& text, const std::string& pattern) {
  std::string glob;
  for (const char c : pattern)
    glob += std::string_view("*?[\\").find(c) != std::string::npos ? std::string{'\\', c} : std::string{c};
  return ::fnmatch(replace_all(glob, "…", "*").c_str(), text.c_str(), 0) == 0;
}

class Newcomer : public FolderTest {
 protected:
  Newcomer() {
    fs::create_directories(dir_ / "empty");
    fs::create_directory_symlink(kDemo, dir_ / "demo");
    const std::string config = slurp(kDemo / "config.json");
    put("hub/models--org--name/snapshots/0a1b/config.json", config);
    put("hub/models--org--name/refs/main", "0a1b\n");
    for (const char* name :
         {"models/one", "models/two", "chat", "lfs", "lfs-config", "lfs-tokenizer", "lfs-json"})
      link_files(kDemo, dir_ / name);
    put("chat/chat_template.jinja", "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ end }}");
    const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:aaaa\nsize 6955520\n";
    for (const char* name : {"lfs/model.safetensors", "lfs-config/config.json",
                             "lfs-tokenizer/tokenizer.model", "lfs-json/tokenizer.json"})
      put(name, pointer);
    const std::string text = "Once upon a time";
    put("once.txt", text);
    put("bom.txt", "\xEF\xBB\xBF" + text);
    put("utf16.txt", "\xFF\xFE" + wide(text));
    put("line.txt", text + "\n");
    put("latin1.txt", "caf\xE9");
    put("text.gz", "\x1F\x8B\x08\x00");
    put("doc.pdf", "%PDF-1.4\n%\xE2\xE3\xCF\xD3\n");
    put("bom.json", "\xEF\xBB\xBF" + config);
    put("utf16.json", wide(config));
  }
  static std::string wide(const std::string& ascii) {  // UTF-16, little end first, without a mark
    std::string bytes;
    for (const char c : ascii) bytes.append({c, '\0'});
    return bytes;
  }
  // A line as it is typed in a shell that stands in the folder: what it prints on stderr, then on stdout.
  Outcome type(const std::string& line) const {
    put("typed.sh", fmt::format("lariat() {{ {} \"$@\"; }}\n{}\n", LARIAT_PROGRAM, line));
    const std::string command = "cd " + dir_.string() + " && sh typed.sh >out.log 2>err.log </dev/null";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), slurp(dir_ / "out.log"), slurp(dir_ / "err.log")};
  }
};

TEST_F(Newcomer, ReadsWhatThePageSays) {
  const std::vector<TypedRow> rows = rows_of(kSource / "docs" / "command-line.md");
  EXPECT_GT(rows.size(), 70U);
  for (const TypedRow& row : rows) {
    const Outcome outcome = type(row.typed);
    const std::string printed = as_cell(outcome.err + outcome.out);
    EXPECT_EQ(std::to_string(outcome.code), row.code) << row.typed << "\n" << printed;
    EXPECT_TRUE(fits(printed, row.printed))
        << row.typed << "\nprinted: " << printed << "\nin docs: " << row.printed;
    if (outcome.code == 0) continue;
    EXPECT_TRUE(holds(outcome.err, "lariat: error: ")) << row.typed;
    EXPECT_TRUE(outcome.code == 1 || outcome.err.find("; see lariat ") != std::string::npos) << row.typed;
  }
}

TEST_F(Newcomer, ThePatternsOfThePageDoFail) {
  EXPECT_TRUE(fits("a 1 b", "a … b"));
  EXPECT_TRUE(fits("a", "a"));
  EXPECT_TRUE(fits("a 1 b 2 b", "a … b"));
  EXPECT_FALSE(fits("a 1 b", "a"));
  EXPECT_FALSE(fits("a 1 b", "a … c"));
  EXPECT_FALSE(fits("ab", "b"));
  EXPECT_FALSE(fits("a 1 b c", "a … b"));
}

// A file that may not grow ends the run behind the text, which is on the terminal's last line then.
TEST_F(Newcomer, AnErrorBehindATextBeginsALine) {
  // Too little for a context, and enough for the file that some OpenMP libraries begin with.
  const Outcome outcome = type(
      "(trap '' XFSZ; ulimit -f 8; lariat generate -m demo -p 'Once upon a time' -n 3 --save-cache x) 2>&1 | "
      "cat");
  const size_t error = outcome.out.find("\nlariat: error: ");
  ASSERT_NE(error, std::string::npos) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.out.substr(0, error), ", there lived");
}

}  // namespace
}  // namespace lariat::test
