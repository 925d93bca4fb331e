#include "kernels/container.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace lariat {
namespace {

namespace fs = std::filesystem;

constexpr double kNone = std::numeric_limits<double>::infinity();

// Value i of a file; without the file, or for "max": infinite.
double value_in(const fs::path& file, int i = 0) {
  std::ifstream in(file);
  std::string word;
  for (int k = 0; k <= i; ++k) in >> word;
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  return !in || end == word.c_str() ? kNone : value;
}

// Value of a key of memory.stat; `missing` without it.
double stat_in(const fs::path& group, const std::string& wanted, double missing) {
  std::ifstream in(group / "memory.stat");
  std::string key;
  for (double value = 0; in >> key >> value;)
    if (key == wanted) return value;
  return missing;
}

void limit_cores(ContainerLimits& limits, double quota, double period) {
  if (quota > 0 && period > 0 && quota < kNone && period < kNone)
    limits.cores = std::min(limits.cores, quota / period);
}

// prefix: of version 1's sums over inner groups.
void limit_memory(ContainerLimits& limits, const fs::path& group, double allowed, double used,
                  const std::string& prefix) {
  if (allowed == kNone) return;
  limits.memory = std::min(limits.memory, allowed);
  if (used == kNone) used = 0;
  const double files =
      stat_in(group, prefix + "inactive_file", 0) + stat_in(group, prefix + "active_file", 0);
  limits.free_memory = std::min(limits.free_memory, std::max(0.0, allowed - std::max(0.0, used - files)));
}

void read_group(ContainerLimits& limits, const fs::path& group) {
  limit_cores(limits, value_in(group / "cpu.max"), value_in(group / "cpu.max", 1));
  limit_cores(limits, value_in(group / "cpu.cfs_quota_us"), value_in(group / "cpu.cfs_period_us"));
  limit_memory(limits, group, std::min(value_in(group / "memory.max"), value_in(group / "memory.high")),
               value_in(group / "memory.current"), "");
  limit_memory(
      limits, group,
      std::min(value_in(group / "memory.limit_in_bytes"), stat_in(group, "hierarchical_memory_limit", kNone)),
      value_in(group / "memory.usage_in_bytes"), "total_");
}

}  // namespace

ContainerLimits container_limits(const fs::path& mounted, const fs::path& groups) {
  ContainerLimits limits;
  std::ifstream in(groups);
  // "0::/PATH" in version 2, "3:cpu,cpuacct:/PATH" in version 1. PATH may be the host's, which a container
  // does not see: missing groups limit nothing.
  std::string number, controllers, path;
  while (std::getline(in, number, ':') && std::getline(in, controllers, ':') && std::getline(in, path)) {
    std::istringstream names(controllers.empty() ? ".,unified" : controllers);
    for (std::string name; std::getline(names, name, ',');) {
      fs::path group = mounted / name;
      read_group(limits, group);
      for (const fs::path& part : fs::path(path).relative_path()) read_group(limits, group /= part);
    }
  }
  return limits;
}

}  // namespace lariat
