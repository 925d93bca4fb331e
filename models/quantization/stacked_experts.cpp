// Experts of gpt-oss, and in one tensor: transformers 5.24, models/gpt_oss and integrations/mxfp4.py. GPT-2's
// weights: pytorch_utils.py, Conv1D.
#include <fmt/format.h>

#include <cstring>

#include "kernels/error.h"
#include "models/families/family.h"
#include "models/quantization/quantization.h"
#include "models/quantization/quantized.h"

namespace lariat {
namespace {

constexpr std::string_view kBias = ".mlp.experts.gate_up_proj_bias";

// Projections in a stacked one, with interleaved outputs.
std::vector<std::string> parts_of(std::string_view stacked) {
  if (stacked == "gate_up_proj") return {"gate_proj", "up_proj"};
  return {std::string(stacked)};
}

// Throws Error unless there are `sizes` dimensions, at most kMaxExperts experts and `n_parts` equal parts.
void check_stack(const StoredTensor& tensor, size_t sizes, size_t outputs_at, size_t n_parts) {
  if (tensor.shape.size() == sizes && tensor.bytes > 0 && tensor.shape[0] <= kMaxExperts &&
      tensor.shape[outputs_at] % static_cast<int64_t>(n_parts) == 0)
    return;
  throw Error(
      fmt::format("{}: tensor '{:.200}' has shape {}, not a shape of stacked experts; the file is damaged, "
                  "download it again",
                  tensor.file.string(), tensor.name, shape_text(tensor.shape)));
}

// Adds part `part` of n of a stack: element (row, col) is the stack's element index_of(row, col). `data` is
// one nth of the stack, unrelated to the elements.
template <class Index>
void put_part(Tensors& tensors, const StoredTensor& of, const std::string& name, std::vector<int64_t> shape,
              int64_t part, int64_t n, const Index& index_of) {
  StoredTensor own = of;
  const DType dtype = of.float_dtype();
  const int64_t cols = shape.back();
  const auto read = [=, data = of.data, size = size_of(dtype)](int64_t row, const CodeRow& to) {
    for (int64_t c = 0; c < cols; ++c)
      std::memcpy(to.codes + static_cast<size_t>(c) * size,
                  data + static_cast<size_t>(index_of(row, c)) * size, size);
  };
  own.name = name;
  own.bytes /= static_cast<size_t>(n);
  own.data += static_cast<size_t>(part) * own.bytes;
  const int64_t rows = static_cast<int64_t>(own.bytes / size_of(dtype)) / cols;
  own.shape = std::move(shape);
  own.reader = std::make_shared<const HostWeight>(dtype, rows, cols, read);
  tensors.put(std::move(own));
}

// X_bias [experts, outputs] and X [experts, inputs, outputs], each if present. halves: parts follow each
// other.
void read_stack(Tensors& tensors, const std::string& experts, std::string_view stacked, bool halves = false) {
  const std::vector<std::string> parts = parts_of(stacked);
  const auto n = std::ssize(parts);
  const auto weight = tensors.take(experts + std::string(stacked));
  const auto bias = tensors.take(fmt::format("{}{}_bias", experts, stacked));
  if (weight) check_stack(*weight, 3, 2, parts.size());
  if (bias) check_stack(*bias, 2, 1, parts.size());
  for (int64_t p = 0; p < n; ++p) {
    const std::string part = experts + parts[static_cast<size_t>(p)];
    if (bias) {
      const int64_t out = bias->shape[1];
      put_part(tensors, *bias, part + ".bias", {bias->shape[0], out / n}, p, n,
               [=](int64_t row, int64_t col) { return row * out + col * n + p; });
    }
    if (weight) {
      const int64_t in = weight->shape[1], out = weight->shape[2], rows = out / n;
      put_part(tensors, *weight, part + ".weight", {weight->shape[0], rows, in}, p, n,
               [=](int64_t row, int64_t col) {
                 const int64_t output = halves ? p * rows + row % rows : row % rows * n + p;
                 return (row / rows * in + col) * out + output;
               });
    }
  }
}

// gate_up_proj [experts, 2 outputs, inputs] and down_proj get the suffix ".weight"; [experts, inputs, 2
// outputs] (Qwen3-VL-MoE) is transposed.
void read_fused(Tensors& tensors, const std::string& experts) {
  const auto shape_of = [&](const char* name) {
    const StoredTensor* tensor = tensors.find(experts + name);
    return tensor != nullptr ? tensor->shape : std::vector<int64_t>();
  };
  const auto gate_up = shape_of("gate_up_proj"), down = shape_of("down_proj");
  const bool transposed = gate_up.size() == 3 && down.size() == 3 && gate_up[1] == down[2];
  for (const char* name : {"gate_up_proj", "down_proj"}) {
    if (transposed) {
      read_stack(tensors, experts, name, /*halves=*/true);
    } else if (auto tensor = tensors.take(experts + name)) {
      tensor->name += ".weight";
      tensors.put(std::move(*tensor));
    }
  }
}

}  // namespace

void read_stacked_experts(Tensors& tensors) {
  constexpr std::string_view kFused = ".mlp.experts.gate_up_proj";
  std::vector<std::string> all, fused;
  for (const auto& [name, tensor] : tensors.all()) {
    if (name.ends_with(kBias)) all.push_back(name.substr(0, name.size() - kBias.size()) + ".mlp.experts.");
  }
  for (const std::string& experts : all) {
    read_stack(tensors, experts, "gate_up_proj");
    read_stack(tensors, experts, "down_proj");
  }
  for (const auto& [name, tensor] : tensors.all()) {
    if (name.ends_with(kFused))
      fused.push_back(name.substr(0, name.size() - kFused.size()) + ".mlp.experts.");
  }
  for (const std::string& experts : fused) read_fused(tensors, experts);
}

// Weights [inputs, outputs]. c_attn has three outputs per input; as a Linear, it has one or three inputs.
void read_conv1d(Tensors& tensors) {
  constexpr std::string_view kAttention = "attn.c_attn.weight";
  std::vector<std::string> layers;
  for (const auto& [name, tensor] : tensors.all()) {
    if (name.ends_with(kAttention) && tensor.shape.size() == 2 && tensor.shape[1] == 3 * tensor.shape[0])
      layers.push_back(name.substr(0, name.size() - kAttention.size()));
  }
  for (const std::string& layer : layers) {
    for (const char* part : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
      const auto found = tensors.take(fmt::format("{}{}.weight", layer, part));
      if (!found) continue;
      if (found->shape.size() != 2 || found->bytes == 0 || !has_name(kFloats, found->dtype)) {
        tensors.put(*found);
        continue;
      }
      const int64_t in = found->shape[0], out = found->shape[1];
      put_part(tensors, *found, found->name, {out, in}, 0, 1,
               [out](int64_t row, int64_t col) { return col * out + row; });
    }
  }
}

// X_blocks [experts, outputs, groups, 16] and X_scales [experts, outputs, groups].
void read_mxfp4(const Quantized& quantized) {
  for (const std::string& module : quantized.modules("_blocks", "U8")) {
    const StoredTensor blocks = quantized.need(module, "_blocks", "U8");
    const StoredTensor scales = quantized.need(module, "_scales", "U8");
    const size_t dot = module.rfind('.') + 1;
    const std::vector<std::string> parts = parts_of(module.substr(dot));
    check_stack(blocks, 4, 1, parts.size());
    const int64_t n_experts = blocks.shape[0], out = blocks.shape[1], groups = blocks.shape[2];
    if (blocks.shape[3] != 16) quantized.refuse(blocks, "has groups other than 32");
    quantized.check_shape(scales, {n_experts, out, groups});
    for (size_t p = 0; p < parts.size(); ++p) {
      put_mxfp4(quantized, fmt::format("{}{}.weight", module.substr(0, dot), parts[p]), blocks, true, scales,
                static_cast<int64_t>(p), std::ssize(parts));
    }
  }
}

}  // namespace lariat
