#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lariat {

// A model's architecture, shape, tensors and memory; "reason": the first error, why it does not run.
struct Facts {
  nlohmann::ordered_json json;
  std::vector<std::string> warnings;
};
// Reads no weights. ctx: sequence length for the KV cache; 0: the model's context. Throws Error if the path
// is no model.
Facts facts_of(const std::filesystem::path& model, int64_t ctx = 0);

}  // namespace lariat
