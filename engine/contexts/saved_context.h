#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/contexts/saved_context_file.h"
#include "engine/runtime/session.h"

// Saves a sequence's KV cache with the RoPE frequencies of its keys, which a session with another scaling
// re-rotates: docs/saved-contexts.md.
namespace lariat {

struct SavedContext {
  Sequence sequence;
  std::vector<int32_t> tokens;  // cached tokens, and possibly one token more
  std::string note{};           // written by the caller
};

// Saves a cache and its tokens: sequence.length() of them, or one more (the last token of a text that filled
// its context). The file is flushed and replaced as a whole (AtomicFile). note: valid UTF-8. Throws Error
// with the file, also for a stale cache and for random weights.
void save_context(Session& session, const Sequence& sequence, std::span<const int32_t> tokens,
                  const std::filesystem::path& file, const std::string& note = {});

// Loads a saved sequence. Pages in host memory are memory-mapped copy-on-write: the file never changes.
// Throws Error naming the file if it is damaged, longer than max_ctx, or from another model, tokenizer, dtype
// (weights, keys, values) or position method.
SavedContext load_context(Session& session, const std::filesystem::path& file,
                          const SequenceOptions& own = {});

// Contents of a file; its pages lie in `bytes`.
struct OpenedContext {
  std::filesystem::path file;
  std::shared_ptr<void> bytes;
  ContextRecord record;
};
// Opens a file with the checks of load_context.
OpenedContext open_context(Session& session, const Sequence& sequence, const std::filesystem::path& file);

}  // namespace lariat
