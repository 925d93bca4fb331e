#include <fmt/ranges.h>

#include <iostream>
#include <set>

#include "engine/contexts/fingerprint.h"
#include "engine/eval/measure/passkey.h"
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
  fs::path tokenizer, text, out;
  std::shared_ptr<const Hay> hay = noise_hay();  // the text
  bool quiet = false;
};

struct RowFile {
  FormTask task;  // form: empty for RULER's own
  int64_t length;
  fs::path file;  // "-": standard output
};

// In the order of a run.
std::vector<FormTask> all_tasks() {
  std::vector<FormTask> all;
  for (const std::string_view task : kRulerTasks) all.push_back({std::string(task), ""});
  std::ranges::copy(form_tasks(), std::back_inserter(all));
  for (const NeedleTask task : kNeedleTasks) all.push_back({std::string(name_of(task)), "lariat passkey"});
  return all;
}

// A check of --task.
std::string refused(const std::string& task) {
  for (const auto& [name, form, reads_text] : form_tasks()) {
    if (form == "RULER's " + task)
      return fmt::format("{} needs RULER's essays, which have no licence; use {} and --text", task, name);
  }
  if (task != "qa_1" && task != "qa_2") return "";
  return fmt::format("{} needs the data set {}; give RULER's own rows to lariat ask", task,
                     task == "qa_1" ? "SQuAD 2.0" : "HotpotQA");
}

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
  CommandFiles checked{
      {{"--tokenizer", command.tokenizer}, {"--text", command.text}, {"standard output", "/dev/stdout"}},
      {},
      {}};
  for (const int64_t length : command.lengths) {
    for (const FormTask& task : all_tasks())
      if (command.tasks.contains(task.name) || (command.tasks.contains("all") && task.form.empty()))
        files.push_back({task, length, command.out});
  }
  const bool reads = std::ranges::any_of(
      files, [](const RowFile& file) { return file.task.reads_text || needle_task(file.task.name); });
  if (!command.text.empty() && !reads) throw UsageError("--text: no task of --task reads a text; omit it");
  for (const RowFile& file : files) {
    if (command.text.empty() && file.task.reads_text)
      throw UsageError(fmt::format("--task {}: hides sentences in a text; add --text FILE", file.task.name));
  }
  if (files.size() == 1 && command.out == "-") return files;
  for (RowFile& file : files) {
    if (files.size() > 1) {
      const fs::path folder = command.out / std::to_string(file.length);
      std::error_code ec;
      if (command.out == "-" || (!fs::create_directories(folder, ec) && ec))
        throw UsageError(
            fmt::format("--out {}: must be a folder for several tasks or lengths", command.out.string()));
      file.file = folder / (file.task.name + ".jsonl");
    }
    checked.outputs.push_back({"--out " + file.file.string(), file.file});
  }
  check_outputs(checked);
  return files;
}

// The prompts of lariat passkey, one per depth and trial.
std::function<std::string()> needle_rows(const TasksCommand& command, const Tokenizer& tokenizer,
                                         const RowFile& to) {
  const TextCodec codec = prompt_codec(tokenizer);
  PasskeyOptions options{.seed = command.seed, .needles = {.task = *needle_task(to.task.name)}};
  options.max_new_tokens = answer_tokens(codec, options.needles);
  return [=, length = to.length, form = to.task.form, prompts = PasskeyPrompts(codec, command.hay),
          i = int64_t{0}]() mutable {
    const auto [trial, depth] = std::div(i, static_cast<int64_t>(options.depths.size()));
    const Needles needles = needles_of(options, length, options.depths[static_cast<size_t>(depth)], trial);
    return json_line({{prompts.text(length, needles), " " + needles.answer, needles.expected},
                      length + options.max_new_tokens},
                     i++, form_members(form, options.max_new_tokens));
  };
}

void write_rows(const TasksCommand& command, const Tokenizer& tokenizer, const RowFile& to) {
  Progress progress(fmt::format("{} {}", to.task.name, to.length), command.rows, command.quiet);
  const auto stop = [&] {
    if (interrupted()) throw Error("interrupted; " + to.file.string() + " is not written");
  };
  const auto tokens = [&](std::string_view text) {
    stop();
    const int64_t count = std::ssize(tokenizer.encode(text, false));
    if (count == 0)
      throw Error(command.tokenizer.string() + ": finds no token in a text; use a model's tokenizer");
    return count;
  };
  const auto next = needle_task(to.task.name)
                        ? needle_rows(command, tokenizer, to)
                        : task_rows({to.task.name, to.length, command.seed, tokens, command.hay->text});
  std::optional<AtomicFile> file;
  if (to.file != "-") file.emplace(to.file);
  for (int64_t i = 0; i < command.rows; ++i) {
    progress.update(i);
    stop();
    const std::string line = next() + "\n";
    file ? file->write(line) : static_cast<void>(std::cout << line);
  }
  if (file) file->commit();
}

void run(TasksCommand& command) {
  if (!command.text.empty()) command.hay = read_hay(command.text);
  const ModelTexts texts = tokenizer_texts(command.tokenizer);
  const Tokenizer tokenizer = Tokenizer::load(texts);
  print_warnings(tokenizer.warnings(), command.quiet);
  const std::vector<RowFile> files = row_files(command);
  for (const RowFile& file : files) write_rows(command, tokenizer, file);
  if (command.quiet) return;
  for (const auto& [task, length, file] : files) {
    if (!task.form.empty())
      say(fmt::format("{}: {} has the form of {}; not RULER's rows", file.string(), task.name, task.form));
  }
  say(fmt::format("{} of {} in {}: RULER {}, wonderwords {}, seed {}, tokenizer {} (fingerprint {})",
                  counted(std::ssize(files), "file"), counted(command.rows, "row"), command.out.string(),
                  kRulerCommit, kWonderwordsVersion, command.seed, command.tokenizer.string(),
                  tokenizer_fingerprint(texts)));
}

}  // namespace

void add_tasks_command(CLI::App& app) {
  auto command = std::make_shared<TasksCommand>();
  CLI::App& sub =
      add_command(app, "tasks", "Rows of RULER's and other tasks for a tokenizer", kMeasureCommands,
                  "lariat tasks --task vt,fwe --lengths 4096,8192 --tokenizer DIR --out rows");
  std::vector<std::string> tasks = {"all"};
  for (const FormTask& task : all_tasks()) tasks.push_back(task.name);
  sub.add_option("--task", command->tasks,
                 fmt::format("tasks: {}; all: RULER's without downloads",
                             fmt::join(tasks.begin() + 1, tasks.end(), ", ")))
      ->delimiter(',')
      ->type_name("TASK")
      ->required()
      ->check(refused)
      ->check(CLI::IsMember(tasks));
  sub.add_option("--lengths", command->lengths, "tokens of a row and its answer; passkeys: without it")
      ->delimiter(',')
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  sub.add_option("--tokenizer", command->tokenizer, "checkpoint folder, tokenizer file or GGUF file")
      ->required();
  sub.add_option("--out", command->out,
                 "rows (-: standard output); several tasks or lengths: DIR/LENGTH/TASK.jsonl")
      ->type_name("FILE|DIR")
      ->required();
  sub.add_option("--text", command->text, "text of essay_*, facts_*; of passkeys instead of filler");
  sub.add_option("--rows", command->rows, "rows per file")->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  sub.add_option("--seed", command->seed, "seed of each file");
  begin_group(sub, kOutputOptions);
  sub.add_flag("--quiet", command->quiet, "print only errors to stderr");
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
