#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/error.h"
#include "models/gguf/gguf_model.h"
#include "models/io/json_fields.h"
#include "models/quantization/gguf_blocks.h"

// llama.cpp: src/llama-arch.cpp and gguf-py/gguf/tensor_mapping.py.
namespace lariat {
namespace {

constexpr std::pair<std::string_view, std::string_view> kModel[] = {{"token_embd", "model.embed_tokens"},
                                                                    {"output_norm", "model.norm"},
                                                                    {"output", "lm_head"},
                                                                    {"position_embd", "position_embd"}};

// GGUF's name of a part of a layer, then Hugging Face's; {} is an expert's index.
constexpr std::string_view kLayer =
    "attn_norm input_layernorm attn_q self_attn.q_proj attn_k self_attn.k_proj attn_v self_attn.v_proj "
    "attn_output self_attn.o_proj attn_q_norm self_attn.q_norm attn_k_norm self_attn.k_norm "
    "ffn_norm post_attention_layernorm post_attention_norm post_attention_layernorm "
    "post_ffw_norm post_feedforward_layernorm ffn_gate mlp.gate_proj ffn_up mlp.up_proj "
    "ffn_down mlp.down_proj ffn_gate_inp mlp.gate ffn_gate_exps mlp.experts.{}.gate_proj "
    "ffn_up_exps mlp.experts.{}.up_proj ffn_down_exps mlp.experts.{}.down_proj "
    "ffn_gate_shexp mlp.shared_experts.gate_proj ffn_up_shexp mlp.shared_experts.up_proj "
    "ffn_down_shexp mlp.shared_experts.down_proj attn_q_a self_attn.q_a_proj "
    "attn_q_a_norm self_attn.q_a_layernorm attn_q_b self_attn.q_b_proj "
    "attn_kv_a_mqa self_attn.kv_a_proj_with_mqa attn_kv_a_norm self_attn.kv_a_layernorm "
    "attn_kv_b self_attn.kv_b_proj attn_k_b self_attn.k_b_proj attn_v_b self_attn.v_b_proj "
    "exp_probs_b mlp.gate.e_score_correction_bias ffn_gate_inp_shexp mlp.shared_expert_gate";

bool is_digits(std::string_view text) {
  return !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Reorders rows (elements) of heads of n: llama.cpp pairs neighbours, transformers halves: row h n / 2 + p of
// a head is the file's row 2p + h.
std::shared_ptr<const HostWeight> pair_halves(const StoredTensor& tensor, int64_t n) {
  const auto row_of = [n, half = n / 2](int64_t r) { return r - r % n + 2 * (r % n % half) + r % n / half; };
  const int64_t rows = tensor.rows().m.rows;
  return std::make_shared<const HostWeight>(tensor.shape.size() == 1
                                                ? elements_of(tensor, tensor.shape[0], row_of)
                                                : rows_of(tensor, rows, row_of));
}

class Renamer {
 public:
  explicit Renamer(const GgufFile& file) : file_(file), family_(gguf_family(file)) {}

  std::vector<StoredTensor> run() && {
    for (const StoredTensor& tensor : file_.tensors) {
      if (tensor.name != "rope_freqs.weight" && !tensor.name.starts_with("rope_factors_")) rename(tensor);
    }
    add_xielu();
    return std::move(out_);
  }

 private:
  std::string_view find(std::string_view part) const {
    for (const std::string_view names : {family_.gguf.names, kLayer}) {
      const auto words = split(names, ' ');
      for (size_t i = 0; i + 1 < words.size(); i += 2) {
        if (words[i] == part) return words[i + 1];
      }
    }
    return {};
  }

  // pair_rows: n of pair_halves(); 0: rows stay in order.
  void add(StoredTensor tensor, std::string name, int64_t pair_rows = 0) {
    const bool plus_one = family_.gguf.norms_hold_one && tensor.name.ends_with("norm.weight");
    tensor.name = std::move(name);
    tensor.reader = gguf_codes(tensor);
    tensor.quantized = tensor.reader != nullptr;
    if (pair_rows > 0) tensor.reader = pair_halves(tensor, pair_rows);
    // Gemma's converter adds the norms' 1 to their weights.
    if (plus_one && tensor.shape.size() == 1)
      tensor.reader = std::make_shared<const HostWeight>(elements_of(
          tensor, tensor.shape[0], [](int64_t i) { return i; }, -1.0F));
    out_.push_back(std::move(tensor));
  }

  // Apertus: keys with a number per layer, or one for all, become the tensors of a Hugging Face folder.
  void add_xielu() {
    const std::string layers = gguf_architecture(file_) + ".block_count";
    for (const std::string part : {"alpha_p", "alpha_n", "beta", "eps"}) {
      const std::string key = "xielu." + part;
      if (!file_.has(key)) continue;
      const std::vector<double> values = file_.numbers(key);
      const int64_t n = std::min(gguf_size(file_, layers), kMaxLayers);
      if (std::ssize(values) != n && values.size() != 1)
        file_.fail(key, "expected a number per layer; use another conversion of the model");
      for (int64_t i = 0; i < n; ++i) {
        const auto value = static_cast<float>(values[values.size() == 1 ? 0 : static_cast<size_t>(i)]);
        const auto read = [value](int64_t, const CodeRow& to) {
          std::memcpy(to.codes, &value, sizeof value);
        };
        out_.push_back({.name = fmt::format("model.layers.{}.mlp.act_fn.{}", i, part),
                        .dtype = "F32",
                        .shape = {1},
                        .file = file_.path,
                        .reader = std::make_shared<const HostWeight>(DType::kF32, 1, 1, read)});
      }
    }
  }

  // In some families, the converter orders rows of q and k by pairs.
  void add_projection(StoredTensor tensor, std::string_view part, std::string name) {
    const bool rotated = part == "attn_q" || part == "attn_k";
    int64_t pair_rows = 0;
    if (rotated && family_.gguf.paired_rows) {
      pair_rows = gguf_head_dim(file_);
      const int64_t rows = tensor.shape.empty() ? 0 : tensor.shape.front();
      if (pair_rows % 2 != 0 || rows % pair_rows != 0) {
        throw Error(
            fmt::format("{}: tensor '{}' has {} rows, not heads of {}; use another conversion of the model",
                        file_.path.string(), tensor.name, rows, pair_rows));
      }
    }
    add(std::move(tensor), std::move(name), pair_rows);
  }

  // Consecutive rows that become a separate tensor.
  struct Part {
    std::string_view gguf;
    int64_t rows;
    std::string expert = "";
  };
  void add_parts(const StoredTensor& tensor, const std::string& layer, const std::string& suffix,
                 const std::vector<Part>& parts) {
    int64_t all = 0;
    for (const Part& part : parts) all += part.rows;
    const size_t row_bytes = tensor.bytes / static_cast<size_t>(all);
    const std::byte* data = tensor.data;
    for (const Part& part : parts) {
      StoredTensor own = tensor;
      own.shape = {part.rows};
      if (tensor.shape.size() > 1) own.shape.push_back(tensor.shape.back());
      own.data = data;
      own.bytes = static_cast<size_t>(part.rows) * row_bytes;
      data += own.bytes;
      add_projection(std::move(own), part.gguf,
                     layer + fmt::format(fmt::runtime(find(part.gguf)), part.expert) + suffix);
    }
  }

  void rename(const StoredTensor& tensor) {
    const std::string& name = tensor.name;
    const size_t dot = name.rfind('.');
    const std::string suffix = dot == std::string::npos ? "" : name.substr(dot);
    if (suffix != ".weight" && suffix != ".bias") return add(tensor, name);
    const std::string stem = name.substr(0, dot);
    for (const auto& [gguf, hf] : kModel) {
      if (stem == gguf) return add(tensor, std::string(find(stem).empty() ? hf : find(stem)) + suffix);
    }
    const auto parts = split(stem, '.');
    if (parts.size() < 3 || parts.size() > 4 || parts[0] != "blk" || !is_digits(parts[1]))
      return add(tensor, name);
    const std::string_view layers = find("blk").empty() ? "model.layers" : find("blk");
    const std::string layer = fmt::format("{}.{}.", layers, parts[1]);
    if (parts.size() == 4) return rename_expert(tensor, layer, parts[2], parts[3], suffix);
    if (parts[2] == "attn_sinks") return add(tensor, layer + "self_attn.sinks");
    if (parts[2] == "exp_probs_b") return add(tensor, layer + std::string(find("exp_probs_b")));
    if (parts[2] == "attn_qkv" && find("attn_qkv").empty()) return split_qkv(tensor, layer, suffix);
    if (parts[2] == "ffn_gate_up_exps") return split_experts(tensor, layer, suffix);
    const std::string_view hf = find(parts[2]);
    if (hf.empty()) return add(tensor, name);
    if (const size_t at = hf.find("{}."); at != std::string_view::npos)
      return add(tensor, layer + std::string(hf).erase(at, 3) + suffix);
    StoredTensor own = tensor;
    // A tensor per head becomes one matrix.
    if (own.shape.size() == 3) own.shape = {own.shape[0] * own.shape[1], own.shape[2]};
    if (parts[2] == "ffn_gate_inp_shexp" && own.shape.size() == 1) own.shape = {1, own.shape[0]};
    add_projection(std::move(own), parts[2], layer + std::string(hf) + suffix);
  }

  // Mixtral's first files: blk.0.ffn_gate.3.weight.
  void rename_expert(const StoredTensor& tensor, const std::string& layer, std::string_view part,
                     std::string_view index, const std::string& suffix) {
    const std::string_view hf = find(std::string(part) + "_exps");
    if (hf.empty() || !is_digits(index)) return add(tensor, tensor.name);
    add(tensor, layer + fmt::format(fmt::runtime(hf), index) + suffix);
  }

  // [experts, rows, columns]: gate, then up of each expert.
  void split_experts(const StoredTensor& tensor, const std::string& layer, const std::string& suffix) {
    if (tensor.shape.size() != 3 || tensor.shape[0] > kMaxExperts || tensor.shape[1] % 2 != 0)
      return add(tensor, tensor.name);
    std::vector<Part> parts;
    for (int64_t e = 0; e < tensor.shape[0]; ++e) {
      for (const auto* half : {"ffn_gate_exps", "ffn_up_exps"})
        parts.push_back({half, tensor.shape[1] / 2, std::to_string(e)});
    }
    add_parts(tensor, layer, suffix, parts);
  }

  void split_qkv(const StoredTensor& tensor, const std::string& layer, const std::string& suffix) {
    const std::string attention = gguf_architecture(file_) + ".attention.";
    const int64_t heads = gguf_size(file_, attention + "head_count"), size = gguf_head_dim(file_);
    const int64_t kv_heads = gguf_size(file_, attention + "head_count_kv", heads);
    const bool vector = tensor.shape.size() == 1 && find_gguf_type(tensor.dtype)->elements == 1;
    if ((tensor.shape.size() != 2 && !vector) || tensor.shape[0] != (heads + 2 * kv_heads) * size)
      return add(tensor, tensor.name);
    add_parts(tensor, layer, suffix,
              {{"attn_q", heads * size}, {"attn_k", kv_heads * size}, {"attn_v", kv_heads * size}});
  }

  const GgufFile& file_;
  const Family& family_;
  std::vector<StoredTensor> out_;
};

}  // namespace

std::vector<StoredTensor> gguf_tensors(const GgufFile& file) { return Renamer(file).run(); }

}  // namespace lariat
