#pragma once
#include <string>
#include <vector>

#include "models/spec.h"
#include "models/tensors.h"
#include "models/weight_source.h"

namespace lariat {

// Full names of the tensors outside the layers, and what those of the layers begin with.
struct Layout {
  std::string root, embed, head;
  std::string own_head;  // the head's name where embedding and head are two; else as `head`
  bool split_kv =
      false;  // kv_b is two, as llama.cpp's converter has it: of each head U_h transposed, and V_h
  const Tensors* checkpoint = nullptr;  // nullptr: stores nothing

  bool stores(const std::string& name) const {
    return checkpoint != nullptr && checkpoint->find(name) != nullptr;
  }
};

// AutoModelForCausalLM saves behind "model.", AutoModel behind nothing, models with an image part behind one
// of the rest. Where embedding and head are one matrix, a checkpoint may hold it under either name.
Layout layout_of(const ModelSpec& spec, const Tensors* checkpoint);

// The shape of the tensor that a parameter is, or is rows of.
std::vector<int64_t> stored_shape(const Parameter& parameter);

}  // namespace lariat
