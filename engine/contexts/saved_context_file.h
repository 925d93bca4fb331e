#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/files/safetensors.h"
#include "models/spec/rope.h"

// docs/saved-contexts.md describes the file.
namespace lariat {

// A file and the loading session must agree on these properties.
struct ContextIdentity {
  std::string model, tokenizer;       // fingerprints
  std::string weights, keys, values;  // dtypes
  std::string rope;                   // number of rotated pairs; interleaved or half-split
  std::string method{};               // PositionMethod::name
  bool operator==(const ContextIdentity&) const = default;
};

struct ContextRecord {
  ContextIdentity identity;
  std::string scaling;   // for people
  int64_t expected = 0;  // Sequence::expect
  RopeFrequencies frequencies;
  int64_t length = 0;                   // of the cache
  std::vector<int32_t> tokens, placed;  // see SavedContext::tokens, SequencePositions::mrope
  std::string note;
  double stretch = 1;  // Sequence::stretch
  // Contiguous pages.
  std::span<const std::byte> pages{};
};

std::map<std::string, std::string> context_metadata(const ContextRecord& record);
// Tensors in file order. Throws Error if there are too many.
std::vector<NamedShape> context_tensors(const KvGeometry& geometry, const ContextRecord& record,
                                        const std::filesystem::path& file);
// Covers everything but the pages and their checksums.
uint64_t context_checksum(const ContextRecord& record);

struct ContextExpectations {
  ContextIdentity identity;
  const KvGeometry& geometry;
  size_t n_frequencies = 0;
  int64_t vocab_size = 0;
  int64_t max_ctx = 0;     // 0: no limit
  bool has_mrope = false;  // else M-RoPE positions are an error
};

// Whether a file begins as a saved context of any version.
bool is_saved_context(const std::filesystem::path& file);

// Throws Error, naming `file`, if it is damaged, belongs to another model or exceeds max_ctx.
ContextRecord parse_saved_context(std::span<const std::byte> bytes, const std::filesystem::path& file,
                                  const ContextExpectations& expected);

}  // namespace lariat
