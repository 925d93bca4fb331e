#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/error.h"
#include "models/gguf/gguf_model.h"
#include "models/io/json_fields.h"
#include "models/text/pipeline.h"
#include "models/text/unicode.h"

// llama.cpp: src/llama-vocab.cpp, conversion/base.py.
namespace lariat {
namespace {

using Json = nlohmann::json;

enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Pre-tokenizers by tokenizer.ggml.pre: patterns of the published tokenizer.json files, applied in turn.
struct Words {
  std::string_view names;
  std::vector<std::string> patterns;
  bool whole_words = false;  // a word in the vocabulary is one token
  bool adds_bos = false;     // default of add_bos_token
  bool nfc = false;
};

std::vector<Words> all_words() {
  const std::string short_forms = "(?i:'s|'t|'re|'ve|'m|'ll|'d)", spaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string rest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)" + spaces;
  const std::string word = short_forms + R"(|[^\r\n\p{L}\p{N}]?\p{L}+)";
  const std::string by_three = word + R"(|\p{N}{1,3})" + rest;
  const std::string upper = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string slashed = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + spaces;
  const std::string cjk = "[\u0800-\u9FA5\uAC00-\uD7FF]+";
  const std::string letters =
      "(?:(?![\u0560-\u0588\u10C7-\u10FF\u1C80-\u1C88\u2D00-\u2D2D\uA790-\uA7FA\uAB30-\uAB68"
      "\U00010570-\U000105BC\U00016E40-\U00016E7F\U0001D400-\U0001D7CB\U0001DF00-\U0001DF1E])"
      "[\\p{Lu}\\p{Ll}\\p{Lt}])+";
  const std::string marks = "[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
  return {{"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2", {by_three}, true, true},
          {"dbrx smaug-bpe", {by_three}},
          {"chatglm-bpe glm4", {by_three}, true},
          {"qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan grok-2",
           {word + R"(|\p{N})" + rest},
           false,
           false,
           true},
          {"gpt-2 phi-2 mpt olmo jais exaone4 modern-bert", {tok::kGpt2Pattern}},
          {"starcoder refact command-r smollm codeshell exaone minerva-7b", {R"(\p{N})", tok::kGpt2Pattern}},
          {"falcon", {R"([\p{P}\$\+<=>\^~\|`]+)", tok::kGpt2Pattern, "[0-9][0-9][0-9]"}},
          {"deepseek-llm", {R"([\r\n])", R"(\s?)" + letters, R"(\s?)" + marks, R"(\s+$)", cjk, R"(\p{N}+)"}},
          {"deepseek-coder", {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", cjk, R"(\p{N})"}},
          {"deepseek-v3 hunyuan-dense joyai-llm",
           {R"(\p{N}{1,3})", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
            R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
            R"(| ?[\p{P}\p{S}]+[\r\n]*)" +
                spaces}},
          {"tekken", {upper + "*" + lower + "+|" + upper + "+" + lower + R"(*|\p{N})" + slashed}, true, true},
          {"gpt-4o llama4 minimax-m2",
           {upper + "*" + lower + "+" + short_forms + "?|" + upper + "+" + lower + "*" + short_forms +
            R"(?|\p{N}{1,3})" + slashed}},
          {"seed-coder", {word + R"(|\p{N}| ?[^\s\p{L}\p{N}]+)" + spaces}},
          {R"(youtu)",
           {"[\uAC00-\uD7A3\u3131-\u318E]+|[\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A\uFF1B\uFF0C"
            "\u3001-\u303F\uFE30-\uFE4F]+|[\u3105-\u312F]+|[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
            upper + "*" + lower + "+" + short_forms + "?|" + upper + "+" + lower + "*" + short_forms +
                R"(?|\p{N})" + slashed},
           true},
          {"default", {R"([\p{P}\$\+<=>\^~\|]+)", tok::kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}}};
}

const Words& words_of(const GgufFile& file) {
  static const std::vector<Words> kWords = all_words();
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  const std::string_view pre = file.string(kKey).value_or("default");
  const auto found = std::ranges::find_if(kWords, [&](const Words& w) { return has_name(w.names, pre); });
  if (found == kWords.end() || pre.empty())
    file.fail(kKey, fmt::format("unknown pre-tokenizer '{:.60}'; use another conversion of the model", pre));
  return *found;
}

struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<int64_t> types;
};

Vocabulary read_vocabulary(const GgufFile& file) {
  Vocabulary v{file.strings("tokenizer.ggml.tokens"), file.integers("tokenizer.ggml.token_type")};
  if (v.tokens.empty())
    file.fail("tokenizer.ggml.tokens", "is missing or empty; use another conversion of the model");
  if (v.types.empty()) v.types.assign(v.tokens.size(), kNormal);
  if (v.types.size() != v.tokens.size())
    file.fail("tokenizer.ggml.token_type",
              fmt::format("has {} entries for {} tokens; use another conversion of the model", v.types.size(),
                          v.tokens.size()));
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (gguf_ends_text(v.tokens[i])) v.types[i] = kControl;
  }
  return v;
}

// Adds the tokens found before pre-tokenization. llama.cpp decides by the model's name whether they strip the
// white space after them.
void add_markers(const GgufFile& file, const Vocabulary& v, tok::Pipeline& pipeline) {
  std::string name(file.string("general.name").value_or(""));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  bool strips = false;
  for (const Family& family : families()) {
    for (const auto part : split(family.gguf.strips, ' '))
      strips |= !part.empty() && name.find(part) != std::string::npos;
  }
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const int64_t type = v.types[i];
    if ((type != kControl && type != kUserDefined && type != kUnknown) || v.tokens[i].empty()) continue;
    tok::add_token(pipeline, {.content = valid_utf8(v.tokens[i]),
                              .id = static_cast<int32_t>(i),
                              .rstrip = strips && !has_name("<unk> <s> <|endoftext|>", v.tokens[i]),
                              .normalized = false,
                              .special = type != kUserDefined});
  }
}

std::string_view model_of(const GgufFile& file) {
  return file.string("tokenizer.ggml.model").value_or("none");
}

bool has_sentencepiece(const GgufFile& file) { return model_of(file) == "llama"; }

bool adds_bos(const GgufFile& file) {
  const bool missing = has_sentencepiece(file) || words_of(file).adds_bos;
  return file.boolean("tokenizer.ggml.add_bos_token").value_or(missing) && gguf_token_id(file, "bos");
}

// Writes a protobuf field (protobuf.dev/programming-guides/encoding): a number or bytes.
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void put(std::string& out, uint64_t field, uint64_t value) {
  put_varint(out, field << 3);
  put_varint(out, value);
}
void put(std::string& out, uint64_t field, std::string_view bytes) {
  put_varint(out, field << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

void read_bpe(const GgufFile& file, const Vocabulary& v, tok::Pipeline& pipeline) {
  constexpr const char *kTokens = "tokenizer.ggml.tokens", *kMerges = "tokenizer.ggml.merges";
  const Words& words = words_of(file);
  if (!file.has("tokenizer.ggml.pre")) {
    pipeline.warnings.push_back(
        pipeline.file +
        ": key 'tokenizer.ggml.pre': is missing; llama.cpp's default pre-tokenizer may give other ids "
        "than the model's; use a newer conversion");
  }
  if (words.nfc) pipeline.normalizer.push_back({.kind = tok::NormalizeStep::Kind::kForm});
  for (const std::string& pattern : words.patterns)
    pipeline.pre_tokenizer.push_back(
        {.regex = tok::Regex(pattern, pipeline.file + ": key 'tokenizer.ggml.pre'")});
  pipeline.decode_steps.push_back({.kind = tok::DecodeStep::Kind::kByteLevel});
  tok::BpeSpec spec;
  spec.byte_level = true;
  spec.ignore_merges = words.whole_words;
  spec.vocab_key = kTokens, spec.merges_key = kMerges;
  spec.vocab.reserve(v.tokens.size());
  for (const std::string_view token : v.tokens) {
    if (token.size() > tok::kMaxTokenBytes)
      file.fail(kTokens, fmt::format("a token of {} bytes is too long; use another conversion of the model",
                                     token.size()));
    if (!spec.vocab.emplace(valid_utf8(token), static_cast<int32_t>(spec.vocab.size())).second)
      file.fail(
          kTokens,
          fmt::format("the token '{:.60}' is listed twice; use another conversion of the model", token));
  }
  if (!file.has(kMerges)) file.fail(kMerges, "is missing; use another conversion of the model");
  const std::vector<std::string_view> merges = file.strings(kMerges);
  spec.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    if (!tok::add_merge(spec, i, valid_utf8(merges[i])))
      file.fail(fmt::format("{}[{}]", kMerges, i), "expected two tokens with one space between them");
  }
  pipeline.bpe.emplace(std::move(spec), pipeline.file);
  if (adds_bos(file)) pipeline.template_prefix = {static_cast<int32_t>(*gguf_token_id(file, "bos"))};
}

// Model for libsentencepiece. Field numbers: sentencepiece_model.proto.
std::string sentencepiece_model(const GgufFile& file, const Vocabulary& v) {
  const std::vector<double> scores = file.numbers("tokenizer.ggml.scores");
  if (scores.size() != v.tokens.size()) {
    file.fail("tokenizer.ggml.scores",
              fmt::format("has {} entries for {} tokens; use another conversion of the model", scores.size(),
                          v.tokens.size()));
  }
  // SentencePiece needs an unknown token; Gemma 3's files mark theirs as control.
  const std::optional<int64_t> unknown = gguf_token_id(file, "unknown");
  const auto n_bytes = std::ranges::count(v.types, kByte);
  std::string out, trainer, normalizer;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    std::string piece;
    put(piece, 1, v.tokens[i]);
    const float score = static_cast<float>(scores[i]);
    piece += static_cast<char>(2 << 3 | 5);
    piece.append(reinterpret_cast<const char*>(&score), sizeof score);
    put(piece, 3, static_cast<uint64_t>(static_cast<int64_t>(i) == unknown ? kUnknown : v.types[i]));
    put(out, 1, piece);
  }
  put(trainer, 3, uint64_t{2});                // model_type: BPE
  put(trainer, 35, uint64_t{n_bytes == 256});  // byte_fallback
  for (const auto& [role, field] : {std::pair("unknown", 45), std::pair("bos", 46), std::pair("eos", 47)}) {
    if (const auto id = gguf_token_id(file, role))
      put(trainer, static_cast<uint64_t>(field), v.tokens[static_cast<size_t>(*id)]);
  }
  put(normalizer, 3, uint64_t{file.boolean("tokenizer.ggml.add_space_prefix").value_or(true)});
  put(normalizer, 4, uint64_t{0});  // remove_extra_whitespaces
  put(out, 2, trainer);
  put(out, 3, normalizer);
  return out;
}

}  // namespace

std::optional<int64_t> gguf_token_id(const GgufFile& file, std::string_view role) {
  const auto given = file.integer(fmt::format("tokenizer.ggml.{}_token_id", role));
  std::optional<int64_t> missing;
  if (has_sentencepiece(file)) missing = role == "bos" ? 1 : role == "eos" ? 2 : role == "unknown" ? 0 : -1;
  const auto tokens = file.metadata.find("tokenizer.ggml.tokens");
  const uint64_t count = tokens == file.metadata.end() ? 0 : tokens->second.count;
  const int64_t id = given.value_or(missing.value_or(-1));
  return id >= 0 && static_cast<uint64_t>(id) < count ? std::optional(id) : std::nullopt;
}

bool gguf_ends_text(std::string_view token) {
  constexpr std::string_view kEnds[] = {
      "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
      "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
      "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
      "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", "[e~[",
      // Fill-in-the-middle: padding, the next repository, the next file.
      "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>",
      "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"};
  return std::ranges::find(kEnds, token) != std::end(kEnds);
}

void gguf_vocabulary(const GgufFile& file, tok::Pipeline& pipeline) {
  pipeline.file = file.path.string();
  if (!has_sentencepiece(file) && model_of(file) != "gpt2")
    file.fail("tokenizer.ggml.model",
              fmt::format("'{:.60}' is not supported; known: gpt2, llama", model_of(file)));
  const Vocabulary v = read_vocabulary(file);
  has_sentencepiece(file) ? tok::load_sentencepiece(sentencepiece_model(file, v), {}, pipeline)
                          : read_bpe(file, v, pipeline);
  add_markers(file, v, pipeline);
}

std::string gguf_vocabulary_text(const GgufFile& file) {
  std::string text(model_of(file));
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    for (const std::string_view each : file.strings(key)) (text += '\n') += each;
  }
  return text;
}

std::string gguf_tokenizer_keys(const GgufFile& file) {
  std::string text;
  for (const auto& [key, value] : file.metadata) {
    if (!key.starts_with("tokenizer.") || key.starts_with("tokenizer.chat_template")) continue;
    (text += key) += '\n';
    text.append(reinterpret_cast<const char*>(value.data), value.bytes);
  }
  return text;
}

Json gguf_tokenizer_config(const GgufFile& file) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const std::vector<std::string_view> tokens = file.strings("tokenizer.ggml.tokens");
  for (const auto& [role, name] : {std::pair("bos", "bos_token"), std::pair("eos", "eos_token"),
                                   std::pair("unknown", "unk_token"), std::pair("padding", "pad_token")}) {
    if (const auto id = gguf_token_id(file, role))
      config[name] = valid_utf8(tokens[static_cast<size_t>(*id)]);
  }
  if (has_sentencepiece(file)) config["add_bos_token"] = adds_bos(file);
  if (file.boolean("tokenizer.ggml.add_eos_token").value_or(false)) config["add_eos_token"] = true;
  gguf_add_unread(file, "tokenizer.",
                  "chat_template* huggingface.json ggml.model ggml.pre ggml.tokens ggml.scores ggml.merges "
                  "ggml.token_type* ggml.added_tokens ggml.add_bos_token ggml.add_eos_token "
                  "ggml.add_space_prefix ggml.escape_whitespaces *_token_id",
                  config);
  if (const auto text = file.string("tokenizer.chat_template")) config["chat_template"] = valid_utf8(*text);
  return config;
}

}  // namespace lariat
