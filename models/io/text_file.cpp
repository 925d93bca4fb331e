#include "models/io/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <utility>

#include "kernels/error.h"

namespace lariat {
namespace {

bool is_stdin(const std::filesystem::path& file) { return file == "-"; }

std::string read_all(std::istream& in, const std::string& name, uint64_t max_bytes) {
  std::string text;
  char chunk[1 << 16];
  while (in.read(chunk, sizeof chunk) || in.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(in.gcount()));
    if (text.size() > max_bytes)
      throw Error(fmt::format("{}: larger than {} bytes; give a smaller file", name, max_bytes));
  }
  if (in.bad()) throw Error(fmt::format("{}: reading failed ({})", name, std::strerror(errno)));
  refuse_lfs_pointer(text, name);
  return text;
}

}  // namespace

std::string input_name(const std::filesystem::path& file) {
  return is_stdin(file) ? "standard input" : file.string();
}

std::istream& standard_input() {
  static bool asked_for = false;
  if (std::exchange(asked_for, true))
    throw UsageError("standard input: is read twice; name a file for one of the two");
  struct stat status {};
  const int mode = ::fcntl(STDIN_FILENO, F_GETFL);
  if (mode < 0 || (mode & O_ACCMODE) == O_WRONLY || ::fstat(STDIN_FILENO, &status) != 0)
    throw Error("standard input: is closed; name a file, or send a text through a pipe");
  if (S_ISDIR(status.st_mode)) throw Error("standard input: is a folder; name a file");
  return std::cin;
}

std::string read_file(const std::filesystem::path& file, uint64_t max_bytes) {
  if (is_stdin(file)) return read_all(standard_input(), input_name(file), max_bytes);
  std::error_code ec;
  const auto status = std::filesystem::status(file, ec);
  if (!std::filesystem::exists(status)) throw Error(file.string() + ": no such file; check the path");
  if (std::filesystem::is_directory(status)) throw Error(file.string() + ": is a folder; name a file");
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    const char* advice =
        errno == ENOMEM ? "; free some memory, or raise its limit" : "; check its permissions";
    throw Error(fmt::format("{}: cannot be opened ({}){}", file.string(), std::strerror(errno), advice));
  }
  const uint64_t size = std::filesystem::file_size(file, ec);
  if (!ec && size > max_bytes) {
    throw Error(fmt::format("{}: {} bytes, more than the {} this kind of file may have; check the path",
                            file.string(), size, max_bytes));
  }
  return read_all(in, file.string(), max_bytes);
}

std::string_view without_bom(std::string_view text, const std::string& name) {
  // UTF-16 without a mark: every second byte of English, and of JSON's punctuation, is zero.
  const bool zeros = text.size() >= 4 && (text[0] == 0) == (text[2] == 0) &&
                     (text[1] == 0) == (text[3] == 0) && (text[0] == 0) != (text[1] == 0);
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") || zeros)
    throw Error(name + ": is UTF-16; convert it to UTF-8 (iconv -f utf-16 -t utf-8)");
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

void refuse_lfs_pointer(std::string_view bytes, const std::string& name) {
  if (bytes.starts_with("version https://git-lfs"))
    throw Error(name + ": is a Git LFS pointer; run git lfs pull in its repository to get the file itself");
  if (bytes.starts_with("../../blobs/"))
    throw Error(name +
                ": holds the name of a hub cache's blob instead of its bytes; copy the linked files "
                "(cp -rL), or download the model again");
}

}  // namespace lariat
