#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "models/io/json_file.h"
#include "models/text/tokenizer.h"

namespace lariat::test {

inline std::filesystem::path golden_dir() {
  return std::filesystem::path(LARIAT_SOURCE_DIR) / "tests/golden/tokenizers";
}

// The folder with large tokenizers that are not part of the repository.
inline std::filesystem::path shared_dir() {
  const char* set = std::getenv("LARIAT_SHARED");
  return set ? std::filesystem::path(set) : std::filesystem::path(LARIAT_SOURCE_DIR).parent_path() / "shared";
}

// A folder that is gone at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "lariat_tok_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path = name;
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
  }
  std::filesystem::path path;
};

// A tokenizer made from the files of a committed one with some keys of its tokenizer.json replaced.
inline Tokenizer load_changed(const std::string& name, const nlohmann::json& change,
                              const nlohmann::json& config = nullptr) {
  nlohmann::json spec = read_json(golden_dir() / name / "tokenizer.json");
  for (const auto& [key, value] : change.items()) spec[key] = value;
  const TempDir dir;
  dir.write("tokenizer.json", spec.dump());
  if (!config.is_null()) dir.write("tokenizer_config.json", config.dump());
  return Tokenizer::load(dir.path);
}

inline std::string decode_one_by_one(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  StreamDecoder decoder(tokenizer, skip);
  std::string text;
  for (int32_t id : ids) text += decoder.push(id);
  return text + decoder.flush();
}

// The message of the Error that `action` throws, which must be one line; "" when it throws none.
template <typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "";
}

// Like refusal(), but the test fails when the action throws none.
template <typename Action>
std::string error_of(const Action& action) {
  const std::string what = refusal(action);
  EXPECT_NE(what, "") << "no error";
  return what;
}

}  // namespace lariat::test
