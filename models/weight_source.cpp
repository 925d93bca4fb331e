#include "models/weight_source.h"

#include <algorithm>
#include <cstring>

#include "kernels/error.h"
#include "kernels/quant.h"

namespace lariat {
namespace {

Matrix transposed(const Matrix& matrix, std::vector<std::byte>& storage) {
  const size_t element = size_of(matrix.dtype);
  std::vector<std::byte> out(static_cast<size_t>(matrix.rows * matrix.cols) * element);
  const auto* from = static_cast<const std::byte*>(matrix.data);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t col = 0; col < matrix.cols; ++col) {
      std::memcpy(out.data() + static_cast<size_t>(col * matrix.rows + row) * element,
                  from + static_cast<size_t>(row * matrix.stride + col) * element, element);
    }
  }
  storage = std::move(out);
  return {storage.data(), matrix.dtype, matrix.cols, matrix.rows};
}

// Heads of latent attention are multiplied as experts are.
bool needs_experts(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return layer.feed_forward.experts.n > 0 || layer.attention.latent.kv_rank > 0;
  });
}

void check_quantizes(const ModelSpec& spec, const Backend& backend, std::optional<DType> dtype) {
  if (!dtype || !is_quantized(*dtype)) return;
  const char* const kInstead = "; use `device` cpu, or leave `quantize` out";
  const Traits traits = backend.traits();
  if (traits.quantizes && !traits.quantizes_experts && needs_experts(spec)) {
    throw Error("experts and latent attention in " + std::string(name_of(*dtype)) + " do not run on " +
                backend.name() + " yet" + kInstead);
  }
  if (!traits.quantizes) {
    throw Error("weights in " + std::string(name_of(*dtype)) + " do not run on " + backend.name() + " yet" +
                kInstead);
  }
}

// The dtype that the inputs of a weight of these blocks are rounded to. A router's are not: that would choose
// other experts.
DType compute_of(Role role, std::span<const DType> stored) {
  if (role == Role::kRouter) return DType::kF32;
  const bool bf16 =
      std::all_of(stored.begin(), stored.end(), [](DType dtype) { return dtype == DType::kBF16; });
  return bf16 ? DType::kBF16 : DType::kF32;
}

}  // namespace

DType stored_dtype(Role role, std::optional<DType> dtype, DType own) {
  if (is_vector(role)) return DType::kF32;  // tiny and read by f32 code: f32 once and for all
  if (role == Role::kRouter) return own;    // small, and an error in it chooses another expert
  if (!dtype || (role == Role::kEmbedding && is_quantized(*dtype))) return own;
  return role == Role::kHead && is_quantized(*dtype) ? DType::kQ8 : *dtype;
}

WeightLoader::WeightLoader(const ModelSpec& spec, Backend& backend, std::optional<DType> dtype)
    : backend_(backend), dtype_(dtype) {
  check_quantizes(spec, backend, dtype);
}

Weight WeightLoader::weight(std::span<const Parameter> blocks) {
  const DType own = own_dtype(blocks[0]);
  return left_out(blocks[0].role, stored_dtype(blocks[0].role, dtype_, own)) ? Weight() : load(blocks);
}

Weights WeightLoader::finish(Weights weights) {
  weights.memory = std::move(memory_);
  weights.host = std::move(host_);
  return weights;
}

Weight WeightLoader::load(std::span<const Parameter> blocks) {
  std::vector<Matrix> from;
  std::vector<DType> stored;
  std::vector<std::vector<std::byte>> made(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    from.push_back(host(blocks[i], made[i]));
    stored.push_back(stored_dtype(blocks[i].role, dtype_, from[i].dtype));
    if (blocks[i].transposed) from[i] = transposed(from[i], made[i]);
  }
  LoadedWeight loaded = backend_.load_weight(from, stored, compute_of(blocks[0].role, stored));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool in_place = loaded.weight.blocks[i].w.data == from[i].data;
    if (!in_place || !made[i].empty()) give_back(blocks[i]);
    if (in_place && !made[i].empty()) host_.push_back(std::move(made[i]));
  }
  if (loaded.memory.data() != nullptr) memory_.push_back(std::move(loaded.memory));
  return std::move(loaded.weight);
}

}  // namespace lariat
