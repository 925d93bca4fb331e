#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "tools/help.h"
#include "tools/output.h"
#include "tools/ranks.h"
#include "tools/signals.h"
#include "tools/usage.h"

namespace {

// Printed without arguments.
constexpr const char* kGettingStarted =
    R"(lariat runs Hugging Face checkpoint folders without conversion. With a checkpoint in DIR:
  lariat generate --model DIR --prompt "Once upon a time"    continue a text
  lariat chat --model DIR                                    talk to it
  lariat sweep --model DIR --report sweep.html               find what carries it further
lariat --help lists the commands, lariat COMMAND --help a command's options.
)";

int fail(const std::string& what, int code) {
  std::cout.flush();
  if (code == 1 && lariat::ranks() != nullptr) lariat::end_ranks(what);
  lariat::say("error: " + (code == 1 ? lariat::launched_rank() : "") + what);
  return code;
}

// A run fails if its stdout was lost, except for a closed pipe: 128 + SIGPIPE.
int finish() {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  if (lariat::stdout_has_no_reader()) return 128 + SIGPIPE;
  return fail("standard output: could not be written; check the space left on its disk", 1);
}

// Otherwise the next opened file would take a closed stream's descriptor.
void keep_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int run(const std::vector<std::string>& words) {
  const std::unique_ptr<CLI::App> app = lariat::make_app();
  if (words.empty()) {
    std::cerr << kGettingStarted;
    return 2;  // fails, for scripts that forgot the command
  }
  const std::vector<std::string> more(words.begin() + 1, words.end());
  if (words[0] == "__complete") {
    lariat::print_completions(*app, more, std::cout);
    return finish();
  }
  if (words[0] == "__man") {
    lariat::print_man_page(*app, std::cout);
    return finish();
  }
  try {
    if (words[0] == "help") {
      std::cout << lariat::help_of(*app, more.empty() ? "" : more[0]);
    } else if (words[0] == "version") {
      std::cout << app->version() << "\n";
    } else {
      lariat::check_options_of_ranks(words);
      app->parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 expects reversed words
    }
  } catch (const lariat::Followed&) {
    return 0;
  } catch (const CLI::Success& e) {
    app->exit(e);  // --help, --version
  } catch (const CLI::ParseError& e) {
    return fail(lariat::explain(*app, e, words), 2);
  } catch (const lariat::UsageError& e) {
    return fail(e.what() + lariat::see_help(*app, words), 2);
  }
  return finish();
}

// Exit code of `work`, after its error was printed.
template <class Work>
int caught(const Work& work) {
  try {
    return work();
  } catch (const lariat::Error& e) {
    return fail(e.what(), 1);
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use a shorter --ctx or a smaller model", 1);
  } catch (const std::exception& e) {
    return fail(e.what(), 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_closed_streams();
  lariat::install_signal_handlers();
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  return caught([&] {
    const lariat::CommandRanks ranks(words);
    return caught([&] { return run(words); });  // in here, an error ends all ranks
  });
}
