#include "models/load/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace lariat {

Layout layout_of(const ModelSpec& spec, const Tensors* checkpoint) {
  const TensorNames& names = spec.names;
  Layout layout;
  layout.checkpoint = checkpoint;
  layout.root = names.root;
  for (const char* root : {"", "model.language_model.", "language_model.model."}) {
    if (layout.stores(root + names.embed + ".weight") || layout.stores(root + names.norm + ".weight"))
      layout.root = root;
  }
  layout.split_kv =
      layout.stores(layout.root + fmt::format(fmt::runtime(names.layer), 0) + names.k_b + ".weight");
  layout.embed = layout.root + names.embed + ".weight";
  const std::string head = (layout.root.starts_with("language_model.") ? "language_model." : "") + names.head;
  layout.own_head = head + ".weight";
  layout.head_bias = head + ".bias";
  layout.head = layout.own_head;
  if (spec.tie_word_embeddings) {
    if (!layout.stores(layout.embed) && layout.stores(layout.own_head)) layout.embed = layout.own_head;
    layout.head = layout.embed;
  }
  return layout;
}

std::vector<int64_t> stored_shape(const Parameter& parameter) {
  if (is_vector(parameter.role)) return {std::max(parameter.cols, parameter.part.of)};
  if (parameter.stacked) {  // stride: all rows of one expert
    return {parameter.part.of / parameter.part.stride, parameter.part.stride, parameter.cols};
  }
  return {std::max(parameter.rows, parameter.part.of), parameter.cols};
}

}  // namespace lariat
