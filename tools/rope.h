#pragma once
#include <CLI/CLI.hpp>

namespace lariat {

// Registers `lariat rope`: what a RoPE scaling does to a model's frequencies, as a table, JSON or a picture.
// The subcommand's callback does the work and throws Error or UsageError.
void add_rope_command(CLI::App& app);

}  // namespace lariat
