#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/io/json_file.h"
#include "models/text/tokenizer.h"
#include "tests/test_util.h"

namespace lariat::test {

inline std::filesystem::path golden_dir() { return source_dir() / "tests/golden/tokenizers"; }

// Replaces keys of a golden tokenizer.json.
inline Tokenizer load_changed(const std::string& name, const nlohmann::json& change,
                              const nlohmann::json& config = nullptr) {
  nlohmann::json spec = read_json(golden_dir() / name / "tokenizer.json");
  for (const auto& [key, value] : change.items()) spec[key] = value;
  const TempFolder dir;
  dir.put("tokenizer.json", spec.dump());
  if (!config.is_null()) dir.put("tokenizer_config.json", config.dump());
  return Tokenizer::load(dir.path);
}

inline std::string decode_one_by_one(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  StreamDecoder decoder(tokenizer, skip);
  std::string text;
  for (int32_t id : ids) text += decoder.push(id);
  return text + decoder.flush();
}

}  // namespace lariat::test
