#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/shard.h"

namespace lariat {

// The log beside a report: "out.html" -> "out.jsonl", of a shard "out.shard-0-of-4.jsonl".
std::filesystem::path log_beside(const std::filesystem::path& report, int64_t index, int64_t count);

}  // namespace lariat
