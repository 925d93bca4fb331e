#include "models/io/model_texts.h"

#include "models/io/json_file.h"
#include "models/io/text_file.h"

namespace lariat {

ModelTexts::ModelTexts(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ec;
  config_ = std::filesystem::is_directory(path_, ec) ? path_ / "config.json" : path_;
}

std::filesystem::path ModelTexts::file(std::string_view name) const {
  return name == "config.json" ? config_ : config_.parent_path() / name;
}

bool ModelTexts::has(std::string_view name) const {
  std::error_code ec;
  return (name == "config.json" || config_.filename() == "config.json") &&
         std::filesystem::exists(file(name), ec);
}

std::string ModelTexts::read(std::string_view name, uint64_t max_bytes) const {
  return read_file(file(name), max_bytes);
}

nlohmann::json ModelTexts::json(std::string_view name) const { return read_json(file(name)); }

}  // namespace lariat
