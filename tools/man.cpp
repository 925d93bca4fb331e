#include <fmt/ostream.h>

#include "tools/help.h"

namespace lariat {
namespace {

// Escapes troff text: copyable minus signs, line breaks after |, no accidental requests.
std::string troff(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else if (c == '|') {
      escaped += "|\\:";
    } else {
      escaped += c;
    }
  }
  return escaped.find_first_of(".'") == 0 ? "\\&" + escaped : escaped;
}

void print_option(const CLI::Option& option, std::ostream& out) {
  const std::string type = plain_type(option), heading = option_heading(option);
  const std::string names = heading.substr(0, heading.size() - type.size());
  fmt::print(out, ".TP\n\\fB{}\\fR\\fI{}\\fR\n{}\n", troff(names), troff(type), troff(option_text(option)));
}

void print_command(const CLI::App& command, std::ostream& out) {
  fmt::print(out, ".SS {}\n{}.\n", troff(command.get_name()), troff(command.get_description()));
  for (const std::string& usage : usage_of(command)) fmt::print(out, ".PP\n.B {}\n", troff(usage));
  for (const OptionGroup& group : option_groups(command)) {
    fmt::print(out, ".PP\n{}:\n", troff(group.name));
    for (const CLI::Option* option : group.options) print_option(*option, out);
  }
}

constexpr const char* kDescription = R"(.B lariat
runs Hugging Face checkpoint folders (config.json, *.safetensors, tokenizer.model or tokenizer.json) without conversion,
on the CPU or a CUDA GPU.
Its KV cache follows a dynamic RoPE scale: cached keys are re\-rotated, so the query and all keys always share one set of
frequencies.
Results are written to standard output; progress, warnings and errors to standard error.
.PP
In the usage of commands, N is an integer, F a number, TEXT any text (quoted for the shell), FILE and DIR a file and a
folder, and N,N,... a comma-separated list.
)";

constexpr const char* kExitStatus = R"(.TP
.B 0
Success.
.TP
.B 1
A failure at run time: a file, memory, a device, or an interrupted measurement.
.TP
.B 2
Wrong usage.
.PP
An error is one line on standard error with the problem and the remedy.
)";

constexpr const char* kFiles = R"(A model is a checkpoint folder as downloaded:
.TP
.I config.json
The architecture and the RoPE scaling. It is enough for
.BR "lariat rope" .
.TP
.IR model.safetensors ", " model.safetensors.index.json
The weights, in one file or several, memory\-mapped.
.TP
.IR tokenizer.model ", " tokenizer.json ", " qwen.tiktoken ", " tokenizer_config.json
The tokenizer. It is enough for
.BR "lariat tokenize" " and " "lariat detokenize" .
.TP
.IR chat_template.jinja ", " chat_template.json
The chat template, if missing in tokenizer_config.json.
.TP
.I generation_config.json
The stop tokens and sampling defaults.
)";

}  // namespace

void print_man_page(const CLI::App& app, std::ostream& out) {
  fmt::print(out, ".TH LARIAT 1 \"\" \"{}\" \"User Commands\"\n.ad l\n.nh\n", app.version());
  fmt::print(out, ".SH NAME\nlariat \\- {}\n", troff(app.get_description()));
  out << ".SH SYNOPSIS\n.B lariat\n.I COMMAND\n[options]\n.br\n.B lariat\n.RI [ COMMAND ]\n.B \\-\\-help\n";
  out << ".br\n.B lariat help\n.RI [ COMMAND ]\n.br\n.B lariat \\-\\-version\n.SH DESCRIPTION\n"
      << kDescription << ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) print_command(*command, out);
  out << ".SH EXIT STATUS\n" << kExitStatus << ".SH EXAMPLES\n";
  for (const CLI::App* command : commands_of(app)) {
    if (command->get_footer().empty()) continue;
    fmt::print(out, ".TP\n{}\n.EX\n{}\n.EE\n", troff(command->get_description()),
               troff(command->get_footer()));
  }
  out << ".SH FILES\n" << kFiles;
}

}  // namespace lariat
