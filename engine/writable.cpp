#include "engine/writable.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "kernels/error.h"

namespace lariat {

void check_writable(const std::filesystem::path& file) {
  std::error_code ec;
  if (file.empty() || std::filesystem::is_directory(file, ec)) {
    throw Error(file.string() + ": is a folder; give the name of a file to write");
  }
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, ec)) {
    throw Error(file.string() + ": there is no folder " + folder.string() + "; make it first");
  }
  const bool exists = std::filesystem::exists(file, ec);
  if (::access(exists ? file.c_str() : folder.c_str(), W_OK) != 0) {
    throw Error(file.string() + ": cannot write there: " + std::strerror(errno));
  }
}

}  // namespace lariat
