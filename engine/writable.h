#pragma once
#include <filesystem>

namespace lariat {

// Throws Error when a file of this name could not be written (it is a folder, there is no such folder, no
// permission), so that hours of work are not done for nothing.
void check_writable(const std::filesystem::path& file);

}  // namespace lariat
