#include <fmt/format.h>

#include <algorithm>

#include "models/io/atomic_file.h"
#include "models/io/json_fields.h"
#include "models/load/open_files.h"
#include "tools/files.h"
#include "tools/help.h"
#include "tools/output.h"
#include "tools/signals.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWritten = "written";  // CLI11 option_text, not printed

// Pipes and /dev/null cannot be overwritten.
bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code ec;
  if (fs::exists(a, ec) || fs::exists(b, ec)) return fs::is_regular_file(a, ec) && fs::equivalent(a, b, ec);
  return fs::weakly_canonical(fs::absolute(a, ec), ec) == fs::weakly_canonical(fs::absolute(b, ec), ec);
}

bool is_of_model(const fs::path& file, const std::vector<fs::path>& model) {
  return std::ranges::any_of(model, [&](const fs::path& one) { return same_file(file, one); });
}

// Adds the symbolic links to pictures: a new picture replaces the target of a link.
void add_links(const fs::path& folder, std::vector<NamedFile>& outputs) {
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec))
    if (it->is_symlink(ec)) outputs.push_back({"--svg " + it->path().string(), it->path()});
}

// A saved context may replace the one that it continues.
bool saves_context(const NamedFile& output) {
  return output.name.starts_with("--save-cache ") || output.name.starts_with("/save ");
}

}  // namespace

CLI::Option* add_output_option(CLI::App& command, const std::string& name, fs::path& file,
                               const std::string& description) {
  return command.add_option(name, file, description)->option_text(kWritten);
}

bool reads_once(const fs::path& file) {
  std::error_code ec;
  return file == "-" || fs::is_fifo(file, ec);
}

CommandFiles files_of(const CLI::App& command) {
  CommandFiles files{{{"standard input", "/dev/stdin"}, {"standard output", "/dev/stdout"}}, {}, {}};
  for (const CLI::Option* option : options_of(command)) {
    const std::string type = plain_type(*option);
    if (type.find("FILE") == type.npos && type.find("DIR") == type.npos) continue;
    const std::string& name = option->get_lnames().at(0);
    auto& list = option->get_option_text() == kWritten ? files.outputs : files.inputs;
    for (const std::string& value : option->results()) {
      if (name == "load-cache" && command.count("--join") > 0) {
        for (const std::string_view part : split(value, ','))
          list.push_back({fmt::format("--{} {}", name, part), part});
      } else if (name == "svg" && type == "DIR") {
        add_links(value, files.outputs);
      } else if (!value.empty()) {
        list.push_back({fmt::format("--{} {}", name, value), value});
        if (name == "load-cache") files.context = value;
      }
    }
  }
  return files;
}

void check_outputs(const CommandFiles& files) {
  std::vector<NamedFile> others = files.inputs;
  for (const NamedFile& output : files.outputs) {
    for (const auto& [name, file] : others) {
      if (saves_context(output) && file == files.context) continue;
      if (is_of_model(output.file, files_of_model(file)))
        throw UsageError(fmt::format("{}: {} is read from this file; name another", output.name, name));
      if (same_file(output.file, file))
        throw UsageError(fmt::format("{}: the same file as {}; name another", output.name, name));
    }
    others.push_back(output);
  }
  for (const NamedFile& output : files.outputs) check_writable(output.file);
}

void add_context_options(CLI::App& command, ContextOptions& options, const std::string& description) {
  CLI::Option* const file = command.add_option("--load-cache", options.file, description);
  command
      .add_option_function<std::string>(
          "--join", [&options](const std::string& text) { options.join = parse_join(text); },
          "join method of --load-cache A,B,...; /bos=keep keeps later BOS")
      ->type_name("rotate|recompute=N|anew")
      ->needs(file);
}

SavedContext load_contexts(Session& session, const Tokenizer& tokenizer, const ContextOptions& options) {
  const std::string name = options.file.string();
  std::error_code ec;
  if (options.empty()) return {session.new_sequence(), {}};
  if (!options.join) {
    if (name.find(',') != name.npos && !fs::exists(options.file, ec))
      throw UsageError(
          fmt::format("--load-cache {}: several contexts; add --join rotate, recompute=N or anew", name));
    return load_context(session, options.file);
  }
  std::vector<fs::path> files;
  for (const std::string_view part : split(name, ',')) files.emplace_back(part);
  return join_contexts(session, files, *options.join, tokenizer.prefix(), [](int64_t) {
    if (interrupted()) throw Error("interrupted while the contexts were joined");
  });
}

void begin_context(fs::path& load, const fs::path& save, bool quiet) {
  std::error_code ec;
  if (load.empty() || load != save || fs::exists(load, ec)) return;
  if (!quiet) say(load.string() + " does not exist yet; this run creates it");
  load.clear();
}

}  // namespace lariat
