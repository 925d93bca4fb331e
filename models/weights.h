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

// Of latent attention (LatentSpec); vectors have a matrix for each head.
struct LatentWeights {
  Matrix q_a;  // [q_rank, hidden], or nothing: then q_in is hidden, else q_rank
  Norm q_a_norm;
  std::vector<Matrix> q_rope, q_nope;  // [rope_dim, q_in], [nope_dim, q_in]
  Matrix kv_a_rope, kv_a;              // [rope_dim, hidden], [kv_rank, hidden]
  Norm kv_a_norm;
  std::vector<Matrix> k_absorb, v_up;  // U_h^T [kv_rank, nope_dim], V_h [v_dim, kv_rank]
  std::vector<Matrix> k_up;            // U_h [nope_dim, kv_rank]; nothing where weights are quantised
};

// Of a layer's experts; vectors have a matrix for each.
struct ExpertWeights {
  Matrix router, choice_bias;          // [experts, hidden], [experts]
  std::vector<Matrix> gate, up, down;  // as those of a feed-forward
};

// One decoder layer. Projections are [out_features, in_features]; norms and biases are one f32 row; what a
// model does not have is an empty Matrix.
struct LayerWeights {
  Norm attention_norm, attention_post_norm;  // [hidden]
  Matrix q_proj, k_proj, v_proj,
      o_proj;                    // [heads*head_dim, hidden], [kv heads*head_dim, hidden] x2, [hidden, ..]
  Matrix o_bias;                 // [hidden]
  QkvEpilogue qkv;               // biases of q, k, v and the norms over each head
  Norm q_norm, k_norm;           // over all heads together: [heads*head_dim], [kv heads*head_dim]
  LatentWeights latent;          // in place of q_proj, k_proj and v_proj
  Norm ffn_norm, ffn_post_norm;  // [hidden]
  Matrix gate_proj, up_proj, down_proj;  // [intermediate, hidden] x2, [hidden, intermediate]
  Matrix gate_bias, up_bias, down_bias;
  ExpertWeights experts;
};

// A model's weights as a backend has them. Matrices point into `memory`, or into the checkpoint (or random
// values) that they were made from, where the backend uses those in place.
struct Weights {
  Matrix embed;  // [vocab, hidden]
  Norm embedding_norm;
  std::vector<LayerWeights> layers;
  Norm norm;                  // [hidden]
  Matrix head;                // [vocab, hidden]; the embedding itself when tied
  DType dtype = DType::kF32;  // of the projections
  float embedding_multiplier = 1.0F;
  // Of all matrices that a step may read (embedding table excluded unless tied), and of those that one token
  // reads, which leaves out the experts that it does not go to.
  size_t bytes = 0, token_bytes = 0;
  int64_t values = 0;  // how many weights the latter hold: a token costs as many multiply-adds
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
