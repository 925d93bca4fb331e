#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/rope.h"
#include "models/safetensors.h"

// The file of a saved context: docs/saved-contexts.md.
namespace lariat {

// A file and the session that loads it must agree on these.
struct ContextIdentity {
  std::string model, tokenizer;       // engine/contexts/fingerprint.h
  std::string weights, keys, values;  // dtypes
  std::string rope;                   // how many dimensions of a head are rotated, and which form a pair
  std::string method{};               // PositionMethod::name
  bool operator==(const ContextIdentity&) const = default;
};

// All that it holds.
struct ContextRecord {
  ContextIdentity identity;
  std::string scaling;   // for people
  int64_t expected = 0;  // Sequence::expect
  RopeFrequencies frequencies;
  int64_t length = 0;                   // of the cache
  std::vector<int32_t> tokens, placed;  // as SavedContext::tokens, KvCache::placed
  std::string note;                     // SavedContext::note
  double stretch = 1;                   // Sequence::stretch
  // Where they lie in a file that was read, one behind the other.
  std::span<const std::byte> pages{};
};

std::map<std::string, std::string> context_metadata(const ContextRecord& record);
// The file's tensors in their order: those of the pages, which lie as a KvPool's page does, then inv_freq,
// attention_factor, checksums, tokens and positions. Throws Error naming `file` for more than a file can
// have.
std::vector<NamedShape> context_tensors(const KvGeometry& geometry, const ContextRecord& record,
                                        const std::filesystem::path& file);
// The checksum of everything but the pages and the checksums.
uint64_t context_checksum(const ContextRecord& record);

// A session expects this of a file, by its own sequences.
struct ContextExpectations {
  ContextIdentity identity;
  const KvGeometry& geometry;
  size_t n_frequencies = 0;  // inv_freq's
  int64_t vocab_size = 0;
  int64_t max_ctx = 0;     // 0: no limit
  bool has_mrope = false;  // else no token was placed (Sequence::set_mrope_positions)
};

// Throws Error, naming `file`, for a file that is damaged, another's, or longer than max_ctx. Reads all of
// it: every page has a checksum.
ContextRecord parse_saved_context(std::span<const std::byte> bytes, const std::filesystem::path& file,
                                  const ContextExpectations& expected);

}  // namespace lariat
