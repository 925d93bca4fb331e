#include "models/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace lariat {

Layout layout_of(const ModelSpec& spec, const Tensors* checkpoint) {
  const TensorNames& names = spec.names;
  const auto stored = [&](const std::string& name) {
    return checkpoint != nullptr && checkpoint->find(name) != nullptr;
  };
  Layout layout;
  layout.root = names.root;
  for (const char* root : {"", "model.language_model.", "language_model.model."}) {
    if (stored(root + names.embed + ".weight") || stored(root + names.norm + ".weight")) layout.root = root;
  }
  layout.split_kv = stored(layout.root + fmt::format(fmt::runtime(names.layer), 0) + names.k_b + ".weight");
  layout.embed = layout.root + names.embed + ".weight";
  layout.own_head =
      (layout.root.starts_with("language_model.") ? "language_model." : "") + names.head + ".weight";
  layout.head = layout.own_head;
  if (spec.tie_word_embeddings) {
    if (!stored(layout.embed) && stored(layout.own_head)) layout.embed = layout.own_head;
    layout.head = layout.embed;
  }
  return layout;
}

std::vector<int64_t> stored_shape(const Parameter& parameter) {
  if (is_vector(parameter.role)) return {std::max(parameter.cols, parameter.part.of)};
  return {std::max(parameter.rows, parameter.part.of), parameter.cols};
}

}  // namespace lariat
