#include "kernels/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "kernels/container.h"

namespace lariat {
namespace {

double meminfo_bytes(const std::string& wanted) {
  std::ifstream meminfo("/proc/meminfo");
  std::string line;
  while (std::getline(meminfo, line)) {
    std::istringstream fields(line);
    std::string key;
    double kib = 0;
    if (fields >> key >> kib && key == wanted) return kib * 1024;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

double free_host_bytes() { return std::min(meminfo_bytes("MemAvailable:"), container_limits().free_memory); }
double all_host_bytes() { return std::min(meminfo_bytes("MemTotal:"), container_limits().memory); }

}  // namespace lariat
