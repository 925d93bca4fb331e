#include "tests/fuzz/fuzz.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "models/text/unicode.h"

namespace lariat::fuzz {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  Folder() {
    std::error_code ec;
    const fs::path memory = "/dev/shm";
    std::string name =
        ((fs::is_directory(memory, ec) ? memory : fs::temp_directory_path()) / "lariat-fuzz-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "no folder for temporary files");
    path = name;
  }
  ~Folder() {
    std::error_code ec;
    fs::remove_all(path, ec);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

}  // namespace

void require(bool kept, const std::string& what) {
  if (kept) return;
  std::fprintf(stderr, "promise broken: %s\n", what.c_str());
  std::abort();
}

void run(Target target, std::string_view input) {
  constexpr double kMostSeconds = 1.0;
  const auto cpu_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double start = cpu_seconds();
  target(input);
  require(cpu_seconds() - start <= kMostSeconds, "one input took more than a second");
}

fs::path fresh_folder() {
  static const Folder folder;
  for (const auto& entry : fs::directory_iterator(folder.path)) fs::remove(entry.path());
  return folder.path;
}

void write(const fs::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  require(out.good(), "a temporary file could not be written");
}

std::string round_trip(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text, tokenizer.adds_bos());
  for (const int32_t id : ids)
    require(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");

  std::string one_by_one;
  StreamDecoder decoder(tokenizer, false);
  for (const int32_t id : ids) one_by_one += decoder.push(id);
  one_by_one += decoder.flush();
  require(is_utf8(one_by_one), "decoded text that is not UTF-8");
  require(is_utf8(tokenizer.decode(ids)), "decoded text that is not UTF-8 without special tokens");
  require(tokenizer.decode(ids, false) == one_by_one, "ids decoded one by one give another text");
  return one_by_one;
}

}  // namespace lariat::fuzz
