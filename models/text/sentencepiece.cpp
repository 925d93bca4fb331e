#include "models/text/sentencepiece.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <new>
#include <utility>

#include "kernels/error.h"
#include "models/text/pipeline.h"
#include "models/text/unicode.h"

namespace lariat::tok {
namespace {

constexpr char32_t kSpaceSymbol = 0x2581;
constexpr std::string_view kSpacePiece = "\xE2\x96\x81";
constexpr uint64_t kMaxModelBytes = uint64_t{64} << 20;
constexpr size_t kMaxCachedWords = size_t{1} << 17, kMaxCachedBytes = 64;

}  // namespace

SentencePiece::SentencePiece(const std::string& bytes, const std::string& file) : file_(file) {
  spec_ = checked_sentencepiece(bytes, file);
  const auto processor = std::make_shared<sentencepiece::SentencePieceProcessor>();
  std::string problem;
  try {
    const auto status = processor->LoadFromSerializedProto(std::exchange(spec_.bytes, {}));
    if (!status.ok()) problem = status.message();
    if (status.ok() && processor->GetPieceSize() <= 0) problem = "it has no pieces";
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {  // from its double array
    problem = e.what();
  }
  if (!problem.empty()) {
    throw Error(
        fmt::format("{}: not a usable SentencePiece model ({:.200}); download it again", file, problem));
  }
  processor_ = processor;
  find_joints();
}

// If no piece holds a space after another character, no merge crosses the position before a space: words are
// encoded and cached separately. A word without its space gets the space back as the dummy prefix.
void SentencePiece::find_joints() {
  space_id_ = processor_->PieceToId(kSpacePiece);
  cuttable_ = spec_.bpe && spec_.plain_normalizer && spec_.dummy_prefix && !spec_.removes_spaces &&
              spec_.escapes_spaces && processor_->IdToPiece(space_id_) == kSpacePiece;
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

void SentencePiece::encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& out) const {
  size_t done = 0;
  for (size_t at = 1; cuttable_ && (at = text.find(' ', at)) != std::string_view::npos; ++at) {
    char32_t left = utf8_step(text, char_start(text, at - 1)).value;
    if (left == ' ') left = kSpaceSymbol;
    if (before_space_.contains(left)) continue;
    encode_word(text.substr(done, at - done), done == 0, scratch, out);
    done = at;
  }
  if (done < text.size()) encode_word(text.substr(done), done == 0, scratch, out);
}

void SentencePiece::encode_word(std::string_view word, bool at_start, Scratch& scratch,
                                std::vector<int32_t>& out) const {
  if (!at_start) word.remove_prefix(1);  // the dummy prefix restores this space
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
    throw Error(fmt::format("{}: SentencePiece could not encode the text ({})", file_, status.message()));
  }
  out.insert(out.end(), ids.begin(), ids.end());
  if (word.size() > kMaxCachedBytes) return;
  if (scratch.words.size() >= kMaxCachedWords) scratch.words.clear();
  scratch.words.emplace(std::string(word), std::vector<int32_t>(ids.begin(), ids.end()));
}

int32_t SentencePiece::size() const { return processor_->GetPieceSize(); }
std::string SentencePiece::piece(int32_t id) const { return valid_utf8(processor_->IdToPiece(id)); }
std::optional<int32_t> SentencePiece::find(const std::string& piece) const {
  const int32_t id = processor_->PieceToId(piece);
  return processor_->IdToPiece(id) == piece ? std::optional(id) : std::nullopt;
}
bool SentencePiece::is_control(int32_t id) const {
  return processor_->IsControl(id) || processor_->IsUnknown(id);
}
int32_t SentencePiece::bos() const { return processor_->bos_id(); }
int32_t SentencePiece::eos() const { return processor_->eos_id(); }
int32_t SentencePiece::unk() const { return processor_->unk_id(); }

namespace {

// strip: leading spaces to remove.
std::vector<DecodeStep> decode_steps(size_t strip, Utf8Assembler::Replace bad_bytes) {
  using Kind = DecodeStep::Kind;
  return {{.kind = Kind::kReplace, .pattern = std::string(kSpacePiece), .content = " "},
          {.kind = Kind::kByteFallback, .bad_bytes = bad_bytes},
          {.kind = Kind::kFuse},
          {.kind = Kind::kStrip, .content = " ", .start = strip}};
}

// Every split of a piece into two pieces is a merge, ordered by the resulting id.
BpeSpec as_bpe(const SentencePiece& model) {
  BpeSpec spec;
  spec.fuse_unk = spec.byte_fallback = true;
  for (int32_t id = 0; id < model.size(); ++id) {
    if (std::string piece = model.piece(id); !piece.empty()) spec.vocab.emplace(std::move(piece), id);
  }
  for (int32_t id = 0; id < model.size(); ++id) add_splits(spec, model.piece(id));
  return spec;
}

// transformers 5.24: LlamaTokenizer.__init__, SentencePieceExtractor, generate_merges.
void load_llama(const SentencePiece& model, PreTokenizeStep::Prepend space_in_front, Pipeline& pipeline) {
  pipeline.space_in_front = space_in_front;
  pipeline.pre_tokenizer = {{.kind = PreTokenizeStep::Kind::kMetaspace,
                             .literal = std::string(kSpacePiece),
                             .behavior = SplitBehavior::kMergedWithNext,
                             .prepend = space_in_front,
                             .split = false}};
  pipeline.bpe.emplace(as_bpe(model), pipeline.file);
  for (const std::string& piece : model.user_defined()) {
    if (const auto it = pipeline.bpe->vocab().find(valid_utf8(piece)); it != pipeline.bpe->vocab().end())
      add_token(pipeline, {.content = it->first, .id = it->second, .normalized = false});
  }
  const bool prefixed = space_in_front != PreTokenizeStep::Prepend::kNever;
  pipeline.decode_steps = decode_steps(prefixed ? 1 : 0, Utf8Assembler::Replace::kWhole);
}

}  // namespace

void load_model(const ModelTexts& texts, const TokenizerSettings& settings, Pipeline& pipeline) {
  pipeline.file = texts.file("tokenizer.model").string();
  const std::string bytes = texts.read("tokenizer.model", kMaxModelBytes);
  if (looks_like_tiktoken(bytes)) return load_tiktoken(texts, "tokenizer.model", settings, pipeline);
  load_sentencepiece(bytes, settings, pipeline);
}

void load_sentencepiece(const std::string& bytes, const TokenizerSettings& settings, Pipeline& pipeline) {
  using Prepend = PreTokenizeStep::Prepend;
  pipeline.has_pieces = true;
  SentencePiece model(bytes, pipeline.file);
  if (model.bos() >= 0) pipeline.bos = model.bos();
  if (model.eos() >= 0) pipeline.eos = model.eos();
  const std::pair<const char*, int32_t> roles[] = {
      {"bos_token", model.bos()}, {"eos_token", model.eos()}, {"unk_token", model.unk()}};
  for (const auto& [role, id] : roles) {
    if (id >= 0) pipeline.own_roles[role] = model.piece(id);
  }
  for (int32_t id = 0; id < model.size(); ++id) {
    if (!model.is_control(id) || model.piece(id).empty()) continue;
    // As in the slow LlamaTokenizer, control pieces are tokens anywhere in a text.
    add_token(pipeline, {.content = model.piece(id), .id = id, .normalized = false, .special = true});
  }
  if (settings.known != nullptr) add_class_tokens(*settings.known, model.size(), pipeline);
  const bool never = settings.rebuilds() && settings.add_prefix_space == false;
  if (never || !settings.legacy.value_or(!settings.rebuilds()))
    return load_llama(model, never ? Prepend::kNever : Prepend::kFirst, pipeline);
  pipeline.space_in_front = model.strips_leading_space() ? Prepend::kAlways : Prepend::kNever;
  const size_t strip = model.strips_all_leading_space() ? std::string::npos
                       : model.strips_leading_space()   ? 1
                                                        : 0;
  pipeline.decode_steps = decode_steps(strip, Utf8Assembler::Replace::kPerByte);
  pipeline.sentencepiece.emplace(std::move(model));
}

}  // namespace lariat::tok
