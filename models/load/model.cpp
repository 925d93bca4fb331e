#include "models/load/model.h"
#include "models/load/open_files.h"

#include <algorithm>

namespace lariat {
namespace {

// Divides a checked model among ranks.
void divide(Model& model, std::optional<WeightFormat> requested, const Place& place) {
  if (place.ranks == 1) return;
  const Tensors* const tensors = model.files.tensors.get();
  model.split = split_of(model.spec, planned_weights(model.spec, requested, tensors), place);
  model.part = part_of(model.spec, model.split);
}

}  // namespace

Model load_model(ModelFiles files, const ModelSpec& spec, Backend& backend,
                 std::optional<WeightFormat> requested, const std::function<void(size_t, size_t)>& progress,
                 const Place& place) {
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
  divide(model, requested, place);
  if (progress && place.ranks == 1) tensors.populate(names, progress);
  model.weights = load_weights(model.spec, tensors, backend, requested, model.split);
  return model;
}

Model random_model(const ModelSpec& spec, Backend& backend, const WeightFormat& requested, uint64_t seed,
                   const Place& place) {
  Model model;
  model.spec = spec;
  divide(model, requested, place);
  model.weights = random_weights(spec, backend, requested, seed, model.split);
  return model;
}

}  // namespace lariat
