#include "models/model_files.h"

#include "models/families/gate.h"

namespace lariat {

ModelFiles open_files(const std::filesystem::path& path) {
  refuse_other_formats(path);
  return path;
}

}  // namespace lariat
