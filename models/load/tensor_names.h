#pragma once
#include <string>
#include <vector>

#include "models/files/tensors.h"
#include "models/load/weight_source.h"
#include "models/spec/spec.h"

namespace lariat {

// Names outside the layers, and the prefix of layer tensors.
struct Layout {
  std::string root, embed, head;
  std::string own_head;   // name of a stored head, even in a tied model
  std::string head_bias;  // likewise of its bias
  bool split_kv = false;  // kv_b is stored as U_h transposed and V_h per head (llama.cpp)
  const Tensors* checkpoint = nullptr;

  // nullptr: not stored, or without a checkpoint.
  const StoredTensor* find(const std::string& name) const {
    return checkpoint != nullptr ? checkpoint->find(name) : nullptr;
  }
  bool stores(const std::string& name) const { return find(name) != nullptr; }
};

// Prefixes: "model." (AutoModelForCausalLM), none (AutoModel), others for models with images. A tied matrix
// may have the name of the embedding or the head.
Layout layout_of(const ModelSpec& spec, const Tensors* checkpoint);

// Shape of the whole tensor that stores the parameter.
std::vector<int64_t> stored_shape(const Parameter& parameter);

}  // namespace lariat
