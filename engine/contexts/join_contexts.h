#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "engine/contexts/saved_context.h"
#include "engine/runtime/session.h"

// Concatenates separately saved contexts; quality and costs: docs/saved-contexts.md.
namespace lariat {

struct JoinOptions {
  bool anew = false;      // prefill all tokens again
  int64_t recompute = 0;  // recompute the first N tokens of later parts with full attention
  bool keep_bos = false;  // keep the BOS of later parts; it counts towards `recompute`
};

// Parses rotate, recompute=N or anew, then optionally /bos=drop or /bos=keep. Throws UsageError.
JoinOptions parse_join(std::string_view text);

// Returns a sequence with the tokens of all `files`, without a note; the cache may lack the last file's last
// token. One rotation moves keys from the position and RoPE frequencies in their file to those in this
// session at the whole length; nothing else changes. `bos`: BOS tokens; their common prefix with a later part
// is dropped from that part. progress: prefilled tokens. Throws Error as load_context does and if all files
// together exceed max_ctx, and UsageError for a stale cache or a position method.
SavedContext join_contexts(Session& session, std::span<const std::filesystem::path> files,
                           const JoinOptions& options, const std::vector<int32_t>& bos,
                           const Session::ProgressFn& progress = {}, const SequenceOptions& own = {});

}  // namespace lariat
