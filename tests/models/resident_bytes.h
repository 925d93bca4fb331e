#pragma once
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>

namespace lariat {

// Reads the size of the address's mapping in /proc/self/smaps.
inline size_t resident_bytes(const void* address) {
  const auto wanted = reinterpret_cast<size_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    size_t begin = 0, end = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx", &begin, &end) == 2) {
      inside = begin <= wanted && wanted < end;
    } else if (inside && std::sscanf(line.c_str(), "Rss: %zu kB", &kilobytes) == 1) {
      return kilobytes << 10;
    }
  }
  return 0;
}

}  // namespace lariat
