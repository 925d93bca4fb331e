#include <fmt/format.h>

#include <cstring>

#include "models/load/gate_tensors.h"
#include "models/load/tensor_names.h"
#include "models/load/weight_source.h"

namespace lariat {
namespace {

// Unties a model whose stored head differs from the embedding, as transformers 5 does (tie_weights). Returns
// the name of an equal head, which is not read.
std::string compare_tied(ModelSpec& spec, const Tensors& checkpoint) {
  if (!spec.tie_word_embeddings) return "";
  const Layout layout = layout_of(spec, &checkpoint);
  const StoredTensor* embed = checkpoint.find(layout.embed);
  const StoredTensor* head = checkpoint.find(layout.own_head);
  if (embed == nullptr || head == nullptr || embed == head) return "";
  if (embed->dtype == head->dtype && embed->shape == head->shape && embed->bytes == head->bytes &&
      std::memcmp(embed->data, head->data, embed->bytes) == 0) {
    return head->name;
  }
  spec.tie_word_embeddings = false;
  spec.warnings.push_back(head->file.string() + ": tensor '" + head->name + "' differs from '" + embed->name +
                          "'; \"tie_word_embeddings\" of " + spec.file.string() +
                          " (or its default) is ignored, as in transformers");
  return "";
}

void drop_missing_qk_norms(ModelSpec& spec, const Layout& layout, const Tensors& checkpoint) {
  const std::string name = layout.root + fmt::format(fmt::runtime(spec.names.layer), 0) + spec.names.q_norm;
  if (checkpoint.find(name + ".weight") != nullptr) return;
  for (LayerSpec& layer : spec.layers) layer.attention.qk_norm = QkNorm::kNone;
}

class CheckedTensors : public Source {
 public:
  explicit CheckedTensors(const Tensors& checkpoint) : checkpoint_(checkpoint) {}
  Matrix vector(const Parameter& parameter) override {
    if (parameter.ones) return shape_of(parameter, DType::kF32);
    const StoredTensor& tensor = checkpoint_.check(parameter.name, stored_shape(parameter));
    names.insert(parameter.name);
    return shape_of(parameter, tensor.format());
  }
  Weight weight(std::span<const Parameter> blocks) override {
    Weight weight;
    for (const Parameter& parameter : blocks) weight.blocks.push_back({vector(parameter), {}});
    return weight;
  }

  std::set<std::string> names;

 private:
  const Tensors& checkpoint_;
};

}  // namespace

std::set<std::string> check_weights(ModelSpec& spec, const Tensors& checkpoint) {
  refuse_foreign_tensors(checkpoint);
  const std::string equal_head = compare_tied(spec, checkpoint);
  const Layout layout = layout_of(spec, &checkpoint);
  if (spec.qk_norm_if_stored) drop_missing_qk_norms(spec, layout, checkpoint);
  CheckedTensors source(checkpoint);
  read_weights(spec, &checkpoint, source, {});
  std::set<std::string> accounted = source.names;
  accounted.insert(equal_head);
  check_unread_tensors(spec, checkpoint, accounted);
  return source.names;
}

}  // namespace lariat
