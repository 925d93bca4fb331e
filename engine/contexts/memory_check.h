#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/runtime/session.h"

namespace lariat {

// Throws Error if the KV caches of `sequences` sequences of `length` tokens per session exceed the free host
// memory. The message starts with `what` (an option and its value). Overcommitting systems would kill the
// program hours later. Device backends report failed allocations themselves.
void check_memory(std::span<Session* const> sessions, int64_t length, int64_t sequences,
                  const std::string& what);
inline void check_memory(Session& session, int64_t length, int64_t sequences, const std::string& what) {
  Session* const one = &session;
  check_memory({&one, 1}, length, sequences, what);
}

bool fits_memory(Session& session, int64_t length, int64_t sequences);

// Throws Error if weights converted at load exceed the free memory: a requested format other than the
// checkpoint's, or a quantized checkpoint. Other weights are memory-mapped, but every token reads all of
// them: they must fit into RAM, which is checked before any read. checkpoint: null means floats.
void check_weight_memory(const ModelSpec& spec, std::optional<WeightFormat> requested, const Backend& backend,
                         const Tensors* checkpoint = nullptr);

// Number of sequences of `length` tokens, from 1 to `wanted`, with caches of at most a quarter of the free
// memory.
int64_t affordable_sequences(Session& session, int64_t length, int64_t wanted);

}  // namespace lariat
