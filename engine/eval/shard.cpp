#include <fmt/core.h>

#include <charconv>
#include <cstdlib>

#include "engine/eval/sweep.h"
#include "kernels/error.h"

namespace lariat {
namespace {

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<int64_t> read(const Environment& environment, const std::string& name) {
  const auto text = environment(name.c_str());
  if (!text) return std::nullopt;
  if (const auto value = whole_number(*text)) return value;
  throw Error(fmt::format("environment variable {} is '{}', not a number", name, *text),
              Remedy::kShardByHand);
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

std::optional<Shard> parse_shard(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto index = whole_number(text.substr(0, slash)), count = whole_number(text.substr(slash + 1));
  if (!index || !count || *index < 0 || *index >= *count) return std::nullopt;
  return Shard{*index, *count, {}};
}

Shard shard_of_environment(const Environment& environment) {
  struct Launcher {
    const char* index;
    const char* count;
    const char* first;  // the smallest index; nullptr: 0
  };
  static constexpr Launcher kLaunchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
      {"PMI_RANK", "PMI_SIZE", nullptr},
      {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"},
      {"SLURM_PROCID", "SLURM_NTASKS", nullptr},
  };
  for (const Launcher& launcher : kLaunchers) {
    const auto index = read(environment, launcher.index), count = read(environment, launcher.count);
    if (!index || !count) continue;
    const int64_t first = launcher.first == nullptr ? 0 : read(environment, launcher.first).value_or(0);
    if (*count < 1 || *index < first || *index - first >= *count) {
      throw Error(fmt::format("{}={} does not fit {}={}; array tasks must be numbered one by one",
                              launcher.index, *index, launcher.count, *count),
                  Remedy::kShardByHand);
    }
    if (*count == 1) continue;
    return {*index - first, *count, fmt::format("{} and {}", launcher.index, launcher.count)};
  }
  return {};
}

}  // namespace lariat
