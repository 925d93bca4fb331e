#include "engine/contexts/memory_check.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "engine/runtime/ranks.h"
#include "kernels/container.h"
#include "kernels/error.h"
#include "kernels/integers.h"
#include "kernels/quant.h"

namespace lariat {
namespace {

std::string gibibytes(double bytes) {
  std::ostringstream out;
  out.precision(3);
  out << bytes / (1 << 30) << " GiB";
  return out.str();
}

// "", or the reason why less is free than the host has.
std::string of_container() {
  const double allowed = container_limits().memory;
  return allowed <= all_host_bytes() && std::isfinite(allowed)
             ? " (the container allows " + gibibytes(allowed) + ")"
             : "";
}

double cache_bytes(Session& session, int64_t length) {
  const KvPool& pool = session.pool();
  const Ranks* const ranks = pool.ranks();
  const int owners = ranks != nullptr && ranks->place().by_sequence ? ranks->place().ranks : 1;
  return static_cast<double>(pool.k_bytes_per_position() + pool.v_bytes_per_position()) *
         static_cast<double>(length) / owners;
}

// Empty: within the model's learned positions, if any.
std::string beyond_positions(const SessionOptions& options, int64_t length) {
  if (!options.fixed_ctx || length <= options.max_ctx) return "";
  return "the model's learned positions end at " + std::to_string(options.max_ctx);
}

}  // namespace

void check_memory(std::span<Session* const> sessions, int64_t length, int64_t sequences,
                  const std::string& what) {
  double wanted = 0;
  bool wide = false;  // whether a smaller dtype would help
  for (Session* session : sessions) {
    const SessionOptions& options = session->options();
    if (const std::string why = beyond_positions(options, length); !why.empty()) {
      throw Error(what + ": needs " + std::to_string(length) + " positions, and " + why +
                  "; use a shorter length");
    }
    wide = wide || options.k_dtype == DType::kF32 || options.v_dtype == DType::kF32;
    if (session->backend().traits().host_memory)
      wanted += cache_bytes(*session, length) * static_cast<double>(sequences);
  }
  const double have = free_host_bytes();
  if (wanted <= have) return;
  throw Error(what + (sessions.size() > 1 ? ": the KV caches would take " : ": the KV cache would take ") +
              gibibytes(wanted) + " and " + gibibytes(have) + " of memory are free" + of_container() +
              "; use a shorter length (`max_ctx`)" + (wide ? " or `kv_dtype` f16" : ""));
}

bool fits_memory(Session& session, int64_t length, int64_t sequences) {
  return !session.backend().traits().host_memory ||
         cache_bytes(session, length) * static_cast<double>(sequences) <= free_host_bytes();
}

std::string why_too_long(Session& session, int64_t length, int64_t sequences) {
  if (std::string why = beyond_positions(session.options(), length); !why.empty()) return why;
  return fits_memory(session, length, sequences) ? "" : "its KV cache exceeds the free memory";
}

void check_weight_memory(const ModelSpec& spec, std::optional<WeightFormat> requested, const Backend& backend,
                         const Tensors* checkpoint) {
  if (!backend.traits().host_memory) return;
  const char* const kSmaller = "; use a smaller model or `quantize` q4";
  const bool codes = checkpoint != nullptr && std::ranges::any_of(checkpoint->all(), [](const auto& named) {
                       return named.second.quantized;
                     });
  const Weights planned = planned_weights(spec, requested, checkpoint);
  const bool copied = backend.traits().copies_bf16 && spec.dtype == DType::kBF16;
  if (requested.value_or(spec.dtype) == WeightFormat(spec.dtype) && !codes && !copied) {
    const auto mapped = static_cast<double>(planned.bytes), all = all_host_bytes();
    if (mapped <= all) return;
    throw Error(spec.file.string() + ": the weights need " + gibibytes(mapped) + " and this machine has " +
                gibibytes(all) + " of memory" + of_container() + kSmaller);
  }
  const bool table = planned.embed.m.dtype != spec.dtype && !spec.tie_word_embeddings;
  const double wanted = static_cast<double>(planned.bytes + (table ? stored_bytes(planned.embed.m) : 0));
  const double have = free_host_bytes();
  if (wanted <= have) return;
  throw Error(spec.file.string() + ": weights in " +
              std::string(name_of(requested.value_or(planned.format).dtype)) + " need " + gibibytes(wanted) +
              " and " + gibibytes(have) + " of memory are free" + of_container() + kSmaller);
}

int64_t affordable_sequences(Session& session, int64_t length, int64_t wanted) {
  return std::clamp<int64_t>(session.free_pages() / 2 / ceil_div(length, kKvPage), 1, wanted);
}

}  // namespace lariat
