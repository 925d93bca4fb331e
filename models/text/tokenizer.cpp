#include "models/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/error.h"
#include "models/text/pipeline.h"

namespace lariat {
namespace {

using tok::AddedToken;
using tok::Pipeline;
using tok::TokenizerSettings;

std::optional<int32_t> find_id(const Pipeline& pipeline, std::string_view token) {
  const auto it = pipeline.ids.find(token);
  return it == pipeline.ids.end() ? std::nullopt : std::optional<int32_t>(it->second);
}

std::optional<int32_t> id_of_role(const Pipeline& pipeline, const char* role) {
  const auto it = pipeline.roles.find(role);
  return it == pipeline.roles.end() ? std::nullopt : find_id(pipeline, it->second);
}

// transformers 5: a tokenizer.json's post-processor overrides add_bos_token. For a tokenizer.model the
// default is true, as in transformers 4's LlamaTokenizer.
void settle_bos(Pipeline& pipeline, const TokenizerSettings& settings, bool has_template) {
  const auto named = settings.named.find("bos_token");
  const bool in_file = named != settings.named.end() && !named->second.where.empty();
  const auto bos = id_of_role(pipeline, "bos_token");
  if (in_file || bos) pipeline.bos = bos;
  if (!in_file && !pipeline.bos && pipeline.template_prefix.size() == 1)
    pipeline.bos = pipeline.template_prefix[0];
  pipeline.prefix = pipeline.template_prefix;
  pipeline.adds_bos =
      has_template ? !pipeline.prefix.empty() : pipeline.bos && settings.add_bos.value_or(true);
  if (pipeline.prefix.empty() && pipeline.bos) pipeline.prefix = {*pipeline.bos};
}

// Adds transformers 5.24's default special tokens: the class's or, if it has none, the tokenizer.model's;
// also a tokenizer.json's padding token.
void add_tokens_of_class(const ModelTexts& texts, bool has_json, Pipeline& pipeline,
                         TokenizerSettings& settings) {
  const bool byte_level = std::ranges::any_of(pipeline.decode_steps, [](const tok::DecodeStep& step) {
    return step.kind == tok::DecodeStep::Kind::kByteLevel;
  });
  auto tokens = tok::tokens_of_class(texts, settings.tokenizer_class, byte_level);
  if (has_json || tokens.empty()) tokens.insert(pipeline.own_roles.begin(), pipeline.own_roles.end());
  for (const auto& [role, token] : tokens) {
    if (!settings.given.contains(role))
      settings.named[role] = {"", {.content = token, .normalized = false, .special = true}, true};
  }
  for (const auto& [name, named] : settings.named) {
    if (name.find('[') == std::string::npos) pipeline.roles[name] = named.token.content;
  }
}

// Skips a token that transformers would give the next free id: the model has no row for it.
void add_named_tokens(Pipeline& pipeline, const TokenizerSettings& settings) {
  for (const auto& [key, named] : settings.named) {
    AddedToken token = named.token;
    if (const auto it = pipeline.added_index.find(token.content); it != pipeline.added_index.end()) {
      pipeline.added[static_cast<size_t>(it->second)].special |= named.is_role;
      continue;
    }
    const std::optional<int32_t> id = tok::vocabulary_id(pipeline, token.content);
    if (id) {
      token.id = *id;
      tok::add_token(pipeline, std::move(token));
    } else if (!named.where.empty()) {
      pipeline.warnings.push_back(
          fmt::format("{}: '{:.60}' is not in the vocabulary; ignored", named.where, token.content));
    }
  }
}

void warn_with_json(const Pipeline& pipeline, TokenizerSettings& settings) {
  using Prepend = tok::PreTokenizeStep::Prepend;
  const bool bos = pipeline.adds_bos;
  if (settings.add_bos.value_or(bos) != bos) {
    settings.warn("add_bos_token",
                  fmt::format("{}, but the post-processor of tokenizer.json puts {} before a text, and "
                              "is used, as in transformers 5",
                              *settings.add_bos, bos ? "a token" : "nothing"));
  }
  const Prepend front = pipeline.space_in_front;
  if (settings.add_prefix_space.value_or(front != Prepend::kNever) != (front != Prepend::kNever)) {
    settings.warn("add_prefix_space",
                  fmt::format("{}, but tokenizer.json puts {} before a text, and is used",
                              *settings.add_prefix_space, front == Prepend::kNever ? "no space" : "a space"));
  } else if (settings.rebuilds() && settings.legacy && front != Prepend::kNever &&
             *settings.legacy != (front == Prepend::kAlways)) {
    settings.warn("legacy", fmt::format("{}, but tokenizer.json puts a space before {}, and is used; "
                                        "transformers 5 rebuilds the pipeline",
                                        *settings.legacy,
                                        front == Prepend::kAlways ? "all text between special tokens"
                                                                  : "the first text alone"));
  }
}

void warn_with_model(TokenizerSettings& settings) {
  const bool alike = settings.known != nullptr && settings.known->pieces != tok::Pieces::kNone;
  if (!settings.tokenizer_class.empty() && !alike) {
    settings.warn("tokenizer_class",
                  fmt::format("'{:.60}' is unknown; tokenizer.model is read by SentencePiece",
                              settings.tokenizer_class));
  }
  if (settings.add_prefix_space == false && !settings.rebuilds())
    settings.warn("add_prefix_space", "false; ignored, as in transformers for this class");
}

void warn_of_eos(Pipeline& pipeline, TokenizerSettings& settings) {
  if (!pipeline.template_suffix.empty()) {
    pipeline.warnings.push_back(fmt::format(
        "{}: key 'post_processor': ends a text with '{:.60}'; omitted, as a prompt is to be continued",
        pipeline.file, pipeline.token(pipeline.template_suffix[0])->text));
  } else if (settings.add_eos.value_or(false)) {
    settings.warn("add_eos_token", "true; no EOS is added, as a prompt is to be continued");
  }
}

void shorten(std::vector<std::string>& warnings) {
  constexpr size_t kMost = 20;
  if (warnings.size() <= kMost) return;
  const size_t more = warnings.size() - kMost;
  warnings.resize(kMost);
  warnings.push_back(fmt::format("{} more warnings of the tokenizer's files are not shown", more));
}

}  // namespace

Tokenizer Tokenizer::load(const ModelTexts& texts) {
  auto pipeline = std::make_shared<Pipeline>();
  TokenizerSettings settings = tok::read_tokenizer_settings(texts);
  const std::string name = tok::vocabulary_name(texts, settings);
  if (texts.vocabulary()) {
    texts.vocabulary()(*pipeline);
  } else if (name == "tokenizer.json") {
    tok::load_tokenizer_json(texts, *pipeline);
  } else if (name == "tokenizer.model") {
    tok::load_model(texts, settings, *pipeline);
  } else if (!name.empty()) {
    tok::load_tiktoken(texts, name, settings, *pipeline);
  } else {
    throw Error(texts.path().string() +
                ": no tokenizer.json and no tokenizer.model; put the model's tokenizer there");
  }
  const bool has_json = texts.has("tokenizer.json") || (texts.vocabulary() && !pipeline->has_pieces);
  pipeline->split_special = settings.split_special;
  for (const AddedToken& token : settings.added) tok::add_token(*pipeline, token);
  for (const AddedToken& token : settings.added_with) {
    if (!pipeline->added_index.contains(token.content)) tok::add_token(*pipeline, token);
  }
  add_tokens_of_class(texts, has_json, *pipeline, settings);
  add_named_tokens(*pipeline, settings);
  tok::index_tokens(*pipeline);
  settle_bos(*pipeline, settings, has_json || !pipeline->template_prefix.empty());
  if (const auto eos = id_of_role(*pipeline, "eos_token")) pipeline->eos = eos;
  has_json ? warn_with_json(*pipeline, settings) : warn_with_model(settings);
  warn_of_eos(*pipeline, settings);
  pipeline->warnings.insert(pipeline->warnings.begin(), settings.warnings.begin(), settings.warnings.end());
  shorten(pipeline->warnings);
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
const std::vector<int32_t>& Tokenizer::prefix() const { return pipeline_->prefix; }
std::vector<int32_t> Tokenizer::eos_ids() const {
  return pipeline_->eos ? std::vector{*pipeline_->eos} : std::vector<int32_t>{};
}
const std::vector<std::string>& Tokenizer::warnings() const { return pipeline_->warnings; }
bool Tokenizer::has_pieces() const { return pipeline_->has_pieces; }
bool Tokenizer::adds_bos() const { return pipeline_->adds_bos; }
const std::map<std::string, std::string>& Tokenizer::special_tokens() const { return pipeline_->roles; }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return find_id(*pipeline_, token);
}

std::string Tokenizer::id_to_token(int32_t id) const {
  const Pipeline::Token* token = pipeline_->token(id);
  return token == nullptr ? "" : token->text;
}

std::string Tokenizer::bytes_of(int32_t id) const {
  return tok::token_bytes(pipeline_->decode_steps, id_to_token(id));
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
