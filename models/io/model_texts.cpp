#include "models/io/model_texts.h"

#include <fmt/format.h>

#include "kernels/error.h"
#include "models/io/json_file.h"
#include "models/io/text_file.h"

namespace lariat {

ModelTexts::ModelTexts(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ec;
  config_ = std::filesystem::is_directory(path_, ec) ? path_ / "config.json" : path_;
}

ModelTexts::ModelTexts(std::filesystem::path path, Makers makers, Vocabulary vocabulary,
                       JsonFields::Wording wording)
    : path_(std::move(path)),
      makers_(std::move(makers)),
      vocabulary_(std::move(vocabulary)),
      wording_(std::move(wording)) {}

std::filesystem::path ModelTexts::file(std::string_view name) const {
  if (makers_) return path_;
  return name == "config.json" ? config_ : config_.parent_path() / name;
}

bool ModelTexts::has(std::string_view name) const {
  if (makers_) return makers_->contains(name);
  std::error_code ec;
  return (name == "config.json" || config_.filename() == "config.json") &&
         std::filesystem::exists(file(name), ec);
}

std::string ModelTexts::read(std::string_view name, uint64_t max_bytes) const {
  if (!makers_) return read_file(file(name), max_bytes);
  const auto maker = makers_->find(name);
  if (maker == makers_->end())
    throw Error(fmt::format("{}: holds no {}; use another conversion of the model", path_.string(), name));
  const Made made = maker->second();
  const auto* json = std::get_if<nlohmann::json>(&made);
  std::string text = json != nullptr ? json->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                                     : std::get<std::string>(made);
  if (text.size() > max_bytes)
    throw Error(fmt::format("{}: its {} has more than {} bytes; use another conversion of the model",
                            path_.string(), name, max_bytes));
  return text;
}

nlohmann::json ModelTexts::json(std::string_view name) const {
  return makers_ ? parse_json(read(name, kMaxJsonBytes), path_.string()) : read_json(file(name));
}

const nlohmann::json& ModelTexts::object(std::string_view name) const {
  const std::lock_guard lock(objects_->mutex);
  auto& parsed = objects_->parsed;
  if (const auto known = parsed.find(name); known != parsed.end()) return known->second;
  Made made;
  if (makers_ && has(name)) made = makers_->find(name)->second();
  if (!std::holds_alternative<nlohmann::json>(made))
    made = parse_json_object(read(name, kMaxConfigBytes), file(name).string());
  return parsed.emplace(name, std::get<nlohmann::json>(std::move(made))).first->second;
}

}  // namespace lariat
