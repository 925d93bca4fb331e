#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "engine/contexts/saved_context.h"
#include "engine/runtime/session.h"

// Contexts that were read apart and saved, one behind the other as one: what that gives and what it costs,
// docs/saved-contexts.md.
namespace lariat {

struct JoinOptions {
  bool anew = false;      // all tokens are read again
  int64_t recompute = 0;  // of each part but the first, so many tokens are, with all that stands before them
  bool keep_bos = false;  // that such a part begins with, which counts among them
};

// "rotate", "recompute=N" or "anew", and perhaps "/bos=drop" or "/bos=keep" behind it. Throws UsageError.
JoinOptions parse_join(std::string_view text);

// The sequence that holds the tokens of all `files`; the last one's last token may be one that nothing has
// read. Keys go from the position and the RoPE frequencies of their file to those that they have in this
// session at the whole length, in one rotation; nothing else of what was computed in a part changes. `bos`
// begins a text: all of it, or as much as a part begins with, is dropped from later parts. progress is called
// while tokens are read. The result has no note. Throws Error as load_context does, when all files are longer
// than max_ctx together, and UsageError where cached keys stay as they are (stale_cache) or stand elsewhere
// (positions).
SavedContext join_contexts(Session& session, std::span<const std::filesystem::path> files,
                           const JoinOptions& options, const std::vector<int32_t>& bos,
                           const Session::ProgressFn& progress = {}, const SequenceOptions& own = {});

}  // namespace lariat
