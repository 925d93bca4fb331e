#include "engine/eval/run_log.h"

#include <fmt/format.h>

#include "engine/fingerprint.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// Digits of the frequencies that the scaling has up to the longest length.
std::string frequencies_fingerprint(const RopeScaling& rope, int64_t longest, int steps) {
  uint64_t sum = 0;
  for (const int64_t length : {int64_t{1}, rope.original_ctx, (rope.original_ctx + longest) / 2, longest}) {
    const RopeFrequencies at = rope_frequencies(rope, rope_step_length(rope, length, steps));
    add_to_checksum(sum, std::as_bytes(std::span(at.inv_freq)));
    add_to_checksum(sum, std::as_bytes(std::span(&at.attention_factor, 1)));
  }
  return fmt::format("{:016x}", sum);
}

}  // namespace

std::string column_of(const SessionOptions& session) {
  const RopeType type = session.rope->type;
  const std::string name(type == RopeType::kDefault ? "none" : name_of(type));
  return session.stale_cache ? name + std::string(kStale) : name;
}

Json run_header(const Engine& engine, const std::vector<int64_t>& lengths) {
  const RopeScaling& rope = *engine.session.rope;
  const auto dir = std::filesystem::absolute(engine.model.spec.file).parent_path();
  const Json not_measured = {{"measured", false}};
  return {{"lariat_sweep", 1},
          {"model", {{"name", dir.filename().string()}, {"fingerprint", model_fingerprint(dir)}}},
          {"text", nullptr},
          {"original_ctx", rope.original_ctx},
          {"scalings", {column_of(engine.session)}},
          {"lengths", lengths},
          {"growing", not_measured},
          {"perplexity", {{"measured", false}, {"method", "none"}, {"stride", 0}, {"max_tokens", 0}}},
          {"passkey", {{"measured", false}, {"depths", {0.0}}, {"trials", 0}, {"seed", 0}}},
          {"speed", not_measured},
          {"options",
           {{"backend", engine.backend->name()},
            {"dtype", name_of(engine.model.weights.dtype)},
            {"k_dtype", name_of(engine.session.k_dtype)},
            {"v_dtype", name_of(engine.session.v_dtype)},
            {"factor", rope.factor},
            {"theta", rope.theta},
            {"steps_per_octave", engine.session.rope_steps},
            {"frequencies", frequencies_fingerprint(rope, lengths.back(), engine.session.rope_steps)},
            {"stale_cache", engine.session.stale_cache}}},
          {"shard", {{"index", 0}, {"count", 1}}}};
}

}  // namespace lariat
