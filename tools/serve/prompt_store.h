#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "engine/runtime/session.h"

namespace lariat {

// Prompts of ended texts as saved contexts in a folder. They are found again after a restart, and when
// memory has let them go. Only whole chunks of a prefill, as Session::share_prefix shares them.
class PromptStore {
 public:
  // most_bytes: of all files; then the least recently used is removed. warn: files and faults; the server
  // works without them. Throws Error if the folder cannot be made.
  PromptStore(Session& session, std::filesystem::path folder, uint64_t most_bytes,
              std::function<void(const std::string& line)> warn);

  // Loads the longest stored prefix into Session::prefixes() unless it is there.
  void find(const SequenceOptions& options, std::span<const int32_t> prompt);
  // Saves the prefix that prefixes() holds unless it is stored.
  void keep(const SequenceOptions& options, std::span<const int32_t> prompt);

 private:
  struct Stored {
    std::filesystem::path file;
    RopeFrequencies frequencies;
    std::vector<int32_t> tokens;
    uint64_t bytes;
  };
  using Entry = std::list<Stored>::iterator;

  void list();
  void make_room(uint64_t bytes);
  // With the prefix that prefixes() holds.
  Sequence shared(const SequenceOptions& options, std::span<const int32_t> prompt);
  // The entry with the longest common prefix, and its length in whole chunks.
  std::pair<Entry, int64_t> longest(const RopeFrequencies& frequencies, std::span<const int32_t> prompt);
  void use(Entry entry);

  Session& session_;
  std::filesystem::path folder_;
  uint64_t most_bytes_;
  std::function<void(const std::string& line)> warn_;
  std::list<Stored> stored_;  // most recent first
};

}  // namespace lariat
