#pragma once
#include <atomic>
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/contexts/join_contexts.h"
#include "engine/contexts/saved_context.h"
#include "engine/lariat.h"
#include "engine/stopwatch.h"
#include "kernels/error.h"
#include "models/text/tokenizer.h"

// The type of options that are kept as a path (not as an optional one), but for those that name another.
template <>
constexpr const char* CLI::detail::type_name<std::filesystem::path>() {
  return "FILE";
}

// The subcommands, and what those that run a model share: options, opening the model, progress, Ctrl-C.
namespace lariat {

// Each adds one subcommand (tools/<name>.cpp) whose callback does the work and throws Error on failure.
void add_generate_command(CLI::App& app);
void add_chat_command(CLI::App& app);
void add_tokenize_commands(CLI::App& app);  // tokenize and detokenize
void add_logits_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_score_command(CLI::App& app);
void add_perplexity_command(CLI::App& app);
void add_passkey_command(CLI::App& app);
void add_sweep_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_rope_command(CLI::App& app);

struct CommonOptions {
  std::filesystem::path model;
  OpenOptions open{};  // all but the dtypes, which are kept as the words that were typed
  std::string dtype = "auto", quantize = "none", kv_dtype = "auto";
  bool quiet = false;
  bool other_scalings = false;        // the command compares some that open.rope does not name
  const CLI::App* command = nullptr;  // which knows what was typed
};

void add_model_option(CLI::App& command, CommonOptions& options, bool required = true);
// The RoPE options, --device --threads --dtype --quantize --kv-dtype --ctx --prefill-chunk, and --quiet, each
// in its group of the help (tools/help.h).
void add_common_options(CLI::App& command, CommonOptions& options);
// --rope-scaling, --rope-factor, --rope-original-ctx, --rope-theta, --rope-config, --rope-steps and
// --rope-cache. Parsing throws UsageError.
void add_rope_options(CLI::App& command, OpenOptions& options);

// An option that names a file which is written. Any other FILE or DIR of a command is read.
CLI::Option* add_output_option(CLI::App& command, const std::string& name, std::filesystem::path& file,
                               const std::string& description);
struct NamedFile {
  std::string name;  // in errors: "--report r.html"
  std::filesystem::path file;
};
struct CommandFiles {
  std::vector<NamedFile> inputs, outputs;
  std::filesystem::path context;  // of --load-cache, which may be saved over
};
// Those of a subcommand whose options were parsed; standard input and output count as inputs.
CommandFiles files_of(const CLI::App& command);
// Throws UsageError when an output is an input too, a file that a model among them is read from, or another
// output, by whatever name or link; and Error when one cannot be written. Nothing is opened.
void check_outputs(const CommandFiles& files);
// --load-cache, and --join for several files with commas between them.
struct ContextOptions {
  std::filesystem::path file;
  std::optional<JoinOptions> join;
  bool empty() const { return file.empty(); }
};
void add_context_options(CLI::App& command, ContextOptions& options, const std::string& description);
// The named context, or an empty one; Ctrl-C during a prefill is an Error.
SavedContext load_contexts(Session& session, const Tokenizer& tokenizer, const ContextOptions& options);
// With --load-cache X --save-cache X the first run begins X: clears `load` where that is not there yet, and
// says so.
void begin_context(std::filesystem::path& load, const std::filesystem::path& save, bool quiet);

// An option such as --kv-dtype, and what it asks for: "auto", "f32", "f16" or "bf16" for both, or "k=..",
// "v=.." or "k=..,v=..", where values may be "q8" too. Parsing throws UsageError.
CLI::Option* add_kv_dtype_option(CLI::App& command, const std::string& name, std::string& value,
                                 const std::string& meaning);

// --tokens or --tokens-file, and the ids that they give.
inline constexpr uint64_t kMaxTokenFileBytes = uint64_t{1} << 30;
void add_token_options(CLI::App& command, std::string& tokens, std::filesystem::path& file);
std::vector<int32_t> given_tokens(const std::string& tokens, const std::filesystem::path& file);

// --template-var NAME=VALUE (repeatable), for what renders a chat template: a further variable of it, JSON
// where VALUE is that and else a text. Parsing throws UsageError.
CLI::Option* add_template_var_option(CLI::App& command, CommonOptions& options);

// The model, with its progress and its warnings on stderr.
Engine open_engine(const CommonOptions& options, Reads reads = Reads::kText);

// The text with the options in place of the settings that it names in backticks: "`max_ctx`" is "--ctx".
std::string with_options(std::string text);
// One line on stderr: "lariat: " and this text, as with_options() and one_line() make it. Everything that is
// said there and may hold a name out of a file or of the user's goes through it.
void say(const std::string& line);
// Each on a line of stderr as "lariat: warning: ...", once in a run; nothing with --quiet.
void print_warnings(const std::vector<std::string>& lines, bool quiet);

// Warns of those of `names` that were typed and change nothing; `why` is "with --method chunks", say.
void warn_idle(const CommonOptions& options, std::vector<std::string> names, const std::string& why);
// The same of --rope-steps and --rope-cache.
void warn_of_still_scale(const CommonOptions& options, const RopeScaling& rope);

// A line on stderr that is redrawn in place; silent when stderr is not a terminal or --quiet was given.
class Progress {
 public:
  Progress(std::string label, int64_t total, bool quiet);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }
  void update(int64_t done, const std::string& note = "");  // draws at most ten times a second
  void clear();
  bool visible() const { return visible_; }

 private:
  std::string label_;
  int64_t total_;
  bool visible_;
  bool drawn_ = false;
  Stopwatch::time_point last_{};
};

// Set by SIGINT, SIGTERM and SIGHUP (a closed terminal); a second signal ends the program at once.
const std::atomic<bool>& interrupted();
// Handles these; closed pipes, full disks and files that shrink while mapped become errors where they are
// met.
void install_signal_handlers();
// The signal that set interrupted() (0: none), which is then waited for again. second_ends = false: a second
// one does not end the program either, as while a line is edited the terminal has to be given back first.
int rearm_signals(bool second_ends);
// Whether stdout is a pipe that nobody reads any more, as after `| head -1`.
bool stdout_has_no_reader();

// A message for a terminal, whatever it holds: one line of valid UTF-8 of at most some 4000 bytes without
// control characters, which could move the cursor or retitle the window.
std::string one_line(const std::string& text);

// One JSON object on stdout; bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& json);

}  // namespace lariat
