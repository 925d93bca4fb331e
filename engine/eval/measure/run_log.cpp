#include "engine/eval/measure/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/contexts/fingerprint.h"
#include "kernels/error.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// Logged in place of a non-finite loss; finite losses are at least 0.
constexpr double kNotFinite = -1;

// Fingerprint of the scaling's frequencies up to the longest length.
std::string frequencies_fingerprint(const RopeScaling& rope, int64_t longest, int steps) {
  uint64_t sum = 0;
  for (const int64_t length : {int64_t{1}, rope.original_ctx, (rope.original_ctx + longest) / 2, longest}) {
    const RopeFrequencies at = rope_frequencies(rope, rope_step_length(rope, length, steps));
    add_to_checksum(sum, std::as_bytes(std::span(at.inv_freq)));
    add_to_checksum(sum, std::as_bytes(std::span(&at.attention_factor, 1)));
  }
  return fmt::format("{:016x}", sum);
}

// Storage dtype of most weight bytes: "BF16", "Q4_1".
std::string stored_format(const Model& model) {
  std::map<std::string, size_t> bytes;
  if (model.files.tensors) {
    for (const auto& [name, tensor] : model.files.tensors->all()) bytes[tensor.dtype] += tensor.bytes;
  }
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& one) { return one.second; });
  return most == bytes.end() ? "none" : most->first;
}

// Bits of the activations, for Plan::Options.
std::optional<int64_t> activations_of(const SessionOptions& session) {
  return session.activations == 8 ? std::nullopt : std::optional<int64_t>(session.activations);
}

}  // namespace

Column column_of(const SessionOptions& session) {
  const RopeType type = session.rope->type;
  Column column;
  if (type != RopeType::kDefault) column.scaling = name_of(type);
  column.method = session.positions.name;
  column.stale = session.stale_cache;
  return column;
}

Plan::Model model_identity(const Model& model) {
  const auto file = std::filesystem::absolute(model.spec.file);
  const auto name = file.filename() == "config.json" ? file.parent_path().filename() : file.filename();
  return {name.string(), model_fingerprint(model), texts_fingerprint(model.files.texts)};
}

Plan plan_of(const Engine& engine, const SessionOptions& session, const std::vector<int64_t>& lengths) {
  const RopeScaling& rope = *session.rope;
  Plan plan{.model = model_identity(engine.model),
            .original_ctx = rope.original_ctx,
            .columns = {column_of(session)},
            .lengths = lengths};
  plan.options = {.backend = engine.backend->name(),
                  .weights = stored_format(engine.model),
                  .dtype = std::string(name_of(engine.model.weights.format.dtype)),
                  .k_dtype = std::string(name_of(session.k_dtype)),
                  .v_dtype = std::string(name_of(session.v_dtype)),
                  .activations = activations_of(session),
                  .factor = rope.factor,
                  .theta = rope.theta,
                  .steps_per_octave = session.rope_steps,
                  .prefill_chunk = session.prefill_chunk,
                  .frequencies = frequencies_fingerprint(rope, std::ranges::max(lengths), session.rope_steps),
                  .stale_cache = session.stale_cache};
  return plan;
}

LossJournal::LossJournal(MeasurementLog& log, Column column, int64_t length, std::optional<Kind> of,
                         bool asked_for)
    : log_(log), column_(std::move(column)), length_(length), of_(of), asked_for_(asked_for) {
  for (const Record& record : log.contents().records) {
    const auto* kept = std::get_if<LossPart>(&record.value);
    if (kept == nullptr || record.column != column_ || record.length != length_ || kept->of != of_) continue;
    Part& part = known_[kept->window] = {kept->reached};
    std::span<const double> left = kept->losses;
    for (const int64_t size : kept->sizes) {
      const auto some = left.first(std::min(static_cast<size_t>(size), left.size()));
      part.losses.emplace_back(some.begin(), some.end());
      left = left.subspan(some.size());
      std::ranges::replace(part.losses.back(), kNotFinite, std::nan(""));
    }
  }
}

const LossJournal::Losses* LossJournal::known(int64_t first, const std::vector<size_t>& sizes) const {
  const auto found = known_.find(first);
  if (found == known_.end()) return nullptr;
  const auto& [reached, losses] = found->second;
  if (std::ranges::equal(losses, sizes, {}, &std::vector<double>::size)) return &losses;
  if (reached > 0) return nullptr;  // older logs: a part of a growing context
  throw Error(log_.file().string() +
              ": saved losses belong to other windows, e.g. of another `prefill_chunk`; measure again");
}

void LossJournal::keep(int64_t first, const Losses& losses, int64_t reached) {
  if (!keeps_) return;
  LossPart kept{.of = of_, .window = first, .reached = reached};
  for (const auto& reading : losses) {
    kept.sizes.push_back(std::ssize(reading));
    for (const double loss : reading) kept.losses.push_back(std::isfinite(loss) ? loss : kNotFinite);
  }
  try {
    log_.append({column_, length_, std::move(kept)});
  } catch (const Error&) {
    if (asked_for_) throw;
    keeps_ = false;
    std::error_code ec;
    std::filesystem::resize_file(log_.file(), 0, ec);
  }
}

}  // namespace lariat
