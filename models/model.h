#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "models/model_files.h"
#include "models/spec.h"
#include "models/weights.h"

namespace lariat {

// A checkpoint ready to run on a backend, which must outlive it. Nothing changes it once it is loaded: how
// far its RoPE is stretched belongs to a session.
struct Model {
  ModelSpec spec;
  Weights weights;
  // As --quantize has it: "none", "q8" or "q4"; of a checkpoint's codes, how wide they are.
  std::string_view quantization() const {
    return is_quantized(weights.form.dtype) ? name_of(weights.form.dtype) : "none";
  }
  // The dtype that decides the limit of products (kernels/limits.h).
  DType product_dtype() const {
    return is_quantized(weights.form.dtype) ? weights.form.dtype : weights.compute;
  }
  size_t file_bytes = 0;

  ModelFiles files;  // the weights point into them; they live as long
};

// Loads the model of these files. requested: the weight format of the projections; unset: the checkpoint's.
// bf16 weights compute in bf16. f16 weights are used in place and compute in f32: no f16 product is faster on
// a CPU. A quantized format is computed from floats, and its products are of integers (kernels/quant.h).
// progress(bytes read, bytes) is called while files are loaded. Throws Error naming the file.
Model load_model(ModelFiles files, const ModelSpec& spec, Backend& backend,
                 std::optional<WeightFormat> requested,
                 const std::function<void(size_t done, size_t total)>& progress = {});

// A model of the spec's shape with reproducible random weights (`lariat bench --random-weights`).
Model random_model(const ModelSpec& spec, Backend& backend, const WeightFormat& requested, uint64_t seed);

}  // namespace lariat
