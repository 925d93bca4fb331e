#pragma once
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/spec.h"
#include "models/split.h"
#include "models/tensors.h"

namespace lariat {

// Weights of latent attention (LatentSpec). U_h and V_h: one block per head.
struct LatentWeights {
  Weight q_a;  // [q_rank, hidden], or empty: then q_in is hidden, else q_rank
  Norm q_a_norm;
  Weight q_rope, q_nope;   // per head [rope_dim, q_in], [nope_dim, q_in]
  Weight kv_a_rope, kv_a;  // [rope_dim, hidden], [kv_rank, hidden]
  Norm kv_a_norm;
  Weight k_absorb, v_up;  // per head U_h^T [kv_rank, nope_dim], V_h [v_dim, kv_rank]
  Weight k_up;            // per head U_h [nope_dim, kv_rank]; empty if weights are quantised
};

// A layer's experts: one block each, [intermediate, hidden] x2 and [hidden, intermediate].
struct ExpertWeights {
  Weight router;          // [experts, hidden], with bias
  Matrix choice_bias;     // [experts]
  Weight gate, up, down;  // with one row of biases per expert
};

// Weights of a decoder layer, empty if absent: projections [out_features, in_features], norms and biases f32.
struct LayerWeights {
  Norm attention_norm, attention_post_norm;  // [hidden]
  Weight qkv;                    // q [heads*head_dim, hidden], k and v [kv heads*head_dim, hidden]; no biases
  QkvEpilogue qkv_epilogue;      // biases of q, k and v, and norms per head
  Norm q_norm, k_norm;           // over all heads: [heads*head_dim], [kv heads*head_dim]
  Matrix sinks;                  // [heads]
  LatentWeights latent;          // in place of qkv
  Weight o;                      // [hidden, heads*head_dim]
  Norm ffn_norm, ffn_post_norm;  // [hidden]
  Weight gate_up;                // gate and up [intermediate, hidden] each, or up alone
  Weight down;                   // [hidden, intermediate]
  ExpertWeights experts;
};

// A model's weights on a backend. Matrices point into `memory`, or into the checkpoint if used in place.
struct Weights {
  HostWeight embed = Matrix();  // [vocab, hidden]; unshared quantized values may stay in their file
  Norm embedding_norm;
  std::vector<LayerWeights> layers;
  Norm norm;    // [hidden]
  Weight head;  // [vocab, hidden]; the embedding itself when tied
  // Most projections: dtype and scale type; dtype of rounded inputs.
  WeightFormat form;
  DType compute = DType::kF32;
  float embedding_multiplier = 1.0F;
  // Bytes of all matrices that a step may read (the embedding table only if tied), and bytes that one token
  // reads, without unchosen experts.
  size_t bytes = 0, token_bytes = 0;
  int64_t values = 0;  // weights that one token reads, one multiply-add each
  std::vector<Buffer> memory;
};

// Loads every tensor by its Hugging Face name, checks its shape and passes it to the backend. requested:
// format of the projections; unset: the checkpoint's. Quantising keeps the embedding table, of which a token
// reads one row. A quantised head is at least q8, tied or not: it is small and its errors reach the logits.
// Throws Error naming file and tensor if missing or of wrong shape, or if the backend cannot quantise.
Weights load_weights(const ModelSpec& spec, const Tensors& checkpoint, Backend& backend,
                     std::optional<WeightFormat> requested, const Split& split = {});

// Checks all that load_weights checks and returns the names of its tensors. Throws Error naming file and
// tensor if an unread tensor could change the result (models/gate.h). Reads data only for a tied
// model with a stored head: a different head unties the spec, with a warning.
std::set<std::string> check_weights(ModelSpec& spec, const Tensors& checkpoint);

// First tensor, by name, with NaN or infinite values.
struct NotFinite {
  std::string tensor;
  std::filesystem::path file;
  int64_t values = 0, of = 0;  // number of such values, and of all
};
// Reads every tensor up to that one, quantised ones too: as slow as reading the file, so only for diagnosis.
std::optional<NotFinite> find_not_finite(const Tensors& checkpoint);

// Weights as from load_weights(.., requested), without data. No checkpoint: stored in spec.dtype.
Weights planned_weights(const ModelSpec& spec, std::optional<WeightFormat> requested,
                        const Tensors* checkpoint = nullptr);

// Reproducible random weights for benchmarks: random signs and mantissas, four exponents.
Weights random_weights(const ModelSpec& spec, Backend& backend, const WeightFormat& requested, uint64_t seed,
                       const Split& split = {});

}  // namespace lariat
