#include "models/json_file.h"
#include "models/text/tokenizer_json_node.h"
#include "models/text/tokenizer_pipeline.h"

namespace lariat::tok {
namespace {

constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxContentBytes = 256;  // of a Replace or Prepend
constexpr size_t kMaxSteps = 32;          // of a chain of components

// {"String": s} or {"Regex": s}; only strings when `regex` is null.
std::string read_pattern(const JsonNode& node, bool* regex) {
  const JsonNode string = node["String"], pattern = node["Regex"];
  if (!string.is_null()) {
    if (string.string().empty()) string.fail("an empty pattern");
    return string.string();
  }
  if (pattern.is_null()) node.fail("expected {\"String\": …} or {\"Regex\": …}");
  if (!regex) pattern.fail("only a String pattern is supported here");
  *regex = true;
  return pattern.string();
}

std::string read_content(const JsonNode& node) {
  if (node.string().size() > kMaxContentBytes) {
    node.fail("more than " + std::to_string(kMaxContentBytes) + " bytes");
  }
  return node.string();
}

template <typename Steps>
void check_room(const JsonNode& node, const Steps& steps) {
  if (steps.size() >= kMaxSteps) node.fail("more than " + std::to_string(kMaxSteps) + " components");
}

std::string read_character(const JsonNode& node) {
  const std::string& text = node.string();
  if (text.empty() || utf8_step(text, 0).length != text.size()) node.fail("expected one character");
  return text;
}

void read_normalizer(const JsonNode& node, std::vector<NormalizeStep>& steps) {
  if (node.is_null()) return;
  check_room(node, steps);
  using Kind = NormalizeStep::Kind;
  const std::string& type = node.type({"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace"});
  if (type == "Sequence") {
    const JsonNode list = node["normalizers"];
    for (size_t i = 0; i < list.size(); ++i) read_normalizer(list[i], steps);
  } else if (type == "Prepend") {
    steps.push_back({.kind = Kind::kPrepend, .pattern = {}, .content = read_content(node["prepend"])});
  } else if (type == "Replace") {
    const std::string pattern = read_pattern(node["pattern"], nullptr);
    steps.push_back({.kind = Kind::kReplace, .pattern = pattern, .content = read_content(node["content"])});
  } else {
    const NormalForm form = type == "NFC"    ? NormalForm::kNfc
                            : type == "NFD"  ? NormalForm::kNfd
                            : type == "NFKC" ? NormalForm::kNfkc
                                             : NormalForm::kNfkd;
    steps.push_back({.kind = Kind::kForm, .form = form, .pattern = {}, .content = {}});
  }
}

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string& name = node.string();
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.fail(
      "'" + name.substr(0, 60) +
      "' is not supported; lariat knows Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

PreTokenizeStep read_split(const JsonNode& node) {
  PreTokenizeStep step;
  bool regex = false;
  const std::string pattern = read_pattern(node["pattern"], &regex);
  if (regex) {
    step.regex.emplace(pattern, node["pattern"]["Regex"].where());
  } else {
    step.literal = pattern;
  }
  step.behavior = read_behavior(node["behavior"]);
  step.invert = node["invert"].boolean(false);
  return step;
}

PreTokenizeStep read_metaspace(const JsonNode& node) {
  using Prepend = PreTokenizeStep::Prepend;
  PreTokenizeStep step;
  step.kind = PreTokenizeStep::Kind::kMetaspace;
  step.literal = read_character(node["replacement"]);
  step.behavior = SplitBehavior::kMergedWithNext;
  step.split = node["split"].boolean(true);
  const JsonNode scheme = node["prepend_scheme"];
  const std::string name = scheme.is_null() ? "always" : scheme.string();
  if (name != "always" && name != "first" && name != "never") scheme.fail("expected always, first or never");
  step.prepend = name == "always" ? Prepend::kAlways : name == "first" ? Prepend::kFirst : Prepend::kNever;
  if (!node["add_prefix_space"].boolean(true)) step.prepend = Prepend::kNever;
  return step;
}

void read_pre_tokenizer(const JsonNode& node, std::vector<PreTokenizeStep>& steps) {
  if (node.is_null()) return;
  check_room(node, steps);
  using Kind = PreTokenizeStep::Kind;
  const std::string& type = node.type({"Sequence", "Split", "ByteLevel", "Digits", "Metaspace"});
  if (!steps.empty() && steps.back().kind == Kind::kByteLevel) node.fail("nothing may follow ByteLevel");
  if (type == "Sequence") {
    const JsonNode list = node["pretokenizers"];
    for (size_t i = 0; i < list.size(); ++i) read_pre_tokenizer(list[i], steps);
  } else if (type == "Split") {
    steps.push_back(read_split(node));
  } else if (type == "Metaspace") {
    steps.push_back(read_metaspace(node));
  } else if (type == "ByteLevel") {
    PreTokenizeStep step;
    step.kind = Kind::kByteLevel;
    step.add_prefix_space = node["add_prefix_space"].boolean(true);
    if (node["use_regex"].boolean(true)) step.regex.emplace(kGpt2Pattern, node.where());
    steps.push_back(std::move(step));
  } else {
    PreTokenizeStep step;
    step.kind = Kind::kDigits;
    step.individual_digits = node["individual_digits"].boolean(false);
    step.behavior = step.individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    steps.push_back(std::move(step));
  }
}

// The ids of a TemplateProcessing's "single" in front of the text. What stands behind it (an EOS) is not for
// a text that a model shall go on with.
std::vector<int32_t> read_template(const JsonNode& node) {
  std::vector<int32_t> prefix;
  const JsonNode single = node["single"], special = node["special_tokens"];
  for (size_t i = 0; i < single.size(); ++i) {
    if (single[i].json().contains("Sequence")) break;
    const JsonNode id = single[i]["SpecialToken"]["id"];
    const JsonNode ids = special[id.string().c_str()]["ids"];
    for (size_t k = 0; k < ids.size(); ++k) prefix.push_back(static_cast<int32_t>(ids[k].integer(kMaxId)));
  }
  return prefix;
}

void read_post_processor(const JsonNode& node, Pipeline& pipeline) {
  if (node.is_null()) return;
  pipeline.has_post_processor = true;
  const std::string& type = node.type({"Sequence", "TemplateProcessing", "ByteLevel"});
  if (type == "Sequence") {
    const JsonNode list = node["processors"];
    for (size_t i = 0; i < list.size(); ++i) read_post_processor(list[i], pipeline);
  } else if (type == "TemplateProcessing") {
    const std::vector<int32_t> prefix = read_template(node);
    pipeline.prefix.insert(pipeline.prefix.begin(), prefix.begin(), prefix.end());
  }
}

DecodeStep read_replace_decoder(const JsonNode& node, bool fused) {
  DecodeStep step{.kind = DecodeStep::Kind::kReplace,
                  .pattern = read_pattern(node["pattern"], nullptr),
                  .content = read_content(node["content"])};
  if (fused && utf8_step(step.pattern, 0).length != step.pattern.size()) {
    node.fail("a Replace of more than one character after Fuse or ByteLevel is not supported");
  }
  return step;
}

void read_decoder(const JsonNode& node, std::vector<DecodeStep>& steps) {
  check_room(node, steps);
  using Kind = DecodeStep::Kind;
  const std::string& type =
      node.type({"Sequence", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "ByteLevel"});
  bool fused = false;
  for (const DecodeStep& step : steps) fused |= step.kind == Kind::kFuse || step.kind == Kind::kByteLevel;
  if (type == "Sequence") {
    const JsonNode list = node["decoders"];
    for (size_t i = 0; i < list.size(); ++i) read_decoder(list[i], steps);
  } else if (type == "Replace") {
    steps.push_back(read_replace_decoder(node, fused));
  } else if (type == "Fuse") {
    steps.push_back({.kind = Kind::kFuse, .pattern = {}, .content = {}});
  } else if (type == "Strip") {
    constexpr int64_t kMaxStrip = 1 << 20;
    steps.push_back({.kind = Kind::kStrip,
                     .pattern = {},
                     .content = read_character(node["content"]),
                     .start = static_cast<size_t>(node["start"].integer(kMaxStrip)),
                     .stop = static_cast<size_t>(node["stop"].integer(kMaxStrip))});
  } else if (fused) {
    node.fail("'" + type + "' after Fuse or ByteLevel is not supported");
  } else if (type == "ByteFallback") {
    steps.push_back({.kind = Kind::kByteFallback, .pattern = {}, .content = {}});
  } else if (type == "ByteLevel") {
    steps.push_back({.kind = Kind::kByteLevel, .pattern = {}, .content = {}});
  } else {
    const PreTokenizeStep metaspace = read_metaspace(node);
    steps.push_back({.kind = Kind::kMetaspace,
                     .pattern = metaspace.literal,
                     .content = {},
                     .drop_first = metaspace.prepend != PreTokenizeStep::Prepend::kNever});
  }
}

void read_vocab(const JsonNode& node, StringMap& vocab) {
  if (!node.json().is_object() || node.json().empty()) node.fail("expected an object of token: id");
  vocab.reserve(node.json().size());
  std::vector<bool> used;
  for (const auto& [token, value] : node.json().items()) {
    if (token.size() > kMaxTokenBytes) node.fail("a token of " + std::to_string(token.size()) + " bytes");
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(kMaxId);
    if (!fits)
      node.fail("the id of '" + token.substr(0, 60) + "' is not an integer below " + std::to_string(kMaxId));
    const auto id = value.get<size_t>();
    if (id >= used.size()) used.resize(id + 1);
    if (used[id])
      node.fail("id " + std::to_string(id) + " is given twice, the second time to '" + token.substr(0, 60) +
                "'");
    used[id] = true;
    vocab.emplace(token, static_cast<int32_t>(id));
  }
}

// Merges are "left right" or ["left", "right"].
void read_merges(const JsonNode& node, BpeSpec& spec) {
  const size_t count = node.size();
  spec.merges.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const nlohmann::json& merge = node.json()[i];
    if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (i == 0 && text.starts_with("#version")) continue;
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        node[i].fail("expected two tokens with one space between them");
      }
      spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      node[i].fail("expected a string or a pair of strings");
    }
  }
}

BpeSpec read_model(const JsonNode& node) {
  BpeSpec spec;
  if (!node["type"].is_null()) node.type({"BPE"});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!node[key].is_null() && !node[key].string().empty()) node[key].fail("only null or \"\" is supported");
  }
  const JsonNode dropout = node["dropout"];
  if (!dropout.is_null() && dropout.json() != 0) dropout.fail("only null or 0 is supported");
  if (!node["unk_token"].is_null()) spec.unk_token = node["unk_token"].string();
  spec.fuse_unk = node["fuse_unk"].boolean(false);
  spec.byte_fallback = node["byte_fallback"].boolean(false);
  spec.ignore_merges = node["ignore_merges"].boolean(false);
  read_vocab(node["vocab"], spec.vocab);
  read_merges(node["merges"], spec);
  return spec;
}

}  // namespace

AddedToken read_added_token(const JsonNode& node) {
  AddedToken token;
  const JsonNode content = node["content"];
  token.content = content.string();
  if (token.content.empty() || token.content.size() > kMaxTokenBytes) {
    content.fail("a token of " + std::to_string(token.content.size()) + " bytes; expected 1 to " +
                 std::to_string(kMaxTokenBytes));
  }
  token.single_word = node["single_word"].boolean(false);
  token.lstrip = node["lstrip"].boolean(false);
  token.rstrip = node["rstrip"].boolean(false);
  token.special = node["special"].boolean(false);
  token.normalized = node["normalized"].boolean(!token.special);
  return token;
}

void load_tokenizer_json(const std::filesystem::path& file, Pipeline& pipeline) {
  pipeline.file = file.string();
  const nlohmann::json json = read_json(file);
  const JsonNode root(json, pipeline.file);
  if (!root["version"].is_null() && root["version"].string() != "1.0")
    root["version"].fail("expected \"1.0\"");
  std::vector<NormalizeStep> normalize_steps;
  read_normalizer(root["normalizer"], normalize_steps);
  pipeline.normalizer = Normalizer(std::move(normalize_steps));
  std::vector<PreTokenizeStep> steps;
  read_pre_tokenizer(root["pre_tokenizer"], steps);
  BpeSpec spec = read_model(root["model"]);
  spec.byte_level = !steps.empty() && steps.back().kind == PreTokenizeStep::Kind::kByteLevel;
  pipeline.pre_tokenizer = PreTokenizer(std::move(steps));
  pipeline.bpe.emplace(std::move(spec), pipeline.file);
  read_post_processor(root["post_processor"], pipeline);
  if (root["decoder"].is_null()) {
    pipeline.decode_steps.push_back({.kind = DecodeStep::Kind::kJoin, .pattern = {}, .content = " "});
  } else {
    read_decoder(root["decoder"], pipeline.decode_steps);
  }
  const JsonNode added = root["added_tokens"];
  for (size_t i = 0; !added.is_null() && i < added.size(); ++i) {
    AddedToken token = read_added_token(added[i]);
    token.id = static_cast<int32_t>(added[i]["id"].integer(kMaxId));
    add_token(pipeline, std::move(token));
  }
}

}  // namespace lariat::tok
