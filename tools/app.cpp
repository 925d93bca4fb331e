#include "tools/common.h"
#include "tools/help.h"

namespace lariat {

std::unique_ptr<CLI::App> make_app() {
  auto app = std::make_unique<CLI::App>("LLaMA-style inference with a consistent RoPE cache", "lariat");
  app->require_subcommand(1);
  prepare_help(*app);
  app->set_version_flag("-v,--version", "lariat " LARIAT_VERSION, "the program's version");
  // In the order of the help; a group's commands stand together.
  add_generate_command(*app);
  add_chat_command(*app);
  add_perplexity_command(*app);
  add_passkey_command(*app);
  add_sweep_command(*app);
  add_bench_command(*app);
  add_rope_command(*app);
  add_tokenize_commands(*app);
  add_logits_command(*app);
  finish_help(*app);
  return app;
}

}  // namespace lariat
