#include <fmt/ranges.h>

#include <fstream>
#include <iostream>
#include <set>

#include "engine/contexts/fingerprint.h"
#include "engine/eval/tasks/rows.h"
#include "engine/stopwatch.h"
#include "kernels/counted.h"
#include "models/gguf/gguf_file.h"
#include "models/io/atomic_file.h"
#include "models/io/json_file.h"
#include "models/io/text_file.h"
#include "models/model_files.h"
#include "models/text/tokenizer.h"
#include "tools/commands.h"
#include "tools/files.h"
#include "tools/help.h"
#include "tools/output.h"
#include "tools/signals.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTokenizerBytes = uint64_t{1} << 30;

struct TasksCommand {
  std::vector<std::string> tasks;
  std::vector<int64_t> lengths;
  uint32_t seed = 42;
  int64_t rows = 500;
  fs::path tokenizer, out;
  bool quiet = false;
};

// Rows of one task and length.
struct RowFile {
  std::string_view task;
  int64_t length;
  fs::path file;  // "-": standard output
};

// A folder's tokenizer.json means the folder, with its settings. Another file is a tokenizer without settings.
ModelTexts tokenizer_texts(const fs::path& path) {
  std::error_code ec;
  if (!fs::is_regular_file(path, ec) || is_gguf(path)) return open_files(path).texts;
  if (path.filename() == "tokenizer.json") return fs::absolute(path).parent_path();
  const std::string bytes = read_file(path, kMaxTokenizerBytes);
  if (bytes.starts_with('{')) return {path, {{"tokenizer.json", [=] { return parse_json(bytes, path.string()); }}}};
  return {path, {{"tokenizer.model", [=] { return bytes; }}}};
}

std::vector<RowFile> files_of(const TasksCommand& command) {
  std::vector<std::string_view> tasks;
  for (const std::string& task : command.tasks) {
    if (task == "all") {
      std::ranges::copy(ruler_tasks(), std::back_inserter(tasks));
    } else {
      check_ruler_task(task);
      tasks.push_back(task);
    }
  }
  std::error_code ec;
  const bool folder = tasks.size() * command.lengths.size() > 1 || fs::is_directory(command.out, ec);
  if (folder && (command.out == "-" || fs::is_regular_file(command.out, ec)))
    throw UsageError(fmt::format("--out {}: several tasks or lengths need a folder; name one", command.out.string()));
  std::vector<RowFile> files;
  std::set<fs::path> names;
  for (const int64_t length : command.lengths) {
    for (const std::string_view task : tasks) {
      const fs::path file = fmt::format("{}/{}.jsonl", length, task);
      files.push_back({task, length, folder ? command.out / file : command.out});
      if (!names.insert(file).second)
        throw UsageError(fmt::format("--task {} with --lengths {}: given twice; give it once", task, length));
    }
  }
  return files;
}

// Refuses files that other programs wrote.
void check_replaceable(const fs::path& file) {
  constexpr std::string_view kBegin = "{\"index\": ";
  std::error_code ec;
  if (!fs::is_regular_file(file, ec) || fs::file_size(file, ec) == 0) return;
  std::string begin(kBegin.size(), ' ');
  std::ifstream(file, std::ios::binary).read(begin.data(), std::ssize(begin));
  if (begin != kBegin) throw Error(file.string() + ": exists and holds no rows of RULER; name another file");
}

void prepare_outputs(const TasksCommand& command, const std::vector<RowFile>& files) {
  CommandFiles checked{{{"--tokenizer " + command.tokenizer.string(), command.tokenizer}}, {}, {}};
  for (const RowFile& row_file : files) {
    if (row_file.file == "-") return;
    std::error_code ec;
    if (row_file.file != command.out) fs::create_directories(row_file.file.parent_path(), ec);
    if (ec)
      throw Error(fmt::format("{}: cannot be created ({}); name another folder",
                              row_file.file.parent_path().string(), ec.message()));
    check_replaceable(row_file.file);
    checked.outputs.push_back({"--out " + row_file.file.string(), row_file.file});
  }
  check_outputs(checked);
}

void write_rows(const TasksCommand& command, const Tokenizer& tokenizer, const RowFile& row_file) {
  Progress progress(fmt::format("{} {}", row_file.task, row_file.length), command.rows, command.quiet);
  const auto tokens = [&](std::string_view text) {
    if (interrupted()) throw Error(fmt::format("interrupted; {} is not written", row_file.file.string()));
    return std::ssize(tokenizer.encode(text, false));
  };
  const RulerRows rows = ruler_rows({row_file.task, row_file.length, command.seed, tokens});
  std::optional<AtomicFile> file;
  if (row_file.file != "-") file.emplace(row_file.file);
  for (int64_t i = 0; i < command.rows; ++i) {
    progress.update(i);
    const std::string line = rows.next() + "\n";
    file ? file->write(line) : static_cast<void>(std::cout << line);
  }
  if (file) file->commit();
  progress.clear();
  if (!command.quiet)
    say(fmt::format("{}: {} of {}, {} tokens, {} drawn again", row_file.file.string(), counted(command.rows, "row"),
                    row_file.task, row_file.length, rows.redrawn()));
}

void run(const TasksCommand& command) {
  const std::vector<RowFile> files = files_of(command);
  const ModelTexts texts = tokenizer_texts(command.tokenizer);
  const Tokenizer tokenizer = Tokenizer::load(texts);
  print_warnings(tokenizer.warnings(), command.quiet);
  prepare_outputs(command, files);
  const auto start = Stopwatch::now();
  for (const RowFile& file : files) write_rows(command, tokenizer, file);
  if (command.quiet) return;
  say(fmt::format("RULER {}, wonderwords {}, seed {}, tokenizer {} ({} tokens, fingerprint {}): {} in {}",
                  kRulerCommit, kWonderwordsVersion, command.seed, command.tokenizer.string(), tokenizer.vocab_size(),
                  tokenizer_fingerprint(texts), counted(std::ssize(files), "file"),
                  duration(seconds_since(start))));
}

}  // namespace

void add_tasks_command(CLI::App& app) {
  auto command = std::make_shared<TasksCommand>();
  CLI::App& sub = add_command(app, "tasks", "Rows of RULER's tasks for a tokenizer", kMeasureCommands,
                              "lariat tasks --task all --lengths 4096,8192 --tokenizer DIR --out rows\n"
                              "lariat tasks --task vt --lengths 4096 --tokenizer tokenizer.json --out vt.jsonl\n\n"
                              "The rows equal RULER's at commit c3f5e3b with base prompts, byte for byte.");
  sub.add_option("--task", command->tasks, "tasks that need no download")
      ->type_name(fmt::format("{}|all", fmt::join(ruler_tasks(), "|")))
      ->delimiter(',')
      ->required();
  sub.add_option("--lengths", command->lengths, "tokens of a row with its answer")
      ->delimiter(',')
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  sub.add_option("--tokenizer", command->tokenizer, "checkpoint folder, tokenizer file or GGUF file")->required();
  add_output_option(sub, "--out", command->out,
                    "JSON lines (-: standard output); for several tasks or lengths DIR/LENGTH/TASK.jsonl")
      ->type_name("FILE|DIR")
      ->required();
  sub.add_option("--rows", command->rows, "rows per task and length")->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  sub.add_option("--seed", command->seed, "seed of each task and length");
  begin_group(sub, kOutputOptions);
  sub.add_flag("--quiet", command->quiet, "print only errors to stderr");
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
