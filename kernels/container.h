#pragma once
#include <filesystem>
#include <limits>

// Limits of this process's control groups and of all groups around them, in versions 1 and 2 (Linux:
// Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst; scheduler/sched-bwc.rst). A container sees
// the host's processors and /proc/meminfo, and is killed beyond its own limit. Without a limit: infinite.
namespace lariat {

struct ContainerLimits {
  double cores = std::numeric_limits<double>::infinity();
  // Bytes allowed, and bytes that are unused or hold reclaimable pages of files.
  double memory = std::numeric_limits<double>::infinity(), free_memory = memory;
};

// Tests give other files.
ContainerLimits container_limits(const std::filesystem::path& mounted = "/sys/fs/cgroup",
                                 const std::filesystem::path& groups = "/proc/self/cgroup");

}  // namespace lariat
