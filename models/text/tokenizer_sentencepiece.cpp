#include "models/text/tokenizer_sentencepiece.h"

#include <sentencepiece_processor.h>

#include "kernels/error.h"
#include "models/json_file.h"
#include "models/text/proto_reader.h"
#include "models/text/sentencepiece_check.h"
#include "models/text/tokenizer_pipeline.h"
#include "models/text/unicode.h"

namespace lariat::tok {
namespace {

constexpr char32_t kSpaceSymbol = 0x2581;  // what SentencePiece writes for a space
constexpr std::string_view kSpacePiece = "\xE2\x96\x81";
constexpr uint64_t kMaxModelBytes = uint64_t{64} << 20;
constexpr size_t kMaxCachedWords = size_t{1} << 17, kMaxCachedBytes = 64;

std::string valid_utf8(std::string_view bytes) {
  std::string out;
  Utf8Assembler assembler;
  assembler.push(bytes, out);
  assembler.finish(out);
  return out;
}

// Meta's Llama 3 ships its tiktoken vocabulary under the same name: lines of "base64 rank".
bool looks_like_tiktoken(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size()) return false;
  const auto is_base64 = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '/' || c == '=';
  };
  const auto all = [](std::string_view s, auto&& test) {
    for (char c : s) {
      if (!test(c)) return false;
    }
    return true;
  };
  return all(line.substr(0, space), is_base64) &&
         all(line.substr(space + 1), [](char c) { return (c >= '0' && c <= '9') || c == '\r'; });
}

}  // namespace

SentencePiece::SentencePiece(const std::string& bytes, const std::string& file)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()), file_(file) {
  if (looks_like_tiktoken(bytes)) {
    throw Error(file +
                ": a tiktoken vocabulary (lines of base64 and rank), not a SentencePiece model; put the " +
                "model's tokenizer.json next to it");
  }
  const std::string checked = checked_sentencepiece(bytes, file);
  std::string problem;
  try {
    const auto status = processor_->LoadFromSerializedProto(checked);
    if (!status.ok()) problem = status.message();
    if (status.ok() && processor_->GetPieceSize() <= 0) problem = "it has no pieces";
  } catch (const std::exception& e) {  // of its double array
    problem = e.what();
  }
  if (!problem.empty()) {
    throw Error(file + ": not a usable SentencePiece model (" + problem.substr(0, 200) +
                "); download it again");
  }
  read_spec(checked);
  find_joints();
}

SentencePiece::~SentencePiece() = default;
SentencePiece::SentencePiece(SentencePiece&&) noexcept = default;
SentencePiece& SentencePiece::operator=(SentencePiece&&) noexcept = default;

// sentencepiece_model.proto: ModelProto has trainer_spec = 2 (model_type = 3: 2 is BPE) and normalizer_spec =
// 3 (precompiled_charsmap = 2, add_dummy_prefix = 3, remove_extra_whitespaces = 4, escape_whitespaces = 5).
void SentencePiece::read_spec(const std::string& bytes) {
  plain_normalizer_ = true;
  for (ProtoReader model(bytes); model.next();) {
    if (model.field == 2) {
      for (ProtoReader spec(model.text); spec.next();) {
        if (spec.field == 3) bpe_ = spec.number == 2;
      }
    } else if (model.field == 3) {
      for (ProtoReader spec(model.text); spec.next();) {
        if (spec.field == 2) plain_normalizer_ = spec.text.empty();
        if (spec.field == 3) dummy_prefix_ = spec.number != 0;
        if (spec.field == 4) removes_spaces_ = spec.number != 0;
        if (spec.field == 5) escapes_spaces_ = spec.number != 0;
      }
    }
  }
}

// When no piece holds a space after another character, no merge crosses the place before a space, and the
// words of a text can be encoded (and remembered) one by one: a word without its space gets the same space
// back as the dummy prefix.
void SentencePiece::find_joints() {
  space_id_ = processor_->PieceToId(kSpacePiece);
  cuttable_ = bpe_ && plain_normalizer_ && dummy_prefix_ && !removes_spaces_ && escapes_spaces_ &&
              processor_->IdToPiece(space_id_) == kSpacePiece;
  for (int32_t id = 0; id < size() && cuttable_; ++id) {
    if (processor_->IsControl(id) || processor_->IsUnknown(id) || processor_->IsByte(id)) continue;
    const std::string text = piece(id);
    char32_t left = 0;
    for (size_t at = 0; at < text.size();) {
      const Utf8Step c = utf8_step(text, at);
      if (at > 0 && c.value == kSpaceSymbol) before_space_.insert(left);
      left = c.value;
      at += c.length;
    }
    if (before_space_.size() > 16) cuttable_ = false;  // not a vocabulary of words
  }
}

size_t SentencePiece::encode_prefix(std::string_view text, bool at_start, bool final, Scratch& scratch,
                                    std::vector<int32_t>& out) const {
  size_t done = 0;
  for (size_t at = 1; cuttable_ && (at = text.find(' ', at)) != std::string_view::npos; ++at) {
    char32_t left = utf8_step(text, char_start(text, at - 1)).value;
    if (left == ' ') left = kSpaceSymbol;
    if (before_space_.contains(left)) continue;
    encode_word(text.substr(done, at - done), at_start && done == 0, scratch, out);
    done = at;
  }
  if (!final) return done;
  if (done < text.size()) encode_word(text.substr(done), at_start && done == 0, scratch, out);
  return text.size();
}

void SentencePiece::encode_word(std::string_view word, bool at_start, Scratch& scratch,
                                std::vector<int32_t>& out) const {
  if (!at_start) word.remove_prefix(1);  // the space that the dummy prefix is going to be
  if (word.empty()) {
    out.push_back(space_id_);
    return;
  }
  if (const auto it = scratch.words.find(word); it != scratch.words.end()) {
    out.insert(out.end(), it->second.begin(), it->second.end());
    return;
  }
  std::vector<int> ids;
  const auto status = processor_->Encode(word, &ids);
  if (!status.ok()) {
    throw Error(file_ + ": SentencePiece could not encode the text (" + std::string(status.message()) + ")");
  }
  out.insert(out.end(), ids.begin(), ids.end());
  if (word.size() > kMaxCachedBytes) return;
  if (scratch.words.size() >= kMaxCachedWords) scratch.words.clear();
  scratch.words.emplace(std::string(word), std::vector<int32_t>(ids.begin(), ids.end()));
}

int32_t SentencePiece::size() const { return processor_->GetPieceSize(); }
std::string SentencePiece::piece(int32_t id) const { return valid_utf8(processor_->IdToPiece(id)); }
bool SentencePiece::is_control(int32_t id) const {
  return processor_->IsControl(id) || processor_->IsUnknown(id);
}
int32_t SentencePiece::bos() const { return processor_->bos_id(); }
int32_t SentencePiece::eos() const { return processor_->eos_id(); }

void load_sentencepiece(const std::filesystem::path& file, Pipeline& pipeline) {
  pipeline.file = file.string();
  SentencePiece& model = pipeline.sentencepiece.emplace(read_file(file, kMaxModelBytes), pipeline.file);
  for (int32_t id = 0; id < model.size(); ++id) {
    if (!model.is_control(id) || model.piece(id).empty()) continue;
    // As the slow LlamaTokenizer: control pieces are tokens wherever they stand in a text.
    AddedToken token;
    token.content = model.piece(id);
    token.id = id;
    token.normalized = false;
    token.special = true;
    add_token(pipeline, token);
  }
  using Kind = DecodeStep::Kind;
  pipeline.decode_steps.push_back(
      {.kind = Kind::kReplace, .pattern = std::string(kSpacePiece), .content = " "});
  pipeline.decode_steps.push_back(
      {.kind = Kind::kByteFallback, .pattern = {}, .content = {}, .keep_good_bytes = true});
  pipeline.decode_steps.push_back({.kind = Kind::kFuse, .pattern = {}, .content = {}});
  const size_t strip = model.strips_all_leading_space() ? std::string::npos
                       : model.strips_leading_space()   ? 1
                                                        : 0;
  pipeline.decode_steps.push_back({.kind = Kind::kStrip, .pattern = {}, .content = " ", .start = strip});
}

}  // namespace lariat::tok
