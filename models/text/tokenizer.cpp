#include "models/text/tokenizer.h"

#include "kernels/error.h"
#include "models/text/tokenizer_data.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;
using tok::AddedToken;
using tok::Pipeline;
using tok::TokenizerData;
using tok::TokenizerSettings;

std::optional<int32_t> find_id(const Pipeline& pipeline, const std::optional<std::string>& token) {
  if (!token) return std::nullopt;
  const auto it = pipeline.ids.find(*token);
  return it == pipeline.ids.end() ? std::nullopt : std::optional<int32_t>(it->second);
}

// transformers: an explicit add_bos_token (or add_eos_token) replaces the file's post-processor; so does a
// bos_token where the file has none. A tokenizer.model has no post-processor, and LlamaTokenizer adds BOS by
// default.
void settle_bos(TokenizerData& data, const TokenizerSettings& settings) {
  const Pipeline& pipeline = data.pipeline;
  data.bos = find_id(pipeline, settings.bos_token);
  if (pipeline.sentencepiece && !data.bos && !settings.bos_token && pipeline.sentencepiece->bos() >= 0) {
    data.bos = pipeline.sentencepiece->bos();
  }
  if (!data.bos && !settings.bos_token && pipeline.prefix.size() == 1) data.bos = pipeline.prefix[0];
  std::vector<int32_t> own;
  if (data.bos) own = {*data.bos};
  const bool explicitly = settings.add_bos || settings.add_eos;
  if (pipeline.sentencepiece) {
    data.adds_bos = settings.add_bos.value_or(true) && data.bos;
    data.prefix = own;
  } else if (explicitly) {
    data.adds_bos = settings.add_bos.value_or(false) && data.bos;
    data.prefix = own;
  } else {
    data.adds_bos = !pipeline.prefix.empty();
    data.prefix = data.adds_bos ? pipeline.prefix : own;
  }
}

void settle_eos(TokenizerData& data, const TokenizerSettings& settings, const fs::path& dir) {
  data.eos = tok::read_eos_ids(dir);
  if (!data.eos.empty()) return;
  if (const auto id = find_id(data.pipeline, settings.eos_token)) {
    data.eos = {*id};
  } else if (data.pipeline.sentencepiece && data.pipeline.sentencepiece->eos() >= 0) {
    data.eos = {data.pipeline.sentencepiece->eos()};
  }
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& model_dir) {
  auto data = std::make_shared<TokenizerData>();
  Pipeline& pipeline = data->pipeline;
  const TokenizerSettings settings = tok::read_settings(model_dir);
  if (fs::exists(model_dir / "tokenizer.json")) {
    tok::load_tokenizer_json(model_dir / "tokenizer.json", pipeline);
  } else if (fs::exists(model_dir / "tokenizer.model")) {
    tok::load_sentencepiece(model_dir / "tokenizer.model", pipeline);
    for (AddedToken& token : tok::read_added_tokens(model_dir)) tok::add_token(pipeline, std::move(token));
  } else {
    throw Error(model_dir.string() +
                ": no tokenizer.json and no tokenizer.model; put the model's tokenizer there");
  }
  pipeline.split_special = settings.split_special;
  for (const AddedToken& token : settings.added) tok::add_token(pipeline, token);
  tok::index_tokens(pipeline);
  settle_bos(*data, settings);
  settle_eos(*data, settings, model_dir);
  return Tokenizer(std::move(data));
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (int32_t id : ids) text += decoder.push(id);
  return text + decoder.flush();
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(data_->pipeline.tokens.size()); }
std::optional<int32_t> Tokenizer::bos_id() const { return data_->bos; }
std::vector<int32_t> Tokenizer::eos_ids() const { return data_->eos; }
bool Tokenizer::adds_bos() const { return data_->adds_bos; }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return find_id(data_->pipeline, std::string(token));
}

std::string Tokenizer::id_to_token(int32_t id) const {
  const auto& tokens = data_->pipeline.tokens;
  return id < 0 || static_cast<size_t>(id) >= tokens.size() ? "" : tokens[static_cast<size_t>(id)].text;
}

bool Tokenizer::is_special(int32_t id) const {
  const auto& tokens = data_->pipeline.tokens;
  return id >= 0 && static_cast<size_t>(id) < tokens.size() && tokens[static_cast<size_t>(id)].special;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : data_(tokenizer.data_),
      skip_special_(skip_special),
      chain_(std::make_unique<tok::DecodeChain>(data_->pipeline.decode_steps)) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int32_t id) {
  std::string out;
  const auto& tokens = data_->pipeline.tokens;
  if (id < 0 || static_cast<size_t>(id) >= tokens.size()) return out;
  const Pipeline::Token& token = tokens[static_cast<size_t>(id)];
  if (token.known && !(skip_special_ && token.special)) chain_->push(token.text, out);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out;
  chain_->finish(out);
  chain_ = std::make_unique<tok::DecodeChain>(data_->pipeline.decode_steps);
  return out;
}

}  // namespace lariat
