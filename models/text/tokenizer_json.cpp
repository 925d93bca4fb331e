// tokenizer.json of HF `tokenizers`: one object per component of the pipeline.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "models/io/json_fields.h"
#include "models/io/json_file.h"
#include "models/text/pipeline.h"

namespace lariat::tok {
namespace {

using Warnings = std::vector<std::string>;
constexpr size_t kMaxContentBytes = 256;
constexpr size_t kMaxSteps = 32;

std::string where(const JsonFields& fields, std::string_view key) {
  return fmt::format("{}: key '{}'", fields.file(), fields.path(key));
}

std::string read_name(const JsonFields& fields, const char* key,
                      std::initializer_list<std::string_view> supported) {
  std::string name = fields.need_string(key);
  if (std::find(supported.begin(), supported.end(), name) != supported.end()) return name;
  fields.fail(key,
              fmt::format("'{:.60}' is not supported; lariat knows {}", name, fmt::join(supported, ", ")));
}

template <typename Step>
std::string read_type(const JsonFields& fields, const std::vector<Step>& steps,
                      std::initializer_list<std::string_view> supported) {
  if (steps.size() >= kMaxSteps)
    fields.fail("type", fmt::format("more than {} components; use another tokenizer.json", kMaxSteps));
  return read_name(fields, "type", supported);
}

// "pattern": {"String": s} or {"Regex": s}; only strings if `regex` is null.
std::string read_pattern(const JsonFields& fields, bool* regex) {
  const JsonFields pattern = fields.need_object("pattern");
  if (const auto text = pattern.string("String")) {
    if (text->empty()) pattern.fail("String", "expected a pattern that is not empty");
    return *text;
  }
  if (!pattern.has("Regex")) fields.fail("pattern", "expected {\"String\": …} or {\"Regex\": …}");
  if (!regex) pattern.fail("Regex", "only a String pattern is supported here; use another tokenizer.json");
  *regex = true;
  return pattern.need_string("Regex");
}

std::string read_content(const JsonFields& fields, const char* key) {
  std::string content = fields.need_string(key);
  if (content.size() > kMaxContentBytes)
    fields.fail(key, fmt::format("expected at most {} bytes", kMaxContentBytes));
  return content;
}

std::string read_character(const JsonFields& fields, const char* key) {
  std::string text = fields.need_string(key);
  if (text.empty() || utf8_step(text, 0).length != text.size()) fields.fail(key, "expected one character");
  return text;
}

void read_normalizer(const JsonFields& fields, std::vector<NormalizeStep>& steps, Warnings& warnings) {
  using Kind = NormalizeStep::Kind;
  const std::string type =
      read_type(fields, steps, {"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace"});
  if (type == "Sequence") {
    for (const JsonFields& item : fields.need_objects("normalizers")) read_normalizer(item, steps, warnings);
  } else if (type == "Prepend") {
    steps.push_back({.kind = Kind::kPrepend, .content = read_content(fields, "prepend")});
  } else if (type == "Replace") {
    std::string pattern = read_pattern(fields, nullptr);
    steps.push_back(
        {.kind = Kind::kReplace, .pattern = std::move(pattern), .content = read_content(fields, "content")});
  } else {
    const NormalForm form = type == "NFC"    ? NormalForm::kNfc
                            : type == "NFD"  ? NormalForm::kNfd
                            : type == "NFKC" ? NormalForm::kNfkc
                                             : NormalForm::kNfkd;
    steps.push_back({.kind = Kind::kForm, .form = form});
  }
  warn_of_unread(fields, "", warnings);
}

SplitBehavior read_behavior(const JsonFields& fields) {
  const std::string name = read_name(
      fields, "behavior", {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"});
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  return name == "MergedWithNext" ? SplitBehavior::kMergedWithNext : SplitBehavior::kContiguous;
}

PreTokenizeStep read_split(const JsonFields& fields) {
  PreTokenizeStep step;
  bool regex = false;
  std::string pattern = read_pattern(fields, &regex);
  if (regex) {
    step.regex.emplace(pattern, where(fields, "pattern.Regex"));
  } else {
    step.literal = std::move(pattern);
  }
  step.behavior = read_behavior(fields);
  step.invert = fields.boolean("invert").value_or(false);
  return step;
}

PreTokenizeStep read_metaspace(const JsonFields& fields) {
  using Prepend = PreTokenizeStep::Prepend;
  PreTokenizeStep step{.kind = PreTokenizeStep::Kind::kMetaspace,
                       .literal = read_character(fields, "replacement"),
                       .behavior = SplitBehavior::kMergedWithNext,
                       .split = fields.boolean("split").value_or(true)};
  const std::string scheme = fields.string("prepend_scheme").value_or("always");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    fields.fail("prepend_scheme", "expected always, first or never");
  step.prepend = scheme == "always"  ? Prepend::kAlways
                 : scheme == "first" ? Prepend::kFirst
                                     : Prepend::kNever;
  if (!fields.boolean("add_prefix_space").value_or(true)) step.prepend = Prepend::kNever;
  return step;
}

void read_pre_tokenizer(const JsonFields& fields, std::vector<PreTokenizeStep>& steps, Warnings& warnings) {
  using Kind = PreTokenizeStep::Kind;
  const std::string type =
      read_type(fields, steps, {"Sequence", "Split", "ByteLevel", "Digits", "Metaspace"});
  if (!steps.empty() && steps.back().kind == Kind::kByteLevel)
    fields.fail("type", "nothing may follow ByteLevel; use another tokenizer.json");
  if (type == "Sequence") {
    for (const JsonFields& item : fields.need_objects("pretokenizers"))
      read_pre_tokenizer(item, steps, warnings);
  } else if (type == "Split") {
    steps.push_back(read_split(fields));
  } else if (type == "Metaspace") {
    steps.push_back(read_metaspace(fields));
  } else if (type == "ByteLevel") {
    PreTokenizeStep step{.kind = Kind::kByteLevel,
                         .add_prefix_space = fields.boolean("add_prefix_space").value_or(true),
                         .split = fields.boolean("use_regex").value_or(true)};
    if (step.split) step.regex.emplace(kGpt2Pattern, where(fields, "use_regex"));
    steps.push_back(std::move(step));
  } else {
    const bool each = fields.boolean("individual_digits").value_or(false);
    steps.push_back(
        {.kind = Kind::kDigits, .behavior = each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  }
  warn_of_unread(fields, "str_rep trim_offsets", warnings);
}

// Ids of a TemplateProcessing's "single" before and after the text.
void read_template(const JsonFields& fields, std::vector<int32_t>& before, std::vector<int32_t>& behind) {
  const JsonFields special = fields.need_object("special_tokens");
  bool passed = false;
  for (const JsonFields& part : fields.need_objects("single")) {
    if (part.present("Sequence")) {
      passed = true;
      continue;
    }
    const std::string id = part.need_object("SpecialToken").need_string("id");
    const JsonFields token = special.need_object(id);
    const auto ids = token.integers("ids", 0, kMaxId - 1);
    if (!ids) token.fail("ids", "expected a list of ids");
    std::vector<int32_t>& side = passed ? behind : before;
    side.insert(side.end(), ids->begin(), ids->end());
  }
}

void read_post_processor(const JsonFields& fields, Pipeline& pipeline) {
  const std::string type = read_name(fields, "type", {"Sequence", "TemplateProcessing", "ByteLevel"});
  if (type == "Sequence") {
    for (const JsonFields& item : fields.need_objects("processors")) read_post_processor(item, pipeline);
  } else if (type == "TemplateProcessing") {
    std::vector<int32_t> before;
    read_template(fields, before, pipeline.template_suffix);
    pipeline.template_prefix.insert(pipeline.template_prefix.begin(), before.begin(), before.end());
  }
  warn_of_unread(fields, "add_prefix_space pair trim_offsets use_regex", pipeline.warnings);
}

void read_decoder(const JsonFields& fields, std::vector<DecodeStep>& steps, Warnings& warnings) {
  using Kind = DecodeStep::Kind;
  const std::string type = read_type(
      fields, steps, {"Sequence", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "ByteLevel"});
  const bool fused = std::any_of(steps.begin(), steps.end(), [](const DecodeStep& step) {
    return step.kind == Kind::kFuse || step.kind == Kind::kByteLevel;
  });
  if (type == "Sequence") {
    for (const JsonFields& item : fields.need_objects("decoders")) read_decoder(item, steps, warnings);
  } else if (type == "Replace") {
    steps.push_back({.kind = Kind::kReplace,
                     .pattern = read_pattern(fields, nullptr),
                     .content = read_content(fields, "content")});
    const std::string& pattern = steps.back().pattern;
    if (fused && utf8_step(pattern, 0).length != pattern.size())
      fields.fail(
          "pattern",
          "more than one character after Fuse or ByteLevel is not supported; use another tokenizer.json");
  } else if (type == "Fuse") {
    steps.push_back({.kind = Kind::kFuse});
  } else if (type == "Strip") {
    constexpr int64_t kMaxStrip = 1 << 20;
    steps.push_back({.kind = Kind::kStrip,
                     .content = read_character(fields, "content"),
                     .start = static_cast<size_t>(fields.need_integer("start", 0, kMaxStrip - 1)),
                     .stop = static_cast<size_t>(fields.need_integer("stop", 0, kMaxStrip - 1))});
  } else if (fused) {
    fields.fail(
        "type",
        fmt::format("'{}' after Fuse or ByteLevel is not supported; use another tokenizer.json", type));
  } else if (type == "ByteFallback") {
    steps.push_back({.kind = Kind::kByteFallback, .bad_bytes = Utf8Assembler::Replace::kWhole});
  } else if (type == "ByteLevel") {
    steps.push_back({.kind = Kind::kByteLevel});
  } else {
    const PreTokenizeStep metaspace = read_metaspace(fields);
    steps.push_back({.kind = Kind::kReplace,
                     .pattern = metaspace.literal,
                     .content = " ",
                     .drop_first = metaspace.prepend != PreTokenizeStep::Prepend::kNever});
  }
  warn_of_unread(fields, "add_prefix_space str_rep trim_offsets use_regex", warnings);
}

StringMap read_vocab(const JsonFields& model) {
  StringMap vocab;
  const nlohmann::json* tokens = model.find("vocab");
  if (tokens == nullptr || !tokens->is_object() || tokens->empty())
    model.fail("vocab", "expected an object of token: id");
  vocab.reserve(tokens->size());
  std::vector<bool> used;
  for (const auto& [token, value] : tokens->items()) {
    if (token.size() > kMaxTokenBytes)
      model.fail("vocab",
                 fmt::format("a token of {} bytes is too long; use another tokenizer.json", token.size()));
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(kMaxId);
    if (!fits) {
      model.fail(
          "vocab",
          fmt::format("the id of '{:.60}' is not an integer below {}; the file is damaged, download it again",
                      token, kMaxId));
    }
    const auto id = value.get<size_t>();
    if (id >= used.size()) used.resize(id + 1);
    if (used[id]) {
      model.fail(
          "vocab",
          fmt::format(
              "id {} is given twice, the second time to '{:.60}'; the file is damaged, download it again", id,
              token));
    }
    used[id] = true;
    vocab.emplace(token, static_cast<int32_t>(id));
  }
  return vocab;
}

// Merges are "left right" or ["left", "right"].
void read_merges(const JsonFields& model, BpeSpec& spec) {
  const nlohmann::json* merges = model.find("merges");
  if (merges == nullptr || !merges->is_array()) model.fail("merges", "expected an array");
  spec.merges.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const nlohmann::json& merge = (*merges)[i];
    if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      if (!add_merge(spec, i, text))
        model.fail(fmt::format("merges[{}]", i), "expected two tokens with one space between them");
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      model.fail(fmt::format("merges[{}]", i), "expected a string or a pair of strings");
    }
  }
}

BpeSpec read_model(const JsonFields& model, Warnings& warnings) {
  BpeSpec spec;
  if (model.has("type")) read_name(model, "type", {"BPE"});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string(key).value_or("").empty()) model.fail(key, "expected null or \"\"");
  }
  const nlohmann::json* dropout = model.find("dropout");
  if (dropout != nullptr && *dropout != 0) model.fail("dropout", "expected null or 0");
  spec.unk_token = model.string("unk_token");
  spec.fuse_unk = model.boolean("fuse_unk").value_or(false);
  spec.byte_fallback = model.boolean("byte_fallback").value_or(false);
  spec.ignore_merges = model.boolean("ignore_merges").value_or(false);
  spec.vocab = read_vocab(model);
  read_merges(model, spec);
  warn_of_unread(model, "", warnings);
  return spec;
}

PreTokenizeStep::Prepend space_in_front(const std::vector<NormalizeStep>& normalize_steps,
                                        const std::vector<PreTokenizeStep>& steps) {
  using Prepend = PreTokenizeStep::Prepend;
  for (const NormalizeStep& step : normalize_steps) {
    if (step.kind == NormalizeStep::Kind::kPrepend) return Prepend::kAlways;
  }
  for (const PreTokenizeStep& step : steps) {
    if (step.add_prefix_space) return Prepend::kAlways;
    if (step.prepend != Prepend::kNever) return step.prepend;
  }
  return Prepend::kNever;
}

}  // namespace

void load_tokenizer_json(const ModelTexts& texts, Pipeline& pipeline) {
  pipeline.file = texts.file("tokenizer.json").string();
  const nlohmann::json json = texts.json("tokenizer.json");
  const JsonFields root(json, pipeline.file, "", texts.wording(JsonFields::with_key));
  if (root.string("version").value_or("1.0") != "1.0") root.fail("version", "expected \"1.0\"");
  std::vector<NormalizeStep> normalize_steps;
  if (const auto fields = root.object("normalizer"))
    read_normalizer(*fields, normalize_steps, pipeline.warnings);
  std::vector<PreTokenizeStep> steps;
  if (const auto fields = root.object("pre_tokenizer")) read_pre_tokenizer(*fields, steps, pipeline.warnings);
  pipeline.space_in_front = space_in_front(normalize_steps, steps);
  pipeline.normalizer = std::move(normalize_steps);
  BpeSpec spec = read_model(root.need_object("model"), pipeline.warnings);
  spec.byte_level = !steps.empty() && steps.back().kind == PreTokenizeStep::Kind::kByteLevel;
  pipeline.pre_tokenizer = std::move(steps);
  pipeline.bpe.emplace(std::move(spec), pipeline.file);
  if (const auto fields = root.object("post_processor")) read_post_processor(*fields, pipeline);
  if (const auto fields = root.object("decoder")) {
    read_decoder(*fields, pipeline.decode_steps, pipeline.warnings);
  } else {
    pipeline.decode_steps.push_back({.kind = DecodeStep::Kind::kJoin, .content = " "});
  }
  for (const JsonFields& fields : root.objects("added_tokens").value_or(std::vector<JsonFields>{})) {
    AddedToken token = read_added_token(fields, pipeline.warnings);
    token.id = static_cast<int32_t>(fields.need_integer("id", 0, kMaxId - 1));
    add_token(pipeline, std::move(token));
  }
  // Ignores settings of the program that wrote the file, except the padding token.
  if (const nlohmann::json* padding = root.find("padding"); padding != nullptr && padding->is_object()) {
    const auto token = padding->find("pad_token");
    if (token != padding->end() && token->is_string()) pipeline.own_roles["pad_token"] = *token;
  }
  warn_of_unread(root, "padding truncation", pipeline.warnings);
}

}  // namespace lariat::tok
