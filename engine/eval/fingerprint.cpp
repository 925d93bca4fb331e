#include "engine/eval/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>

#include "kernels/error.h"

namespace lariat {
namespace {

constexpr std::streamoff kEnds = 1 << 20;  // bytes of either end of a file of weights

class Hash {
 public:
  void add(const char* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      value_ = (value_ ^ static_cast<unsigned char>(data[i])) * 0x100000001B3U;
  }
  void add(const std::string& text) { add(text.c_str(), text.size() + 1); }
  std::string hex() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value_));
    return text;
  }

 private:
  uint64_t value_ = 0xCBF29CE484222325U;
};

std::ifstream open(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(file.string() + ": cannot be read; check the name and its permissions");
  return in;
}

// At most `bytes` from where the stream stands.
void add_stream(std::ifstream& in, uintmax_t bytes, Hash& hash) {
  std::vector<char> buffer(1 << 16);
  while (bytes > 0 && in) {
    in.read(buffer.data(), static_cast<std::streamsize>(std::min<uintmax_t>(bytes, buffer.size())));
    const auto n = static_cast<size_t>(in.gcount());
    hash.add(buffer.data(), n);
    bytes -= n;
  }
}

}  // namespace

std::string file_fingerprint(const std::filesystem::path& file) {
  Hash hash;
  std::ifstream in = open(file);
  add_stream(in, UINTMAX_MAX, hash);
  return hash.hex();
}

std::string model_fingerprint(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string(), extension = entry.path().extension().string();
    const bool counts = extension == ".safetensors" || name == "config.json" || name == "tokenizer.json" ||
                        name == "tokenizer.model" || name == "tokenizer_config.json";
    if (counts && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Hash hash;
  for (const auto& file : files) {
    std::ifstream in = open(file);
    const auto size = std::filesystem::file_size(file);
    hash.add(file.filename().string());
    hash.add(std::to_string(size));
    const bool weights = file.extension() == ".safetensors" && size > 2 * static_cast<uintmax_t>(kEnds);
    add_stream(in, weights ? static_cast<uintmax_t>(kEnds) : size, hash);
    if (weights) {
      in.seekg(-kEnds, std::ios::end);
      add_stream(in, static_cast<uintmax_t>(kEnds), hash);
    }
  }
  return hash.hex();
}

}  // namespace lariat
