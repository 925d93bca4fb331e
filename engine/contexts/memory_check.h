#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/runtime/session.h"

namespace lariat {

// Throws Error when the KV caches of `sequences` sequences of `length` tokens would not fit into the memory
// that is free now, with `what` (the option and its value) in front, the sizes, and what to do. An operating
// system that promises more memory than it has would end the program instead, hours later. Only for backends
// in host memory: a device says so itself when it allocates. Several sessions: so many sequences of each.
void check_memory(std::span<Session* const> sessions, int64_t length, int64_t sequences,
                  const std::string& what);
inline void check_memory(Session& session, int64_t length, int64_t sequences, const std::string& what) {
  Session* const one = &session;
  check_memory({&one, 1}, length, sequences, what);
}

bool fits_memory(Session& session, int64_t length, int64_t sequences);

// Throws Error when weights that are made at load, converted or quantised to what is asked or of the
// checkpoint's codes, would not fit into the memory that is free now. Floats used as the checkpoint has them
// (nothing asked, or its own dtype) are mapped, not copied; but every token reads all of them, so more of
// them than the machine has RAM is an Error too, before any is read. No checkpoint: one of floats.
void check_weight_memory(const ModelSpec& spec, std::optional<WeightFormat> requested, const Backend& backend,
                         const Tensors* checkpoint = nullptr);

// How many sequences of `length` tokens may be kept at a time, between 1 and `wanted`: those whose caches
// take at most a quarter of the free memory.
int64_t affordable_sequences(Session& session, int64_t length, int64_t wanted);

}  // namespace lariat
