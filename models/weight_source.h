#pragma once
#include <functional>
#include <string>

#include "models/spec.h"
#include "models/weights.h"

// What models/weights.cpp and models/layer_weights.cpp share: how a model asks for its matrices.
namespace lariat {

// kLongSteps: a projection that only long steps use, absent (an empty matrix) where weights are quantised.
enum class Role { kEmbedding, kProjection, kLongSteps, kRouter, kHead, kVector, kNorm };

inline bool is_vector(Role role) { return role == Role::kVector || role == Role::kNorm; }

// Rows of a tensor of `of` rows: `run` from `first` on, then from first + stride, and so on until there are
// as many as wanted.
struct RowRange {
  int64_t of = 0, first = 0, run = 0, stride = 0;
};

// A matrix of a model. rows x cols as [out_features, in_features]; a vector has one row.
struct Wanted {
  std::string name;
  int64_t rows = 0, cols = 0;
  Role role = Role::kVector;
  RowRange part;            // where of > rows: which of the tensor's rows; of a vector: which of its elements
  bool transposed = false;  // what is handed out is [cols, rows]
};

// Where matrices come from: a checkpoint, or a random generator.
using Source = std::function<Matrix(const Wanted& wanted)>;

// A layer's weights, and the norm `name`; `root` is what the names of the decoder begin with.
LayerWeights read_layer(const ModelSpec& spec, size_t index, const std::string& root, const Source& source);
Norm read_norm(const ModelSpec& spec, const std::string& name, int64_t size, const Source& source);

}  // namespace lariat
