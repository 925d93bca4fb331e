#pragma once
#include <string>
#include <vector>

#include "models/spec.h"
#include "models/tensors.h"
#include "models/weight_source.h"

namespace lariat {

// Full names of tensors outside the layers, and the common prefix of layer tensors.
struct Layout {
  std::string root, embed, head;
  std::string own_head;   // name of a stored head, even in a tied model
  bool split_kv = false;  // kv_b is stored as U_h transposed and V_h per head (llama.cpp's converter)
  const Tensors* checkpoint = nullptr;  // nullptr: no tensors

  bool stores(const std::string& name) const {
    return checkpoint != nullptr && checkpoint->find(name) != nullptr;
  }
};

// Prefixes: "model." from AutoModelForCausalLM, none from AutoModel, others for models with images. A tied
// matrix may be stored under the name of the embedding or the head.
Layout layout_of(const ModelSpec& spec, const Tensors* checkpoint);

// Shape of the tensor that stores a parameter, whole or as some of its rows.
std::vector<int64_t> stored_shape(const Parameter& parameter);

}  // namespace lariat
