#include "models/text/tokenizer.h"

#include <algorithm>

#include "kernels/error.h"
#include "models/json_fields.h"
#include "models/json_file.h"
#include "models/text/pipeline.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;
using tok::AddedToken;
using tok::Pipeline;

// What tokenizer_config.json (or, without one, special_tokens_map.json) says.
struct Settings {
  std::optional<std::string> bos_token, eos_token;
  std::optional<bool> add_bos, add_eos;
  bool split_special = false;
  std::vector<AddedToken> added;
};

// "<s>" or {"content": "<s>", …}.
std::optional<std::string> read_token(const JsonFields& fields, const char* key) {
  if (!fields.holds_object(key)) return fields.string(key);
  return fields.need_object(key).need_string("content");
}

// {"128000": {"content": …}, …}
std::vector<AddedToken> read_added_decoder(const JsonFields& fields) {
  std::vector<AddedToken> added;
  for (const std::string& key : fields.keys()) {
    const bool digits =
        !key.empty() && key.size() <= 8 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::stoll(key) >= tok::kMaxId) fields.fail(key.substr(0, 60), "not an id");
    added.push_back(tok::read_added_token(fields.need_object(key)));
    added.back().id = static_cast<int32_t>(std::stoll(key));
  }
  return added;
}

Settings read_settings(const fs::path& dir) {
  Settings settings;
  const bool has_config = fs::exists(dir / "tokenizer_config.json");
  const fs::path file = dir / (has_config ? "tokenizer_config.json" : "special_tokens_map.json");
  if (!fs::exists(file)) return settings;
  const nlohmann::json json = read_json(file);
  const JsonFields root(json, file.string(), "", JsonFields::with_key);
  settings.bos_token = read_token(root, "bos_token");
  settings.eos_token = read_token(root, "eos_token");
  settings.add_bos = root.boolean("add_bos_token");
  settings.add_eos = root.boolean("add_eos_token");
  settings.split_special = root.boolean("split_special_tokens").value_or(false);
  if (const auto fields = root.object("added_tokens_decoder")) settings.added = read_added_decoder(*fields);
  return settings;
}

// added_tokens.json, which accompanies a tokenizer.model: {"token": id}.
std::vector<AddedToken> read_added_tokens(const fs::path& dir) {
  std::vector<AddedToken> added;
  const fs::path file = dir / "added_tokens.json";
  if (!fs::exists(file)) return added;
  const nlohmann::json json = read_json(file);
  const JsonFields root(json, file.string(), "", JsonFields::with_key);
  for (const std::string& content : root.keys()) {
    if (content.empty()) root.fail("", "an empty token");
    const auto id = static_cast<int32_t>(root.need_integer(content, 0, tok::kMaxId - 1));
    added.push_back({.content = content, .id = id, .normalized = false});
  }
  return added;
}

std::optional<int32_t> find_id(const Pipeline& pipeline, const std::optional<std::string>& token) {
  if (!token) return std::nullopt;
  const auto it = pipeline.ids.find(*token);
  return it == pipeline.ids.end() ? std::nullopt : std::optional<int32_t>(it->second);
}

// transformers: an explicit add_bos_token (or add_eos_token) replaces the file's post-processor; so does a
// bos_token where the file has none. A tokenizer.model has no post-processor, and LlamaTokenizer adds BOS by
// default.
void settle_bos(Pipeline& pipeline, const Settings& settings) {
  pipeline.bos = find_id(pipeline, settings.bos_token);
  if (!settings.bos_token && pipeline.sentencepiece && pipeline.sentencepiece->bos() >= 0)
    pipeline.bos = pipeline.sentencepiece->bos();
  if (!settings.bos_token && !pipeline.bos && pipeline.template_prefix.size() == 1)
    pipeline.bos = pipeline.template_prefix[0];
  if (!pipeline.sentencepiece && !settings.add_bos && !settings.add_eos) {
    pipeline.prefix = pipeline.template_prefix;
    pipeline.adds_bos = !pipeline.prefix.empty();
  } else {
    pipeline.adds_bos = pipeline.bos && settings.add_bos.value_or(pipeline.sentencepiece.has_value());
  }
  if (pipeline.prefix.empty() && pipeline.bos) pipeline.prefix = {*pipeline.bos};
}

void settle_eos(Pipeline& pipeline, const Settings& settings) {
  pipeline.eos = find_id(pipeline, settings.eos_token);
  if (!pipeline.eos && pipeline.sentencepiece && pipeline.sentencepiece->eos() >= 0)
    pipeline.eos = pipeline.sentencepiece->eos();
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& model_dir) {
  auto pipeline = std::make_shared<Pipeline>();
  const Settings settings = read_settings(model_dir);
  if (fs::exists(model_dir / "tokenizer.json")) {
    tok::load_tokenizer_json(model_dir / "tokenizer.json", *pipeline);
  } else if (fs::exists(model_dir / "tokenizer.model")) {
    tok::load_sentencepiece(model_dir / "tokenizer.model", *pipeline);
    for (AddedToken& token : read_added_tokens(model_dir)) tok::add_token(*pipeline, std::move(token));
  } else {
    throw Error(model_dir.string() +
                ": no tokenizer.json and no tokenizer.model; put the model's tokenizer there");
  }
  pipeline->split_special = settings.split_special;
  for (const AddedToken& token : settings.added) tok::add_token(*pipeline, token);
  tok::index_tokens(*pipeline);
  settle_bos(*pipeline, settings);
  settle_eos(*pipeline, settings);
  return Tokenizer(std::move(pipeline));
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (int32_t id : ids) text += decoder.push(id);
  return text + decoder.flush();
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(pipeline_->tokens.size()); }
std::optional<int32_t> Tokenizer::bos_id() const { return pipeline_->bos; }
std::vector<int32_t> Tokenizer::eos_ids() const {
  return pipeline_->eos ? std::vector{*pipeline_->eos} : std::vector<int32_t>{};
}
bool Tokenizer::adds_bos() const { return pipeline_->adds_bos; }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return find_id(*pipeline_, std::string(token));
}

std::string Tokenizer::id_to_token(int32_t id) const {
  const Pipeline::Token* token = pipeline_->token(id);
  return token == nullptr ? "" : token->text;
}

bool Tokenizer::is_special(int32_t id) const {
  const Pipeline::Token* token = pipeline_->token(id);
  return token != nullptr && token->special;
}

bool Tokenizer::is_added(int32_t id) const {
  const auto& added = pipeline_->added;
  return std::any_of(added.begin(), added.end(), [&](const AddedToken& token) { return token.id == id; });
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : pipeline_(tokenizer.pipeline_),
      skip_special_(skip_special),
      chain_(new tok::DecodeChain(pipeline_->decode_steps), [](tok::DecodeChain* chain) { delete chain; }) {}

std::string StreamDecoder::push(int32_t id) {
  std::string out;
  const Pipeline::Token* token = pipeline_->token(id);
  if (token != nullptr && !(skip_special_ && token->special)) chain_->push(token->text, out);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out;
  chain_->finish(out);
  *chain_ = tok::DecodeChain(pipeline_->decode_steps);
  return out;
}

}  // namespace lariat
