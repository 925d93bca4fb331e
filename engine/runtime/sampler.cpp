#include "engine/runtime/sampler.h"

#include "kernels/error.h"

namespace lariat {

Sampler::Sampler(const SamplerOptions& options, Backend& backend)
    : options_(options), backend_(backend), random_(options.seed) {}

double Sampler::prepare(const Matrix& logits, std::span<const int32_t> history) {
  if (options_.repetition_penalty != 1.0F) penalise(logits, history);
  // Portable 53-bit uniform: std::uniform_real_distribution may differ between standard libraries.
  return options_.temperature > 0.0F ? static_cast<double>(random_() >> 11) * 0x1p-53 : 0.0;
}

int32_t Sampler::checked(int32_t drawn) {
  if (drawn >= 0) return drawn;
  throw Error(
      "`dtype`: the logits are not finite, as weights are damaged or exceed its range; use another `dtype`");
}

void Sampler::penalise(const Matrix& logits, std::span<const int32_t> history) {
  host_.resize(static_cast<size_t>(logits.cols));
  backend_.copy_out(host_.data(), logits.data, host_.size() * sizeof(float));
  std::vector<bool> seen(host_.size());
  for (const int32_t id : history) {
    const auto i = static_cast<size_t>(id);
    if (i >= host_.size() || seen[i]) continue;
    seen[i] = true;
    host_[i] = host_[i] > 0 ? host_[i] / options_.repetition_penalty : host_[i] * options_.repetition_penalty;
  }
  backend_.copy_in(logits.data, host_.data(), host_.size() * sizeof(float));
}

}  // namespace lariat
