#include "models/model.h"

#include <algorithm>

namespace lariat {
Model load_model(ModelFiles files, const ModelSpec& spec, Backend& backend,
                 std::optional<WeightFormat> requested, const std::function<void(size_t, size_t)>& progress) {
  Model model;
  model.spec = spec;
  open_tensors(files);
  model.spec.warnings.insert(model.spec.warnings.end(), files.warnings.begin(), files.warnings.end());
  model.files = std::move(files);
  const Tensors& tensors = *model.files.tensors;
  model.file_bytes = tensors.bytes();
  // Checks the header before the first weight is read.
  const std::set<std::string> names = check_weights(model.spec, tensors);
  const auto coded =
      std::ranges::find_if(names, [&](const std::string& name) { return tensors.find(name)->quantized; });
  if (requested && is_quantized(requested->dtype) && coded != names.end()) {
    model.spec.warnings.push_back(
        tensors.find(*coded)->file.string() + ": tensor '" + *coded +
        "' is already quantised, and `quantize` rounds it again; omit `quantize` to run the file unchanged");
  }
  if (progress) tensors.populate(names, progress);
  model.weights = load_weights(model.spec, tensors, backend, requested);
  return model;
}

Model random_model(const ModelSpec& spec, Backend& backend, const WeightFormat& requested, uint64_t seed) {
  Model model;
  model.spec = spec;
  model.weights = random_weights(spec, backend, requested, seed);
  return model;
}

}  // namespace lariat
