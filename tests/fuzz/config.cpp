// config.json -> ModelSpec -> RopeScaling -> inv_freq.
#include "models/load/config.h"

#include <cmath>

#include "models/load/weights.h"
#include "models/spec/rope.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace lariat;

void check_rope(const RopeScaling& rope, double length) {
  const RopeFrequencies f = rope_frequencies(rope, length);
  fuzz::require(f.inv_freq.size() == static_cast<size_t>(rope.rotary_dim / 2), "not one frequency per pair");
  for (const double x : f.inv_freq) fuzz::require(std::isfinite(x) && x >= 0, "inv_freq is not a frequency");
  fuzz::require(std::isfinite(f.attention_factor) && f.attention_factor > 0, "attention_factor out of range");
  fuzz::require(rope_scale(rope, length) > 0.0, "the scale is not positive");
}

}  // namespace

FUZZ_TARGET(config) {
  fuzz::accepted([&] {
    const ModelSpec config = parse_config(input, "config.json");
    fuzz::require(!config.layers.empty(), "no layers");
    for (const int32_t id : config.eos_token_ids)
      fuzz::require(id >= 0 && id < config.vocab_size, "eos_token_id outside the vocabulary");
    for (const int64_t length : {int64_t{1}, config.rope().original_ctx, config.rope().original_ctx + 1,
                                 config.max_position_embeddings, 4 * config.max_position_embeddings}) {
      check_rope(config.rope(), static_cast<double>(length));
      const double step = rope_step_length(config.rope(), length, 8);
      fuzz::require(step >= static_cast<double>(length), "a scale step below the length");
      check_rope(config.rope(), step);
    }
    if (config.layers.size() <= 100) planned_weights(config, config.dtype);
  });
}
