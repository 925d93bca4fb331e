// Experts of gpt-oss: transformers 5.24, models/gpt_oss and integrations/mxfp4.py.
#include <fmt/format.h>

#include "kernels/error.h"
#include "models/families/family.h"
#include "models/forms/forms.h"
#include "models/forms/quantized.h"

namespace lariat {
namespace {

constexpr std::string_view kBias = ".mlp.experts.gate_up_proj_bias";

// The projections that a stacked one holds, with their outputs in turn.
std::vector<std::string> parts_of(std::string_view stacked) {
  if (stacked == "gate_up_proj") return {"gate_proj", "up_proj"};
  return {std::string(stacked)};
}

// Throws Error unless there are so many sizes, of as many experts as can be, and no part is empty.
void check_stack(const StoredTensor& tensor, size_t sizes, size_t outputs_at, size_t n_parts) {
  if (tensor.shape.size() == sizes && tensor.bytes > 0 && tensor.shape[0] <= kMaxExperts &&
      tensor.shape[outputs_at] % static_cast<int64_t>(n_parts) == 0)
    return;
  throw Error(fmt::format("{}: tensor '{:.200}' has shape {}, which is none of stacked experts",
                          tensor.file.string(), tensor.name, shape_text(tensor.shape)));
}

// The matrix of a part, in what begins with element `base` and has as much of each part.
void put_view(Tensors& tensors, const StoredTensor& of, const std::string& name, std::vector<int64_t> shape,
              int64_t base, int64_t part, int64_t row_step, int64_t col_step) {
  StoredTensor view = of;
  const int64_t size = static_cast<int64_t>(size_of(of.float_dtype())), share = shape[0] * shape[1];
  view.name = name;
  view.data += (base + part * share) * size;
  view.bytes = static_cast<size_t>(share * size);
  view.alignment = 1;
  view.shape = std::move(shape);
  view.first = part - part * share;
  view.row_step = row_step;
  view.col_step = col_step;
  tensors.put(std::move(view));
}

// X_bias [experts, outputs] and, where it is there, X [experts, inputs, outputs].
void unstack(Tensors& tensors, const std::string& experts, std::string_view stacked) {
  const std::vector<std::string> parts = parts_of(stacked);
  const auto n = std::ssize(parts);
  const auto weight = tensors.take(experts + std::string(stacked));
  const auto bias = tensors.take(fmt::format("{}{}_bias", experts, stacked));
  if (weight) check_stack(*weight, 3, 2, parts.size());
  if (bias) check_stack(*bias, 2, 1, parts.size());
  for (int64_t p = 0; p < n; ++p) {
    const std::string& part = parts[static_cast<size_t>(p)];
    const int64_t width = bias ? bias->shape[1] : 0;
    if (bias) put_view(tensors, *bias, experts + part + ".bias", {bias->shape[0], width / n}, 0, p, width, n);
    for (int64_t e = 0; weight && e < weight->shape[0]; ++e) {
      const int64_t in = weight->shape[1], out = weight->shape[2];
      put_view(tensors, *weight, fmt::format("{}{}.{}.weight", experts, e, part), {out / n, in}, e * in * out,
               p, n, out);
    }
  }
}

}  // namespace

void unstack_experts(Tensors& tensors) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors.all()) {
    if (name.ends_with(kBias)) all.push_back(name.substr(0, name.size() - kBias.size()) + ".mlp.experts.");
  }
  for (const std::string& experts : all) {
    unstack(tensors, experts, "gate_up_proj");
    unstack(tensors, experts, "down_proj");
  }
}

// X_blocks [experts, outputs, groups, 16] and X_scales [experts, outputs, groups].
void read_mxfp4(const Quantized& quantized) {
  for (const std::string& module : quantized.modules("_blocks", "U8")) {
    StoredTensor blocks = quantized.need(module, "_blocks", "U8");
    const StoredTensor scales = quantized.need(module, "_scales", "U8");
    const size_t dot = module.rfind('.') + 1;
    const std::vector<std::string> parts = parts_of(module.substr(dot));
    check_stack(blocks, 4, 1, parts.size());
    const int64_t n_experts = blocks.shape[0], out = blocks.shape[1], groups = blocks.shape[2];
    if (blocks.shape[3] != 16) quantized.refuse(blocks, "has groups that are not of 32");
    quantized.check_shape(scales, {n_experts, out, groups});
    const auto n = std::ssize(parts);
    blocks.bytes /= static_cast<size_t>(n_experts);
    for (int64_t e = 0; e < n_experts; ++e, blocks.data += blocks.bytes) {
      for (int64_t p = 0; p < n; ++p) {
        put_mxfp4(quantized,
                  fmt::format("{}{}.{}.weight", module.substr(0, dot), e, parts[static_cast<size_t>(p)]),
                  blocks, out / n, scales, e * out * groups, p, n);
      }
    }
  }
}

}  // namespace lariat
