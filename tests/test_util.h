#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/error.h"
#include "tests/skip.h"

namespace lariat::test {

// Whether `part` stands in `text`, as EXPECT_TRUE and EXPECT_FALSE take it.
inline testing::AssertionResult holds(std::string_view text, std::string_view part) {
  const bool found = text.find(part) != std::string_view::npos;
  return (found ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "'" << part << "' is " << (found ? "" : "not ") << "in: " << text;
}

// The text of the Error that `action` throws, which must be one line; "" when it throws none.
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

inline std::string slurp(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The cells of a row of a table in Markdown; a bar behind a backslash belongs to a cell.
inline std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells(1);
  for (size_t i = 1; i < row.size(); ++i) {
    if (row.compare(i, 2, "\\|") == 0) {
      cells.back() += row[++i];
    } else if (row[i] == '|') {
      cells.emplace_back();
    } else {
      cells.back() += row[i];
    }
  }
  cells.pop_back();
  for (std::string& cell : cells) {
    cell.erase(0, std::min(cell.find_first_not_of(' '), cell.size()));
    cell.erase(cell.find_last_not_of(' ') + 1);
  }
  return cells;
}

// Data outside the repository: ../shared, or $LARIAT_SHARED.
inline std::filesystem::path shared_dir() {
  const char* set = std::getenv("LARIAT_SHARED");
  return set != nullptr ? std::filesystem::path(set)
                        : std::filesystem::path(LARIAT_SOURCE_DIR).parent_path() / "shared";
}

// An empty folder, which goes with this.
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
  // In place of what is there, a link included.
  void put(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::filesystem::remove(path / name);
    std::ofstream(path / name, std::ios::binary) << bytes;
  }
  std::filesystem::path path;
};

// A test with a folder of its own.
class FolderTest : public testing::Test {
 protected:
  void put(const std::string& name, std::string_view bytes) const { folder_.put(name, bytes); }
  const TempFolder folder_;
  const std::filesystem::path& dir_ = folder_.path;
};

// Links to all files of a folder, in a new one.
inline void link_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::create_directories(to);
  for (const auto& entry : std::filesystem::directory_iterator(from))
    std::filesystem::create_symlink(entry.path(), to / entry.path().filename());
}

}  // namespace lariat::test
