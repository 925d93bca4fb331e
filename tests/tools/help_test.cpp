#include "tools/help.h"

#include <algorithm>
#include <set>

#include "tests/tools/program.h"
#include "tools/output.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

const fs::path kCompletion = source_dir() / "scripts" / "completion";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Parses like the program without running it.
void parse_dry(const std::string& line) {
  struct Parsed {};
  const std::string program = "lariat ";
  ASSERT_EQ(line.rfind(program, 0), 0U) << line;
  const auto app = make_app();
  for (const CLI::App* command : commands_of(*app)) {
    app->get_subcommand(command->get_name())->parse_complete_callback([] { throw Parsed{}; });
  }
  try {
    app->parse(line.substr(program.size()));
    FAIL() << line << " has no command";
  } catch (const Parsed&) {  // all required options are present
    if (const auto unknown = app->remaining(true); !unknown.empty())
      throw CLI::ExtrasError("lariat", unknown);
  }
}

int shell(const std::string& line) { return WEXITSTATUS(std::system(line.c_str())); }
bool have(const std::string& program) { return shell("command -v " + program + " >/dev/null") == 0; }

TEST(Help, WithoutCommandIsFiveWorkingLines) {
  const Outcome alone = run_lariat("");
  EXPECT_EQ(alone.code, 2);
  EXPECT_EQ(alone.out, "");
  const auto lines = lines_of(alone.err);
  ASSERT_EQ(lines.size(), 5U) << alone.err;
  for (size_t i = 1; i < 4; ++i) {
    const std::string call = lines[i].substr(2, lines[i].find("    ", 2) - 2);
    EXPECT_NO_THROW(parse_dry(call)) << call;
  }
}

TEST(Help, ListsEveryCommandUnderItsGroup) {
  const Outcome help = run_lariat("--help");
  EXPECT_EQ(help.code, 0);
  const auto app = make_app();
  std::set<std::string> groups;
  for (const CLI::App* command : commands_of(*app)) {
    const size_t group = help.out.find("\n" + command->get_group() + ":\n");
    ASSERT_NE(group, std::string::npos) << command->get_group();
    const size_t line = help.out.find("\n  " + command->get_name() + " ", group);
    ASSERT_NE(line, std::string::npos) << command->get_name();
    EXPECT_FALSE(holds(help.out.substr(group + 1, line - group - 1), "\n\n"))
        << command->get_name() << " is listed outside " << command->get_group();
    groups.insert(command->get_group());
  }
  EXPECT_EQ(groups, (std::set<std::string>{kUseCommands, kMeasureCommands, kLookCommands}));
}

std::string unspaced(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

TEST(Help, CommandHelpIsPlain) {
  const auto app = make_app();
  for (const CLI::App* command : commands_of(*app)) {
    const Outcome help = run_lariat(command->get_name() + " --help");
    EXPECT_EQ(help.code, 0);
    for (const char* raw : {"INT", "FLOAT", ":{", " in [", "(default", "default "}) {
      EXPECT_FALSE(holds(help.out, raw)) << raw << " in " << help.out;
    }
    for (const std::string& line : lines_of(help.out)) EXPECT_LE(line.size(), 80U) << line;
    for (const OptionGroup& group : option_groups(*command)) {
      EXPECT_TRUE(holds(help.out, "\n" + group.name + ":\n"));
      for (const CLI::Option* option : group.options) {
        const std::string heading = option_heading(*option);
        EXPECT_TRUE(holds(unspaced(help.out), unspaced(heading)));
        if (option->get_items_expected_max() == 0 || option->get_required()) continue;
        std::string value = option->get_default_str();
        value.erase(0, value.find_first_not_of('['));
        value.erase(std::min(value.find(']'), value.size()));
        if (value.empty()) continue;
        const std::string text = unspaced(help.out);
        EXPECT_NE(text.find(unspaced("[default: " + value + "]"), text.find(unspaced(heading))), text.npos)
            << heading << " in " << help.out;
      }
    }
  }
}

TEST(Help, AcceptsACommandName) {
  for (const std::string name : {"generate", "detokenize"})
    EXPECT_EQ(run_lariat("help " + name).out, run_lariat(name + " --help").out);
  for (const std::string of_all : {"help", "help help", "help version"})
    EXPECT_EQ(run_lariat(of_all).out, run_lariat("--help").out);
  for (const std::string version : {"-v", "version"})
    EXPECT_EQ(run_lariat(version).out, run_lariat("--version").out);
}

// A long option of llama.cpp brings its short option.
TEST(Help, ShortNamesAreLlamaCpps) {
  const auto app = make_app();
  for (const CLI::App* command : commands_of(*app)) {
    for (const auto& [name, letter] :
         {std::pair("model", "m"), std::pair("threads", "t"), std::pair("ctx", "c"), std::pair("file", "f"),
          std::pair("prompt-file", "f"), std::pair("max-new-tokens", "n"), std::pair("prompt", "p")}) {
      for (const CLI::Option* option : options_of(*command)) {
        if (!option->check_lname(name)) continue;
        EXPECT_TRUE(option->check_sname(letter)) << command->get_name() << " --" << name;
      }
    }
  }
}

TEST(Help, DescribesGenerate) {
  const std::string help = run_lariat("generate --help").out;
  for (const char* part : {"--max-new-tokens N ", "[default: 128]", "--device auto|cpu|cuda|cuda:N ",
                           "--model DIR ", "[required]", "(--prompt TEXT | --prompt-file FILE)",
                           "--rope-cache consistent|stale", "[default: the model's own]"}) {
    EXPECT_TRUE(holds(help, part));
  }
}

// Errors outside tools/ quote settings in backticks.
TEST(Help, SettingsAreOptions) {
  const auto app = make_app();
  std::string commands;
  for (const CLI::App* command : commands_of(*app)) commands += command->help();
  for (const std::string setting :
       {"model", "device", "threads", "dtype", "quantize", "kv_dtype", "max_ctx", "prefill_chunk",
        "rope_steps", "rope_scaling", "rope_factor", "rope_original_ctx", "rope_theta", "rope_config",
        "position_method", "max_tokens", "lengths", "scalings", "resume"}) {
    const std::string option = with_options("`" + setting + "`");
    EXPECT_TRUE(option.starts_with("--")) << setting;
    EXPECT_TRUE(holds(commands, option + " "));
  }
  EXPECT_EQ(with_options("use `kv_dtype` f16, not `this`"), "use --kv-dtype f16, not `this`");
}

TEST(Help, ExamplesParse) {
  const auto app = make_app();
  for (const CLI::App* command : commands_of(*app)) {
    const std::string example = command->get_footer();
    EXPECT_EQ(example.rfind("lariat " + command->get_name() + " ", 0), 0U) << command->get_name();
    EXPECT_NO_THROW(parse_dry(example)) << example;
    EXPECT_TRUE(holds(command->help(), "\n  " + example + "\n"));
  }
  EXPECT_THROW(parse_dry("lariat generate --model DIR --promt x"), CLI::ParseError);
  EXPECT_THROW(parse_dry("lariat generate --prompt x"), CLI::ParseError);
}

// The last word is incomplete.
std::vector<std::string> bash_offers(const std::vector<std::string>& words) {
  const TempFolder folder;
  const fs::path script = folder.path / "complete.sh";
  std::string list;
  for (const std::string& word : words) list += " '" + word + "'";
  std::ofstream(script) << "source '" << (kCompletion / "lariat.bash").string()
                        << "'\ncompopt() { echo compopt \"$@\"; }\nCOMP_WORDS=('" << lariat_program() << "'"
                        << list << ")\nCOMP_CWORD=" << words.size()
                        << "\n_lariat\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const fs::path out = script.string() + ".out";
  EXPECT_EQ(shell("bash --norc " + script.string() + " >" + out.string()), 0);
  auto offers = lines_of(slurp(out));
  std::erase(offers, "");
  std::sort(offers.begin(), offers.end());
  return offers;
}

using Words = std::vector<std::string>;

TEST(Completion, OffersCommandsOptionsAndValues) {
  EXPECT_EQ(bash_offers({"pe"}), Words{"perplexity"});
  EXPECT_EQ(bash_offers({""}).size(), commands_of(*make_app()).size() + 1);
  EXPECT_EQ(bash_offers({"he"}), Words{"help"});
  EXPECT_EQ(bash_offers({"help", ""}).size(), commands_of(*make_app()).size());
  EXPECT_EQ(bash_offers({"help", "pe"}), Words{"perplexity"});
  EXPECT_EQ(bash_offers({"help", "generate", "--"}), Words{});
  EXPECT_EQ(bash_offers({"--v"}), Words{"--version"});
  EXPECT_EQ(bash_offers({"generate", "--max"}), Words{"--max-new-tokens"});
  EXPECT_EQ(bash_offers({"generate", "--device", ""}), (Words{"auto", "cpu", "cuda"}));
  EXPECT_EQ(bash_offers({"generate", "--device", "=", "c"}), (Words{"cpu", "cuda"}));  // --device=c
  EXPECT_EQ(bash_offers({"generate", "--device", "="}), (Words{"auto", "cpu", "cuda"}));
  EXPECT_EQ(bash_offers({"rope", "--rope-steps", ""}), Words{"exact"});
  EXPECT_EQ(bash_offers({"sweep", "--scalings", "none,dynamic-"}),
            (Words{"none,dynamic-yarn", "none,dynamic-yarn-radix"}));
  EXPECT_EQ(bash_offers({"generate", "--max-new-tokens", ""}), Words{});
  EXPECT_EQ(bash_offers({"no-such-command", "--"}), Words{});
}

TEST(Completion, OffersAnOptionOnceAndNoHiddenOne) {
  EXPECT_EQ(bash_offers({"generate", "--device", "cpu", "--dev"}), Words{});
  EXPECT_EQ(bash_offers({"generate", "--stop", "x", "--sto"}), Words{"--stop"});
  EXPECT_EQ(bash_offers({"generate", "--rope-r"}), Words{});
  EXPECT_EQ(bash_offers({"sweep", "--rope-sc"}), Words{});
}

// The function selects files or folders.
TEST(Completion, LeavesFilesAndFoldersToBash) {
  EXPECT_EQ(bash_offers({"generate", "--model", "a"}), Words{"compopt -o dirnames"});
  EXPECT_EQ(bash_offers({"generate", "--prompt-file", "a"}), Words{"compopt -o default"});
  EXPECT_EQ(bash_offers({"sweep", "--merge", "x.jsonl", "a"}), Words{"compopt -o default"});
}

TEST(ManPage, DescribesEveryOption) {
  const std::string page = run_lariat("__man").out;
  for (const char* section :
       {"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "EXIT STATUS", "EXAMPLES", "FILES"}) {
    EXPECT_TRUE(holds(page, std::string("\n.SH ") + section + "\n"));
  }
  const auto app = make_app();
  for (const CLI::App* command : commands_of(*app)) {
    const size_t start = page.find("\n.SS " + command->get_name() + "\n");
    ASSERT_NE(start, std::string::npos) << command->get_name();
    const std::string part = page.substr(start, page.find("\n.S", start + 1) - start);
    for (const CLI::Option* option : options_of(*command)) {
      std::string name;
      for (const char c : "--" + option->get_lnames()[0]) name += c == '-' ? "\\-" : std::string(1, c);
      EXPECT_TRUE(holds(part, name)) << name << " of " << command->get_name();
    }
  }
}

TEST(ManPage, IsValidTroff) {
  if (!have("groff")) LARIAT_SKIP("groff is not installed");
  const TempFolder folder;
  const std::string page = (folder.path / "lariat.1").string();
  EXPECT_EQ(shell(lariat_program() + " __man >" + page), 0);
  EXPECT_EQ(shell("groff -man -ww -b -Tutf8 -z " + page + " 2>" + page + ".err"), 0);
  EXPECT_EQ(slurp(page + ".err"), "");
}

}  // namespace
}  // namespace lariat::test
