#include "models/json_file.h"

#include <cstring>
#include <fstream>

#include "kernels/error.h"

namespace lariat {
namespace {

constexpr uint64_t kMaxJsonBytes = uint64_t{256} << 20;
constexpr int kMaxJsonDepth = 64;

// nlohmann's parser recurses when it destroys deep values, so depth is bounded before it sees the text.
void check_depth(std::string_view text, const std::string& name) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        throw Error(name + ": JSON nested deeper than " + std::to_string(kMaxJsonDepth) +
                    " levels; not a checkpoint's file");
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& file, uint64_t max_bytes) {
  std::error_code ec;
  const auto status = std::filesystem::status(file, ec);
  if (!std::filesystem::exists(status)) throw Error(file.string() + ": no such file; check the path");
  if (std::filesystem::is_directory(status)) throw Error(file.string() + ": is a folder, not a file");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(file.string() + ": cannot be opened (" + std::strerror(errno) + ")");
  const uint64_t size = std::filesystem::file_size(file, ec);
  if (!ec && size > max_bytes) {
    throw Error(file.string() + ": " + std::to_string(size) + " bytes, more than the " +
                std::to_string(max_bytes) + " this kind of file may have");
  }
  std::string text;
  char chunk[1 << 16];
  while (in.read(chunk, sizeof chunk) || in.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(in.gcount()));
    if (text.size() > max_bytes)
      throw Error(file.string() + ": larger than " + std::to_string(max_bytes) + " bytes");
  }
  if (in.bad()) throw Error(file.string() + ": reading failed (" + std::strerror(errno) + ")");
  return text;
}

nlohmann::json parse_json(std::string_view text, const std::string& name) {
  check_depth(text, name);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    std::string what = e.what();
    // nlohmann prefixes "[json.exception.parse_error.101] "; the sentence after it is what helps.
    if (const size_t end = what.find("] "); end != std::string::npos) what.erase(0, end + 2);
    for (char& c : what) {
      if (c == '\n' || c == '\r') c = ' ';
    }
    throw Error(name + ": not valid JSON (" + what.substr(0, 200) + ")");
  }
}

nlohmann::json read_json(const std::filesystem::path& file) {
  return parse_json(read_file(file, kMaxJsonBytes), file.string());
}

}  // namespace lariat
