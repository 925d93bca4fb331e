#include "models/json_fields.h"
#include "models/json_file.h"
#include "models/text/tokenizer_data.h"
#include "models/text/tokenizer_json_node.h"

namespace lariat::tok {
namespace {

namespace fs = std::filesystem;

// "<s>" or {"content": "<s>", …} or null.
std::optional<std::string> read_token(const JsonNode& node) {
  if (node.is_null()) return std::nullopt;
  return node.json().is_object() ? node["content"].string() : node.string();
}

std::optional<bool> read_flag(const JsonNode& node) {
  if (node.is_null()) return std::nullopt;
  return node.boolean(false);
}

// {"128000": {"content": …}, …}
void read_added_decoder(const JsonNode& node, std::vector<AddedToken>& added) {
  if (node.is_null()) return;
  if (!node.json().is_object()) node.fail("expected an object of id: token");
  for (const auto& [key, value] : node.json().items()) {
    const bool digits =
        !key.empty() && key.size() <= 8 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::stoll(key) >= kMaxId) node.fail("not an id: '" + key.substr(0, 60) + "'");
    AddedToken token = read_added_token(node[key.c_str()]);
    token.id = static_cast<int32_t>(std::stoll(key));
    added.push_back(std::move(token));
  }
}

}  // namespace

TokenizerSettings read_settings(const fs::path& dir) {
  TokenizerSettings settings;
  const bool has_config = fs::exists(dir / "tokenizer_config.json");
  const fs::path path = dir / (has_config ? "tokenizer_config.json" : "special_tokens_map.json");
  if (!fs::exists(path)) return settings;
  const nlohmann::json json = read_json(path);
  const std::string file = path.string();
  const JsonNode root(json, file);
  settings.bos_token = read_token(root["bos_token"]);
  settings.eos_token = read_token(root["eos_token"]);
  settings.add_bos = read_flag(root["add_bos_token"]);
  settings.add_eos = read_flag(root["add_eos_token"]);
  settings.split_special = root["split_special_tokens"].boolean(false);
  read_added_decoder(root["added_tokens_decoder"], settings.added);
  return settings;
}

std::vector<int32_t> read_eos_ids(const fs::path& dir) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!fs::exists(dir / name)) continue;
    const nlohmann::json json = read_json_object(dir / name);
    const auto ids = JsonFields(json, (dir / name).string()).integers("eos_token_id", 0, kMaxId - 1);
    if (ids) return {ids->begin(), ids->end()};
  }
  return {};
}

std::vector<AddedToken> read_added_tokens(const fs::path& dir) {
  std::vector<AddedToken> added;
  const fs::path path = dir / "added_tokens.json";
  if (!fs::exists(path)) return added;
  const nlohmann::json json = read_json(path);
  const std::string file = path.string();
  const JsonNode root(json, file);
  if (!json.is_object()) root.fail("expected an object of token: id");
  for (const auto& [content, value] : json.items()) {
    if (content.empty()) root.fail("an empty token");
    AddedToken token;
    token.content = content;
    token.id = static_cast<int32_t>(JsonNode(value, file, content).integer(kMaxId));
    token.normalized = false;
    added.push_back(std::move(token));
  }
  return added;
}

}  // namespace lariat::tok
