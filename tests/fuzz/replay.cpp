// Runs targets without libFuzzer: fuzz_replay TARGET FILE_OR_FOLDER...
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace lariat::fuzz {
namespace {

namespace fs = std::filesystem;

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

std::vector<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int replay(const std::string& name, const std::vector<fs::path>& paths) {
  const auto target = targets().find(name);
  if (target == targets().end()) {
    std::fprintf(stderr, "fuzz_replay: no target %s; there are", name.c_str());
    for (const auto& [known, unused] : targets()) std::fprintf(stderr, " %s", known.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  size_t count = 0;
  for (const fs::path& path : paths) {
    for (const fs::path& file : files_of(path)) {
      std::ifstream in(file, std::ios::binary);
      require(in.good(), file.string() + " cannot be read");
      const std::string bytes(std::istreambuf_iterator<char>(in), {});
      std::fprintf(stderr, "%s\n", file.c_str());  // before a crash
      run(target->second, bytes);
      ++count;
    }
  }
  std::fprintf(stderr, "%s: %zu files\n", name.c_str(), count);
  return count > 0 ? 0 : 2;
}

}  // namespace

Registration::Registration(const char* name, Target target) { targets()[name] = target; }

}  // namespace lariat::fuzz

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "fuzz_replay: TARGET FILE_OR_FOLDER...\n");
    return 2;
  }
  return lariat::fuzz::replay(argv[1], {argv + 2, argv + argc});
}
