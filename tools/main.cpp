#include <fmt/ostream.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>

#include "tools/common.h"

namespace {

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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("LLaMA-style inference with a consistent RoPE cache", "lariat");
  app.require_subcommand(1);
  app.set_version_flag("--version", "lariat " LARIAT_VERSION);
  lariat::install_signal_handlers();
  lariat::add_generate_command(app);
  lariat::add_chat_command(app);
  lariat::add_tokenize_commands(app);
  lariat::add_logits_command(app);
  lariat::add_bench_command(app);
  lariat::add_perplexity_command(app);
  lariat::add_passkey_command(app);
  lariat::add_sweep_command(app);
  lariat::add_rope_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    app.exit(e);  // --help, --version
    return finish();
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
  return finish();
}
