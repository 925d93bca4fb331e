#include "models/text/tokenizer_pipeline.h"

#include "kernels/error.h"

namespace lariat::tok {
namespace {

void place(Pipeline& pipeline, int32_t id, const std::string& text, bool special) {
  const auto at = static_cast<size_t>(id);
  if (at >= pipeline.tokens.size()) pipeline.tokens.resize(at + 1);
  Pipeline::Token& token = pipeline.tokens[at];
  if (token.known && token.text != text) {
    throw Error(pipeline.file + ": id " + std::to_string(id) + " belongs to both '" +
                token.text.substr(0, 60) + "' and '" + text.substr(0, 60) +
                "'; the tokenizer files contradict each other");
  }
  token = {text, true, special};
  const auto [it, fresh] = pipeline.ids.emplace(text, id);
  if (!fresh && it->second != id) {
    throw Error(pipeline.file + ": token '" + text.substr(0, 60) + "' has the ids " +
                std::to_string(it->second) + " and " + std::to_string(id) +
                "; the tokenizer files contradict each other");
  }
}

// The table by id is as long as the largest id, so that must not be far beyond what the file pays for. Padded
// vocabularies leave gaps of some thousands.
void make_room(Pipeline& pipeline) {
  constexpr size_t kMaxGap = size_t{1} << 19;
  size_t count = pipeline.added.size();
  int32_t largest = 0;
  std::string name;
  const auto see = [&](const std::string& token, int32_t id) {
    if (id < largest) return;
    largest = id;
    name = token;
  };
  if (pipeline.bpe) {
    count += pipeline.bpe->vocab().size();
    for (const auto& [token, id] : pipeline.bpe->vocab()) see(token, id);
  } else {
    count += static_cast<size_t>(pipeline.sentencepiece->size());
    see("", pipeline.sentencepiece->size() - 1);
  }
  for (const AddedToken& token : pipeline.added) see(token.content, token.id);
  if (static_cast<size_t>(largest) >= 2 * count + kMaxGap) {
    throw Error(pipeline.file + ": token '" + name.substr(0, 60) + "' has the id " + std::to_string(largest) +
                " and there are " + std::to_string(count) + " tokens; the file is damaged");
  }
  pipeline.tokens.resize(static_cast<size_t>(largest) + 1);
}

}  // namespace

void add_token(Pipeline& pipeline, AddedToken token) {
  const auto [it, fresh] =
      pipeline.added_index.emplace(token.content, static_cast<int32_t>(pipeline.added.size()));
  if (fresh) {
    pipeline.added.push_back(std::move(token));
    return;
  }
  AddedToken& old = pipeline.added[static_cast<size_t>(it->second)];
  token.id = old.id;
  old = std::move(token);
}

void index_tokens(Pipeline& pipeline) {
  make_room(pipeline);
  if (pipeline.bpe) {
    for (const auto& [token, id] : pipeline.bpe->vocab()) place(pipeline, id, token, false);
  } else {
    const SentencePiece& model = *pipeline.sentencepiece;
    for (int32_t id = 0; id < model.size(); ++id) {
      const std::string piece = model.piece(id);
      // Pieces that differ only in invalid bytes would look the same; only their text counts.
      if (!pipeline.ids.contains(piece)) place(pipeline, id, piece, model.is_control(id));
    }
  }
  for (const AddedToken& token : pipeline.added) {
    place(pipeline, token.id, token.content, token.special);
    if (token.special && pipeline.split_special) continue;
    if (token.normalized && !pipeline.sentencepiece) {
      pipeline.normalized_added.add(pipeline.normalizer.apply(token.content, true), token);
    } else {
      pipeline.raw_added.add(token.content, token);
    }
  }
  for (int32_t id : pipeline.prefix) {
    const bool known =
        static_cast<size_t>(id) < pipeline.tokens.size() && pipeline.tokens[static_cast<size_t>(id)].known;
    if (!known) {
      throw Error(pipeline.file + ": key 'post_processor': id " + std::to_string(id) + " is not a token");
    }
  }
}

}  // namespace lariat::tok
