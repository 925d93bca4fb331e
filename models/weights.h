#pragma once
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/spec.h"
#include "models/tensors.h"

namespace lariat {

// The weights of latent attention (LatentSpec). U_h and V_h have a block for each head.
struct LatentWeights {
  Weight q_a;  // [q_rank, hidden], or nothing: then q_in is hidden, else q_rank
  Norm q_a_norm;
  Weight q_rope, q_nope;   // of each head [rope_dim, q_in], [nope_dim, q_in]
  Weight kv_a_rope, kv_a;  // [rope_dim, hidden], [kv_rank, hidden]
  Norm kv_a_norm;
  Weight k_absorb, v_up;  // of each head U_h^T [kv_rank, nope_dim], V_h [v_dim, kv_rank]
  Weight k_up;            // of each head U_h [nope_dim, kv_rank]; nothing where weights are quantised
};

// A layer's experts: a block for each, [intermediate, hidden] x2 and [hidden, intermediate].
struct ExpertWeights {
  Weight router;          // [experts, hidden], and a bias
  Matrix choice_bias;     // [experts]
  Weight gate, up, down;  // with a row of biases for each
};

// One decoder layer. Projections are [out_features, in_features]; norms and biases are one f32 row; what a
// model does not have is empty.
struct LayerWeights {
  Norm attention_norm, attention_post_norm;  // [hidden]
  Weight qkv;                    // q [heads*head_dim, hidden], k and v [kv heads*head_dim, hidden]; no biases
  QkvEpilogue qkv_epilogue;      // these, and the norms over each head
  Norm q_norm, k_norm;           // over all heads together: [heads*head_dim], [kv heads*head_dim]
  Matrix sinks;                  // [heads]
  LatentWeights latent;          // in place of qkv
  Weight o;                      // [hidden, heads*head_dim]
  Norm ffn_norm, ffn_post_norm;  // [hidden]
  Weight gate_up;                // gate and up [intermediate, hidden] each, or up alone
  Weight down;                   // [hidden, intermediate]
  ExpertWeights experts;
};

// A model's weights as a backend has them. Matrices point into `memory`, or into the checkpoint where the
// backend uses its bytes in place.
struct Weights {
  HostWeight embed = Matrix();  // [vocab, hidden]; codes that no head shares may stay in their file
  Norm embedding_norm;
  std::vector<LayerWeights> layers;
  Norm norm;    // [hidden]
  Weight head;  // [vocab, hidden]; the embedding itself when tied
  // Of most projections: dtype and type of scales; what their inputs are rounded to.
  WeightFormat form;
  DType compute = DType::kF32;
  float embedding_multiplier = 1.0F;
  // Bytes of all matrices that a step may read (embedding table excluded unless tied), and of those that one
  // token reads, which leaves out the experts that it does not go to.
  size_t bytes = 0, token_bytes = 0;
  int64_t values = 0;  // how many weights the latter hold: a token costs as many multiply-adds
  std::vector<Buffer> memory;
};

// Finds every tensor by its Hugging Face name, checks its shape against the spec and hands it to the
// backend. requested: what the projections are stored as; unset: what the checkpoint holds. A quantised form
// leaves the embedding table as it is: a token reads one row of it. The head is read whole, tied or not, and
// is q8 at least: its errors go straight into the logits, and it is a small part. Throws Error naming file
// and tensor for what is missing or has the wrong shape, and when the backend cannot quantise.
Weights load_weights(const ModelSpec& spec, const Tensors& checkpoint, Backend& backend,
                     std::optional<WeightFormat> requested);

// Checks what load_weights would, and returns the names of the tensors it would read. Throws Error naming
// file and tensor for one that nobody would read and that could change the result (models/gate.h).
// Reads nothing, but for a tied model that has a head too: where that differs from the embedding, the spec is
// no longer tied and has a warning.
std::set<std::string> check_weights(ModelSpec& spec, const Tensors& checkpoint);

// The first tensor, by name, that holds NaN or infinite values.
struct NotFinite {
  std::string tensor;
  std::filesystem::path file;
  int64_t values = 0, of = 0;  // so many of so many
};
// Reads every tensor up to that one, quantised ones too, which takes as long as reading the file: look when
// something is wrong.
std::optional<NotFinite> find_not_finite(const Tensors& checkpoint);

// The weights that load_weights(.., requested) would make for this shape, without data. No checkpoint: one of
// spec.dtype.
Weights planned_weights(const ModelSpec& spec, std::optional<WeightFormat> requested,
                        const Tensors* checkpoint = nullptr);

// Reproducible random weights of the spec's shape, for benchmarks: random signs and mantissas, four
// exponents.
Weights random_weights(const ModelSpec& spec, Backend& backend, const WeightFormat& requested, uint64_t seed);

}  // namespace lariat
