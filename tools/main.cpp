#include <fmt/ostream.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <new>

#include "tools/common.h"
#include "tools/help.h"

namespace {

// For who types nothing but the name.
constexpr const char* kGettingStarted =
    R"(lariat runs Hugging Face checkpoint folders as they are. With one in DIR:
  lariat generate --model DIR --prompt "Once upon a time"    continue a text
  lariat chat --model DIR                                    talk to it
  lariat sweep --model DIR --report sweep.html               find what carries it further
lariat --help lists the commands, lariat COMMAND --help a command's options.
)";

int fail(const std::string& what, int code) {
  std::cout.flush();
  fmt::print(std::cerr, "lariat: error: {}\n", lariat::one_line(what));
  return code;
}

// The results stand on stdout, so a run whose output was lost has failed. A reader that has seen enough is no
// error: the exit code is the one that SIGPIPE would have left.
int finish() {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  if (lariat::stdout_has_no_reader()) return 128 + SIGPIPE;
  return fail("standard output could not be written; check the space left on its disk", 1);
}

int run(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app = lariat::make_app();
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc < 2) {
    std::cerr << kGettingStarted;
    return 2;  // a script that forgot the command has not succeeded
  }
  if (first == "__complete") {
    lariat::print_completions(*app, {argv + 2, argv + argc}, std::cout);
    return finish();
  }
  if (first == "__man") {
    lariat::print_man_page(*app, std::cout);
    return finish();
  }
  try {
    app->parse(argc, argv);
  } catch (const CLI::Success& e) {
    app->exit(e);  // --help, --version
  }
  return finish();
}

}  // namespace

int main(int argc, char** argv) {
  lariat::install_signal_handlers();
  try {
    return run(argc, argv);
  } catch (const CLI::ParseError& e) {
    return fail(std::string(e.what()) + "; see lariat --help", 2);
  } catch (const lariat::UsageError& e) {
    return fail(e.what() + lariat::advice(e), 2);
  } catch (const lariat::Error& e) {
    return fail(e.what() + lariat::advice(e), 1);
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use a shorter --ctx, --kv-dtype f16 or a smaller model", 1);
  } catch (const std::exception& e) {
    return fail(e.what(), 1);
  }
}
