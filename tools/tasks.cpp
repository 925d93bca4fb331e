#include <fmt/ranges.h>

#include <iostream>
#include <set>

#include "engine/contexts/fingerprint.h"
#include "engine/eval/tasks/ruler.h"
#include "kernels/counted.h"
#include "models/gguf/gguf_file.h"
#include "models/io/atomic_file.h"
#include "models/io/json_file.h"
#include "models/io/text_file.h"
#include "models/load/open_files.h"
#include "models/text/tokenizer.h"
#include "tools/commands.h"
#include "tools/files.h"
#include "tools/help.h"
#include "tools/output.h"
#include "tools/signals.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

struct TasksCommand {
  std::set<std::string, std::less<>> tasks;
  std::set<int64_t> lengths;
  uint32_t seed = 42;
  int64_t rows = 500;
  fs::path tokenizer, out;
  bool quiet = false;
};

struct RowFile {
  std::string_view task;
  int64_t length;
  fs::path file;  // "-": standard output
};

// A folder's tokenizer.json means the folder, with its settings. Another file is a tokenizer without
// settings.
ModelTexts tokenizer_texts(const fs::path& path) {
  std::error_code ec;
  if (!fs::is_regular_file(path, ec) || is_gguf(path)) return open_files(path).texts;
  if (path.filename() == "tokenizer.json") return fs::absolute(path).parent_path();
  const std::string bytes = read_file(path, uint64_t{1} << 30);
  if (bytes.starts_with('{'))
    return {path, {{"tokenizer.json", [=] { return parse_json(bytes, path.string()); }}}};
  return {path, {{"tokenizer.model", [=] { return std::string(bytes); }}}};
}

// Creates the folders of several files.
std::vector<RowFile> row_files(const TasksCommand& command) {
  std::vector<RowFile> files;
  CommandFiles checked{{{"--tokenizer", command.tokenizer}, {"standard output", "/dev/stdout"}}, {}, {}};
  for (const int64_t length : command.lengths) {
    for (const std::string_view task : kRulerTasks)
      if (command.tasks.contains("all") || command.tasks.contains(task))
        files.push_back({task, length, command.out});
  }
  if (files.size() == 1 && command.out == "-") return files;
  for (RowFile& file : files) {
    if (files.size() > 1) {
      const fs::path folder = command.out / std::to_string(file.length);
      std::error_code ec;
      if (command.out == "-" || (!fs::create_directories(folder, ec) && ec))
        throw UsageError(
            fmt::format("--out {}: must be a folder for several tasks or lengths", command.out.string()));
      file.file = folder / fmt::format("{}.jsonl", file.task);
    }
    checked.outputs.push_back({"--out " + file.file.string(), file.file});
  }
  check_outputs(checked);
  return files;
}

void write_rows(const TasksCommand& command, const Tokenizer& tokenizer, const RowFile& to) {
  Progress progress(fmt::format("{} {}", to.task, to.length), command.rows, command.quiet);
  const auto tokens = [&](std::string_view text) {
    if (interrupted()) throw Error("interrupted; " + to.file.string() + " is not written");
    const int64_t count = std::ssize(tokenizer.encode(text, false));
    if (count == 0)
      throw Error(command.tokenizer.string() + ": finds no token in a text; use a model's tokenizer");
    return count;
  };
  const auto next = ruler_rows({to.task, to.length, command.seed, tokens});
  std::optional<AtomicFile> file;
  if (to.file != "-") file.emplace(to.file);
  for (int64_t i = 0; i < command.rows; ++i) {
    progress.update(i);
    const std::string line = next() + "\n";
    file ? file->write(line) : static_cast<void>(std::cout << line);
  }
  if (file) file->commit();
}

void run(const TasksCommand& command) {
  const ModelTexts texts = tokenizer_texts(command.tokenizer);
  const Tokenizer tokenizer = Tokenizer::load(texts);
  print_warnings(tokenizer.warnings(), command.quiet);
  const std::vector<RowFile> files = row_files(command);
  for (const RowFile& file : files) write_rows(command, tokenizer, file);
  if (command.quiet) return;
  say(fmt::format("{} of {} in {}: RULER {}, wonderwords {}, seed {}, tokenizer {} (fingerprint {})",
                  counted(std::ssize(files), "file"), counted(command.rows, "row"), command.out.string(),
                  kRulerCommit, kWonderwordsVersion, command.seed, command.tokenizer.string(),
                  tokenizer_fingerprint(texts)));
}

}  // namespace

void add_tasks_command(CLI::App& app) {
  auto command = std::make_shared<TasksCommand>();
  CLI::App& sub = add_command(app, "tasks", "RULER's rows for a tokenizer, byte for byte", kMeasureCommands,
                              "lariat tasks --task vt,fwe --lengths 4096,8192 --tokenizer DIR --out rows");
  std::set<std::string> tasks(std::begin(kRulerTasks), std::end(kRulerTasks));
  tasks.insert("all");
  sub.add_option("--task", command->tasks, "tasks (all: those without downloads)")
      ->delimiter(',')
      ->required()
      ->check(CLI::IsMember(tasks));
  sub.add_option("--lengths", command->lengths, "tokens of a row and its answer")
      ->delimiter(',')
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  sub.add_option("--tokenizer", command->tokenizer, "checkpoint folder, tokenizer file or GGUF file")
      ->required();
  sub.add_option("--out", command->out,
                 "rows (-: standard output); several tasks or lengths: DIR/LENGTH/TASK.jsonl")
      ->type_name("FILE|DIR")
      ->required();
  sub.add_option("--rows", command->rows, "rows per file")->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  sub.add_option("--seed", command->seed, "seed of each file");
  begin_group(sub, kOutputOptions);
  sub.add_flag("--quiet", command->quiet, "print only errors to stderr");
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
