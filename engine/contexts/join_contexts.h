#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "engine/contexts/saved_context.h"
#include "engine/runtime/session.h"

// Concatenates saved contexts: docs/saved-contexts.md.
namespace lariat {

struct JoinOptions {
  bool anew = false;      // prefill all tokens again
  int64_t recompute = 0;  // recompute the first N tokens of later parts with full attention
  bool keep_bos = false;  // keep the BOS of later parts; it counts towards `recompute`
};

// Parses rotate, recompute=N or anew, then optionally /bos=drop or /bos=keep. Throws UsageError.
JoinOptions parse_join(std::string_view text);

// Returns a sequence with the tokens of all `files`; the cache may lack the last token. One rotation moves
// keys from the position and RoPE frequencies in their file to this session's at the whole length. A later
// part drops its common prefix with `bos`. progress: prefilled tokens. Throws Error as load_context does and
// beyond max_ctx, UsageError for a stale cache or a position method.
SavedContext join_contexts(Session& session, std::span<const std::filesystem::path> files,
                           const JoinOptions& options, const std::vector<int32_t>& bos,
                           const Session::ProgressFn& progress = {}, const SequenceOptions& own = {});

}  // namespace lariat
