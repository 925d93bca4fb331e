#pragma once
#include <set>
#include <string>

#include "models/files/tensors.h"
#include "models/spec/spec.h"

namespace lariat {

// Refuses other weight formats (quantised, LoRA). Runs first, as the model's own tensors are then missing.
void refuse_foreign_tensors(const Tensors& checkpoint);

// Refuses tensors neither in `read` nor harmless (RoPE frequencies, zero biases); warns of a vision tower.
void check_unread_tensors(ModelSpec& spec, const Tensors& checkpoint, const std::set<std::string>& read);

}  // namespace lariat
