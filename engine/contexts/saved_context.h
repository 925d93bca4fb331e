#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/contexts/saved_context_file.h"
#include "engine/runtime/session.h"

// A context that can be put away: a sequence's cache in a file, which knows the RoPE frequencies that its
// keys are rotated with, so that a session with another scaling can go on with it. What that gives exactly
// and what not: docs/saved-contexts.md.
namespace lariat {

struct SavedContext {
  Sequence sequence;
  std::vector<int32_t> tokens;  // that its cache holds, and perhaps one more, which nothing has read
  std::string note{};           // what its writer had to say of it
};

// Writes the cache of a sequence, and the tokens that it holds: sequence.length() of them, or one more that
// nothing has read, as the last one of a text that filled its context. The file
// is flushed to the disk and takes its place as a whole, or leaves what was there (AtomicFile). Throws Error
// naming the file; also for a stale cache, whose keys have several frequencies, and for random weights. note:
// valid UTF-8 that is given back on loading; what it says is the caller's matter.
void save_context(Session& session, const Sequence& sequence, std::span<const int32_t> tokens,
                  const std::filesystem::path& file, const std::string& note = {});

// The sequence that was saved, to be gone on with. In host memory its pages are those of the mapped file,
// which is never changed: what is written to is copied first, by the operating system and 4 KiB at a time.
// Under a scaling with other RoPE frequencies the keys are re-rotated (Session::restore). Throws Error,
// naming the file, for one that is damaged, of another model or tokenizer, with weights, keys or values of
// other dtypes or another position method, or longer than the session's max_ctx.
SavedContext load_context(Session& session, const std::filesystem::path& file,
                          const SequenceOptions& own = {});

// The contents of a file. The pages are part of `bytes`.
struct OpenedContext {
  std::filesystem::path file;
  std::shared_ptr<void> bytes;
  ContextRecord record;
};
// The file of load_context, checked as there for such a sequence.
OpenedContext open_context(Session& session, const Sequence& sequence, const std::filesystem::path& file);

}  // namespace lariat
