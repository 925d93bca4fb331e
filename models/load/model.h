#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "models/files/model_files.h"
#include "models/load/weights.h"
#include "models/spec/spec.h"

namespace lariat {

// A checkpoint on a backend, which must outlive it.
struct Model {
  ModelSpec spec;
  Weights weights;
  // "none", "q8" or "q4"; for a quantised checkpoint, the width of its values.
  std::string_view quantization() const {
    return is_quantized(weights.format.dtype) ? name_of(weights.format.dtype) : "none";
  }
  // Dtype for the limit of products (kernels/limits.h).
  DType product_dtype() const {
    return is_quantized(weights.format.dtype) ? weights.format.dtype : weights.compute;
  }
  size_t file_bytes = 0;
  // With several ranks: the division, and the spec of this rank's part, to which the weights belong.
  Split split;
  std::optional<ModelSpec> part;
  const ModelSpec& own_spec() const { return part ? *part : spec; }
  const ModelSpec& cache_spec() const { return split.by_sequence ? spec : own_spec(); }

  ModelFiles files;  // holds weights used in place
};

// Loads a model. requested: weight format of the projections; unset: the checkpoint's. bf16 weights compute
// in bf16. f16 weights are used in place and compute in f32: f16 products are no faster on a CPU. A quantised
// format is computed from floats and multiplies integers (kernels/quant.h). progress(bytes read, total bytes)
// is called while loading. Throws Error naming the file.
// place: loads the part of one rank of several.
Model load_model(ModelFiles files, const ModelSpec& spec, Backend& backend,
                 std::optional<WeightFormat> requested,
                 const std::function<void(size_t done, size_t total)>& progress = {},
                 const Place& place = {});

// A model of the spec's shape with reproducible random weights (`lariat bench --random-weights`).
Model random_model(const ModelSpec& spec, Backend& backend, const WeightFormat& requested, uint64_t seed,
                   const Place& place = {});

}  // namespace lariat
