#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace lariat {

// Version, features and processor path of this program.
nlohmann::ordered_json build_json();

// Each adds one subcommand, whose callback throws Error on failure.
void add_generate_command(CLI::App& app);
void add_chat_command(CLI::App& app);
void add_tokenize_commands(CLI::App& app);  // tokenize and detokenize
void add_logits_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_score_command(CLI::App& app);
void add_tasks_command(CLI::App& app);
void add_perplexity_command(CLI::App& app);
void add_ask_command(CLI::App& app);
void add_passkey_command(CLI::App& app);
void add_sweep_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_rope_command(CLI::App& app);

}  // namespace lariat
