#include "tests/simt/traffic.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "tests/simt/memory.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

constexpr uintptr_t kSector = 32, kVector = 16;

using Piece = std::pair<uintptr_t, uintptr_t>;                          // [first, end) of a lane
using Instruction = std::tuple<unsigned, const void*, uint32_t, bool>;  // warp, site, how many before, write
using Visit = std::pair<unsigned, const void*>;                         // thread, site

struct Last {
  Instruction instruction;
  const void* site = nullptr;
  Piece piece;
};

bool g_counting = false;

struct Counter {
  std::vector<Traffic> kernels;
  size_t current = 0;
  std::map<Instruction, std::vector<Piece>> block;  // of the running block
  std::map<Visit, uint32_t> visits;
  std::map<unsigned, Last> last;  // per thread
  std::unordered_set<uintptr_t> moved[2];
};

Counter& counter() {
  static auto& instance = *new Counter;
  return instance;
}

// One instruction of a warp, its lanes' pieces in any order.
void add_instruction(Counter& c, std::vector<Piece>& pieces, bool write) {
  std::sort(pieces.begin(), pieces.end());
  uintptr_t bytes = 0, end = 0, next_sector = 0;
  uint64_t sectors = 0;
  for (const auto& [first, piece_end] : pieces) {
    if (piece_end > end) bytes += piece_end - std::max(first, end);
    end = std::max(end, piece_end);
    for (uintptr_t s = std::max(first / kSector, next_sector); s * kSector < piece_end; ++s) {
      next_sector = s + 1;
      ++sectors;
      c.moved[write ? 1 : 0].insert(s);
    }
  }
  Traffic& t = c.kernels[c.current];
  ++t.accesses;
  t.sectors += sectors;
  t.ideal += (bytes + kSector - 1) / kSector;
}

void end_launch(Counter& c) {
  for (auto& sectors : c.moved) {
    if (!c.kernels.empty()) c.kernels[c.current].distinct += sectors.size();
    sectors.clear();
  }
}

}  // namespace

void count_traffic(bool on) {
  if (on) counter() = Counter();
  g_counting = on;
}

std::vector<Traffic> traffic() {
  end_launch(counter());
  return counter().kernels;
}

void traffic_of_launch(const void* kernel) {
  if (!g_counting) return;
  Counter& c = counter();
  end_launch(c);
  const auto known =
      std::find_if(c.kernels.begin(), c.kernels.end(), [&](const Traffic& t) { return t.kernel == kernel; });
  c.current = static_cast<size_t>(known - c.kernels.begin());
  if (known == c.kernels.end()) c.kernels.push_back({kernel});
  ++c.kernels[c.current].launches;
}

void end_traffic_of_block() {
  if (!g_counting) return;
  Counter& c = counter();
  for (auto& [instruction, pieces] : c.block) add_instruction(c, pieces, std::get<bool>(instruction));
  c.block.clear();
  c.visits.clear();
  c.last.clear();
}

namespace {
void add_piece(Counter& c, const void* site, const void* address, size_t bytes, bool write) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const auto first = reinterpret_cast<uintptr_t>(address);
  const Piece piece = {first, first + bytes};
  Last& last = c.last[thread];
  const bool same_vector = last.site != nullptr && last.site != site && last.piece.second == first &&
                           last.piece.first / kVector == (piece.second - 1) / kVector &&
                           std::get<bool>(last.instruction) == write;
  if (!same_vector) last.instruction = {thread / kWarp, site, c.visits[{thread, site}]++, write};
  last.site = site;
  last.piece = piece;
  c.block[last.instruction].push_back(piece);
}
}  // namespace

void add_traffic(const void* site, const void* address, size_t bytes, bool write) {
  if (g_counting && touches_device(address, bytes)) add_piece(counter(), site, address, bytes, write);
}

}  // namespace simt
