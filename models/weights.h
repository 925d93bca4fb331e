#pragma once
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/safetensors.h"
#include "models/spec.h"

namespace lariat {

// One decoder layer. Projections are [out_features, in_features]; norms and biases are one f32 row; what a
// model does not have is an empty Matrix.
struct LayerWeights {
  Matrix attention_norm, attention_post_norm;  // [hidden]
  Matrix q_proj, k_proj, v_proj,
      o_proj;                      // [heads*head_dim, hidden], [kv heads*head_dim, hidden] x2, [hidden, ..]
  Matrix o_bias;                   // [hidden]
  QkvEpilogue qkv;                 // biases of q, k, v and the norms over each head
  Matrix q_norm, k_norm;           // over all heads together: [heads*head_dim], [kv heads*head_dim]
  Matrix ffn_norm, ffn_post_norm;  // [hidden]
  Matrix gate_proj, up_proj, down_proj;  // [intermediate, hidden] x2, [hidden, intermediate]
  Matrix gate_bias, up_bias, down_bias;
};

// A model's weights as a backend has them. Matrices point into `memory`, or into the checkpoint (or random
// values) that they were made from, where the backend uses those in place.
struct Weights {
  Matrix embed;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Matrix norm;                // [hidden]
  Matrix head;                // [vocab, hidden]; the embedding itself when tied
  DType dtype = DType::kF32;  // of the projections
  float embedding_multiplier = 1.0F;
  // Of all matrices a decode step reads (embedding table excluded unless tied).
  size_t bytes = 0;
  int64_t values = 0;  // how many weights these matrices hold: a token costs as many multiply-adds
  std::vector<Buffer> memory;
};

// Finds every tensor by its Hugging Face name, checks its shape against the spec and hands it to the
// backend. dtype: what the projections are stored as; unset: what the checkpoint holds. A quantised dtype
// leaves the embedding table as it is: a token reads one row of it. The head is read whole, tied or not, and
// is q8 at least: its errors go straight into the logits, and it is a small part. Throws Error naming file
// and tensor for what is missing or has the wrong shape, and when the backend cannot quantise.
Weights load_weights(const ModelSpec& spec, const Checkpoint& checkpoint, Backend& backend,
                     std::optional<DType> dtype);

// Checks what load_weights would, and returns the names of the tensors it would read. Throws Error naming
// file and tensor for one that nobody would read and that could change the result (models/families/gate.h).
// Reads nothing, but for a tied model that has a head too: where that differs from the embedding, the spec is
// no longer tied and has a warning.
std::set<std::string> check_weights(ModelSpec& spec, const Checkpoint& checkpoint);

// The first tensor, by name, that holds NaN or infinite values.
struct NotFinite {
  std::string tensor;
  std::filesystem::path file;
  int64_t values = 0, of = 0;  // so many of so many
};
// Reads every float tensor up to that one, which takes as long as reading the file: look when something is
// wrong.
std::optional<NotFinite> find_not_finite(const Checkpoint& checkpoint);

// What load_weights(.., dtype) would make of a model of this shape, without its data.
Weights planned_weights(const ModelSpec& spec, DType dtype);

// Reproducible random weights of the spec's shape, for benchmarks: random signs and mantissas, four
// exponents. `storage` keeps alive those that the backend uses in place.
Weights random_weights(const ModelSpec& spec, Backend& backend, DType dtype, uint64_t seed,
                       std::vector<std::vector<std::byte>>& storage);

}  // namespace lariat
