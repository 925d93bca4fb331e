#pragma once
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/files/tensors.h"
#include "models/load/split.h"
#include "models/spec/spec.h"

namespace lariat {

// Latent attention (LatentSpec). U_h and V_h: one block per head.
struct LatentWeights {
  Weight q_a;  // [q_rank, hidden], or empty: then q_in is hidden, else q_rank
  Norm q_a_norm;
  Weight q_rope, q_nope;   // per head [rope_dim, q_in], [nope_dim, q_in]
  Weight kv_a_rope, kv_a;  // [rope_dim, hidden], [kv_rank, hidden]
  Norm kv_a_norm;
  Weight k_absorb, v_up;  // per head U_h^T [kv_rank, nope_dim], V_h [v_dim, kv_rank]
  Weight k_up;            // per head U_h [nope_dim, kv_rank]; empty if quantised
};

// One block per expert: [intermediate, hidden] x2 and [hidden, intermediate].
struct ExpertWeights {
  Weight router;          // [experts, hidden], and [1, hidden] of the shared expert if weighed
  Matrix choice_bias;     // [experts]
  Weight gate, up, down;  // one row of biases per expert
};

// Xielu's parameters as stored, one number each: positive and negative are softplus(alpha_p) and beta +
// softplus(alpha_n).
struct XieluWeights {
  Matrix alpha_p, alpha_n, beta, eps;
};
// Copies the parameters to the host; zeros without weights.
Xielu xielu_of(const XieluWeights& weights, Backend& backend);

// Decoder layer; empty if absent. Projections are [out_features, in_features], norms and biases f32.
struct LayerWeights {
  Norm attention_norm, attention_post_norm;  // [hidden]
  Weight qkv;                    // q [heads*head_dim, hidden], k and v [kv heads*head_dim, hidden]; no biases
  QkvEpilogue qkv_epilogue;      // biases, and norms per head
  Norm q_norm, k_norm;           // over all heads: [heads*head_dim], [kv heads*head_dim]
  Matrix sinks;                  // [heads]
  LatentWeights latent;          // in place of qkv
  Weight o;                      // [hidden, heads*head_dim]
  Norm ffn_norm, ffn_post_norm;  // [hidden]
  Weight gate_up;                // gate and up [intermediate, hidden] each, or up alone
  XieluWeights xielu;            // of the gate_up's output, for Activation::kXielu
  Weight down;                   // [hidden, intermediate]
  ExpertWeights experts;
};

// Matrices point into `memory` or, if used in place, into the checkpoint.
struct Weights {
  HostWeight embed = Matrix();      // [vocab, hidden]; unshared quantized values may stay in their file
  HostWeight positions = Matrix();  // [max_position_embeddings, hidden], or empty; as embed
  Norm embedding_norm;
  std::vector<LayerWeights> layers;
  Norm norm;    // [hidden]
  Weight head;  // [vocab, hidden] and any bias; the embedding itself when tied
  // Dtype and scale type of most projections; dtype of rounded inputs.
  WeightFormat format;
  DType compute = DType::kF32;
  float embedding_multiplier = 1.0F;
  // Bytes that a step may read (the embedding table only if tied), and that one token reads, without unchosen
  // experts.
  size_t bytes = 0, token_bytes = 0;
  int64_t values = 0;  // multiply-adds per token
  std::vector<Buffer> memory;
};

// requested: see load_model. Quantising keeps the embedding table, of which a token reads one row; a head is
// at least q8, tied or not: it is small and its errors reach the logits. Throws Error if a tensor is missing
// or of wrong shape, or if the backend cannot quantise.
Weights load_weights(const ModelSpec& spec, const Tensors& checkpoint, Backend& backend,
                     std::optional<WeightFormat> requested, const Split& split = {});

// Checks all that load_weights checks and returns the tensors' names. Throws Error if an unread tensor could
// change the result. Unties a model whose stored head differs from the embedding, with a warning; reads no
// other data.
std::set<std::string> check_weights(ModelSpec& spec, const Tensors& checkpoint);

// First tensor, by name, with NaN or infinite values.
struct NotFinite {
  std::string tensor;
  std::filesystem::path file;
  int64_t values = 0, of = 0;  // number of such values, and of all
};
// Reads the whole file: for diagnosis only.
std::optional<NotFinite> find_not_finite(const Tensors& checkpoint);

// Weights without data. No checkpoint: stored in spec.dtype.
Weights planned_weights(const ModelSpec& spec, std::optional<WeightFormat> requested,
                        const Tensors* checkpoint = nullptr);

// Reproducible random weights for benchmarks: random signs and mantissas, four exponents.
Weights random_weights(const ModelSpec& spec, Backend& backend, const WeightFormat& requested, uint64_t seed,
                       const Split& split = {});

}  // namespace lariat
