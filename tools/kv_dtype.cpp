#include "tools/kv_dtype.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/error.h"

namespace lariat {
namespace {

// The dtype of one side. Keys are rotated again and again, which eight bits would not survive.
std::optional<DType> parse_side(std::string_view text, std::string_view word, bool values) {
  if (word == "auto") return std::nullopt;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8}) {
    if (word == name_of(dtype) && (values || dtype != DType::kQ8)) return dtype;
  }
  throw UsageError(fmt::format(
      "'{}' is no dtype of a cache; use auto, f32, f16 or bf16, for keys and values or for each of "
      "them, as in k=f16,v=q8 (q8 for values only: keys are rotated)",
      text));
}

}  // namespace

KvDTypes parse_kv_dtypes(std::string_view text) {
  if (text.find('=') == std::string_view::npos) {
    const auto both = parse_side(text, text, false);
    return {both, both};
  }
  KvDTypes result;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, comma - at);
    const bool values = part.starts_with("v=");
    const std::string_view word = values || part.starts_with("k=") ? part.substr(2) : std::string_view();
    (values ? result.values : result.keys) = parse_side(text, word, values);
    at = comma + 1;
  }
  return result;
}

CLI::Option* add_kv_dtype_option(CLI::App& command, const std::string& name, std::string& value,
                                 const std::string& meaning) {
  return command.add_option(name, value, meaning)
      ->type_name("auto|f32|f16|bf16|k=..,v=..")
      ->check([](const std::string& text) {
        try {
          parse_kv_dtypes(text);
          return std::string();
        } catch (const UsageError& e) {
          return std::string(e.what());
        }
      });
}

}  // namespace lariat
