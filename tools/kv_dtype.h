#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "engine/lariat.h"

namespace lariat {

// "auto", "f32", "f16" or "bf16" for both, or "k=..", "v=.." or "k=..,v=..", where values may be "q8" too.
// Throws UsageError on anything else.
KvDTypes parse_kv_dtypes(std::string_view text);

// An option whose value parse_kv_dtypes takes.
CLI::Option* add_kv_dtype_option(CLI::App& command, const std::string& name, std::string& value,
                                 const std::string& meaning);

}  // namespace lariat
