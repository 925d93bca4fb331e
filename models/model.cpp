#include "models/model.h"

namespace lariat {
Model load_model(const std::filesystem::path& dir, const ModelSpec& spec, Backend& backend,
                 std::optional<DType> dtype, const std::function<void(size_t, size_t)>& progress) {
  Model model;
  model.spec = spec;
  model.checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(dir));
  model.file_bytes = model.checkpoint->bytes();
  // All of the header is checked against the config before the first weight is read.
  const std::set<std::string> names = check_weights(model.spec, *model.checkpoint);
  if (progress) model.checkpoint->populate(names, progress);
  model.weights = load_weights(model.spec, *model.checkpoint, backend, dtype);
  return model;
}

Model random_model(const ModelSpec& spec, Backend& backend, DType dtype, uint64_t seed) {
  Model model;
  model.spec = spec;
  model.weights = random_weights(spec, backend, dtype, seed);
  return model;
}

}  // namespace lariat
