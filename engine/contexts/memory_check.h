#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/runtime/session.h"

namespace lariat {

// Throws Error, starting with `what` (an option and its value), if a sequence of `length` tokens is longer
// than the model's learned positions, or if the KV caches of `sequences` sequences of `length` tokens per
// session exceed the free host memory: overcommitting systems would kill the program hours later. Device
// backends report failed allocations themselves.
void check_memory(std::span<Session* const> sessions, int64_t length, int64_t sequences,
                  const std::string& what);
inline void check_memory(Session& session, int64_t length, int64_t sequences, const std::string& what) {
  Session* const one = &session;
  check_memory({&one, 1}, length, sequences, what);
}

bool fits_memory(Session& session, int64_t length, int64_t sequences);
// The reason why check_memory would throw, for a warning; empty: none.
std::string why_too_long(Session& session, int64_t length, int64_t sequences);

// Throws Error if the weights exceed memory. Weights converted at load (to another format, or from a
// quantized checkpoint) need free memory. Memory-mapped weights must fit into RAM: every token reads them.
// checkpoint: null means floats.
void check_weight_memory(const ModelSpec& spec, std::optional<WeightFormat> requested, const Backend& backend,
                         const Tensors* checkpoint = nullptr);

// Number of sequences of `length` tokens, 1 to `wanted`, that fit into a quarter of the free memory.
int64_t affordable_sequences(Session& session, int64_t length, int64_t wanted);

}  // namespace lariat
