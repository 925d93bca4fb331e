#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"
#include "models/rope.h"

namespace lariat {

enum class Architecture { kLlama, kMistral, kQwen2, kQwen3, kMiniMind };

// Everything a decoder needs to know about a checkpoint, read from its config.json (and the token ids from
// generation_config.json when there is one). Every field has been checked: a ModelSpec in hand is usable.
struct ModelSpec {
  std::filesystem::path file;  // where it was read from, for error messages
  Architecture architecture = Architecture::kLlama;
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  int64_t n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // q_proj, k_proj, v_proj have a bias
  bool o_bias = false, mlp_bias = false;
  bool qk_norm = false;                 // RMSNorm over each head of q and k
  std::vector<int64_t> sliding_window;  // per layer; 0: full attention
  DType dtype = DType::kF32;            // torch_dtype / dtype
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  RopeScaling rope;
};

std::string_view name_of(Architecture architecture);  // "LlamaForCausalLM", ...

// `dir` holds config.json and perhaps generation_config.json; or `dir` is a config file itself (then the
// latter is looked for only beside one called config.json). Throws Error naming the file and the key.
ModelSpec load_config(const std::filesystem::path& dir);

// The same of a config.json's text alone; `file` is what errors name.
ModelSpec parse_config(std::string_view text, const std::filesystem::path& file);

}  // namespace lariat
