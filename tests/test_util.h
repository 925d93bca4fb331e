#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/error.h"
#include "tests/skip.h"
#include "tests/source_dir.h"

namespace lariat::test {

inline testing::AssertionResult holds(std::string_view text, std::string_view part) {
  const bool found = text.find(part) != std::string_view::npos;
  return (found ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "'" << part << "' is " << (found ? "" : "not ") << "in: " << text;
}

// `text` contains all of `words`, separated by " | " (files, options, keys, values), as whole words.
inline testing::AssertionResult names(std::string_view text, std::string_view words) {
  const auto of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(" | "));
    words.remove_prefix(std::min(words.size(), word.size() + 3));
    size_t at = text.find(word);
    const auto within = [&] {  // part of a longer word
      const size_t end = at + word.size();
      return (at > 0 && of_word(word.front()) && of_word(text[at - 1])) ||
             (end < text.size() && of_word(word.back()) && of_word(text[end]));
    };
    while (at != std::string_view::npos && within()) at = text.find(word, at + 1);
    if (at == std::string_view::npos)
      return testing::AssertionFailure() << "'" << word << "' is not named in: " << text;
  }
  return testing::AssertionSuccess() << "every word is named in: " << text;
}

// The Error's message, which must be one line; "" without an Error.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "";
}

// Replaces all but letters and digits by _.
inline std::string test_name(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

inline std::string slurp(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Data outside the repository: ../shared, or $LARIAT_SHARED.
inline std::filesystem::path shared_dir() {
  const char* set = std::getenv("LARIAT_SHARED");
  return set != nullptr ? std::filesystem::path(set) : source_dir().parent_path() / "shared";
}

// An empty folder, deleted with the object.
struct TempFolder {
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lariat-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder " + name);
    path = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ec;
    std::filesystem::remove_all(path, ec);
  }
  void put(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::filesystem::remove(path / name);
    std::ofstream(path / name, std::ios::binary) << bytes;
  }
  std::filesystem::path path;
};

class FolderTest : public testing::Test {
 protected:
  void put(const std::string& name, std::string_view bytes) const { folder_.put(name, bytes); }
  const TempFolder folder_;
  const std::filesystem::path& dir_ = folder_.path;
};

inline void link_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::create_directories(to);
  for (const auto& entry : std::filesystem::directory_iterator(from))
    std::filesystem::create_symlink(entry.path(), to / entry.path().filename());
}

}  // namespace lariat::test
