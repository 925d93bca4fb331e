#include "models/text/pipeline.h"

#include <fmt/format.h>

#include <cctype>

#include "kernels/error.h"

namespace lariat::tok {
namespace {

// NFKC expands a byte to at most 11; a chain of replacements could double a text repeatedly.
constexpr size_t kMaxGrowth = 64;

void place(Pipeline& pipeline, int32_t id, const std::string& text, bool special) {
  Pipeline::Token& token = pipeline.tokens.at(static_cast<size_t>(id));
  if (token.known && token.text != text) {
    throw Error(
        fmt::format("{}: id {} belongs to both '{:.60}' and '{:.60}'; the tokenizer files contradict "
                    "each other, download them again",
                    pipeline.file, id, token.text, text));
  }
  token = {text, true, special};
  const auto [it, fresh] = pipeline.ids.emplace(text, id);
  if (!fresh && it->second != id) {
    throw Error(
        fmt::format("{}: token '{:.60}' has the ids {} and {}; the tokenizer files contradict each "
                    "other, download them again",
                    pipeline.file, text, it->second, id));
  }
}

// Calls see(text, id, true for a control piece).
template <class See>
void each_token(const Pipeline& pipeline, const See& see) {
  if (pipeline.bpe) {
    for (const auto& [token, id] : pipeline.bpe->vocab()) see(token, id, false);
  } else {
    const SentencePiece& model = *pipeline.sentencepiece;
    for (int32_t id = 0; id < model.size(); ++id) see(model.piece(id), id, model.is_control(id));
  }
}

// Ids may go up to twice the number of tokens plus a gap (padded vocabularies have gaps of some thousands): a
// huge id in a small file must not make a huge table.
void make_room(Pipeline& pipeline) {
  constexpr size_t kMaxGap = size_t{1} << 19;
  size_t count = 0;
  int32_t largest = 0;
  std::string name;
  const auto see = [&](const std::string& token, int32_t id, bool /*control*/) {
    ++count;
    if (id < largest) return;
    largest = id;
    name = token;
  };
  each_token(pipeline, see);
  for (const AddedToken& token : pipeline.added) see(token.content, token.id, false);
  if (static_cast<size_t>(largest) >= 2 * count + kMaxGap) {
    throw Error(fmt::format(
        "{}: token '{:.60}' has the id {} and there {}; the file is damaged, download it again",
        pipeline.file, name, largest, count == 1 ? "is 1 token" : fmt::format("are {} tokens", count)));
  }
  pipeline.tokens.resize(static_cast<size_t>(largest) + 1);
  pipeline.ids.reserve(count);
}

}  // namespace

std::string normalize(const std::vector<NormalizeStep>& steps, std::string_view text) {
  std::string out(text);
  for (const NormalizeStep& step : steps) {
    switch (step.kind) {
      case NormalizeStep::Kind::kForm:
        out = lariat::normalize(out, step.form);
        break;
      case NormalizeStep::Kind::kPrepend:
        if (!out.empty()) out.insert(0, step.content);
        break;
      case NormalizeStep::Kind::kReplace:
        out = replace_all(out, step.pattern, step.content);
        break;
    }
    if (out.size() > kMaxGrowth * (text.size() + 1024)) {
      throw Error(
          fmt::format("the tokenizer's normalizer expands a text more than {} times; use another "
                      "tokenizer.json",
                      kMaxGrowth));
    }
  }
  return out;
}

void add_token(Pipeline& pipeline, AddedToken token) {
  const auto [it, fresh] =
      pipeline.added_index.emplace(token.content, static_cast<int32_t>(pipeline.added.size()));
  if (fresh) {
    pipeline.added.push_back(std::move(token));
    return;
  }
  AddedToken& old = pipeline.added[static_cast<size_t>(it->second)];
  token.id = old.id;
  token.special |= old.special;
  old = std::move(token);
}

void add_class_tokens(const TokenizerClass& known, int32_t next, Pipeline& pipeline) {
  for (const std::string_view each : split(known.added, ' ')) {
    const int count = each.empty() ? 0 : each.find("{}") != std::string_view::npos ? known.numbered : 1;
    for (int i = 0; i < count; ++i) {
      AddedToken token{.content = fmt::format(fmt::runtime(each), i), .id = next++, .normalized = false};
      token.special = true;
      token.after_token = std::isalpha(static_cast<unsigned char>(each.front())) != 0;  // words too ("sop")
      if (has_name(known.prefix, token.content)) pipeline.template_prefix.push_back(token.id);
      add_token(pipeline, std::move(token));
    }
  }
}

std::optional<int32_t> vocabulary_id(const Pipeline& pipeline, const std::string& token) {
  if (pipeline.bpe) {
    const auto it = pipeline.bpe->vocab().find(token);
    return it == pipeline.bpe->vocab().end() ? std::nullopt : std::optional<int32_t>(it->second);
  }
  return pipeline.sentencepiece->find(token);
}

void index_tokens(Pipeline& pipeline) {
  make_room(pipeline);
  each_token(pipeline, [&](const std::string& text, int32_t id, bool control) {
    // Pieces that differ only in invalid bytes have equal texts; only the texts count.
    if (pipeline.bpe || !pipeline.ids.contains(text)) place(pipeline, id, text, control);
  });
  for (const AddedToken& token : pipeline.added) {
    place(pipeline, token.id, token.content, token.special);
    if (token.special && pipeline.split_special) continue;
    if (token.normalized && !pipeline.sentencepiece) {
      pipeline.normalized_added.add(normalize(pipeline.normalizer, token.content), token);
    } else {
      pipeline.raw_added.add(token.content, token);
    }
  }
  for (const auto* ids : {&pipeline.template_prefix, &pipeline.template_suffix}) {
    for (int32_t id : *ids) {
      if (pipeline.token(id) == nullptr)
        throw Error(fmt::format(
            "{}: key 'post_processor': id {} is not a token; the file is damaged, download it again",
            pipeline.file, id));
    }
  }
}

}  // namespace lariat::tok
