#pragma once
#include <cstdint>

// AMX instructions as inline assembly: intrinsics take no template arguments as tile numbers, and in GCC
// before 14 they hide memory reads (GCC bug 114098): operand stores may be dropped. Kernels are templates;
// tests pass an emulation (tests/kernels/amx_emulation.h).
namespace lariat::cpu {

// Operand of LDTILECFG: bytes per row and rows of every tile.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

constexpr int kTiles = 8;           // registers
constexpr int64_t kTileRows = 16;   // of the largest tile, 64 bytes each
constexpr int64_t kTilePairs = 16;  // pairs of bf16, or f32 sums, in a row
constexpr int64_t kTileColumns = 2 * kTilePairs;
constexpr int64_t kTileBytes = kTileRows * kTileColumns * 2;

constexpr TileConfig full_tiles() {
  TileConfig config;
  for (int t = 0; t < kTiles; ++t) {
    config.row_bytes[t] = kTileColumns * 2;
    config.rows[t] = kTileRows;
  }
  return config;
}

// Tiles of an operand: 2 per step, `half` bytes apart; steps are `step` bytes apart.
struct TilePlaces {
  const char* at;
  int64_t stride, half, step;
};

// 2 x 2 tiles of sums at `corner` (upper left, upper right, lower left, lower right), rows `stride` bytes
// apart, += the 2 tiles of a times the 2 of b over `depth` steps. zero: sums start at 0.
template <class Tiles>
void multiply_tiles(const TilePlaces& a, const TilePlaces& b, int64_t depth, bool zero,
                    char* const (&corner)[4], int64_t stride) {
  if (zero) {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template zero<2>();
    Tiles::template zero<3>();
  } else {
    Tiles::template load<0>(corner[0], stride);
    Tiles::template load<1>(corner[1], stride);
    Tiles::template load<2>(corner[2], stride);
    Tiles::template load<3>(corner[3], stride);
  }
  for (int64_t t = 0; t < depth; ++t) {
    const char *left = a.at + t * a.step, *right = b.at + t * b.step;
    Tiles::template load<4>(left, a.stride);
    Tiles::template load<6>(right, b.stride);
    Tiles::template dot<0, 4, 6>();
    Tiles::template load<7>(right + b.half, b.stride);
    Tiles::template dot<1, 4, 7>();
    Tiles::template load<5>(left + a.half, a.stride);
    Tiles::template dot<2, 5, 6>();
    Tiles::template dot<3, 5, 7>();
  }
  Tiles::template store<0>(corner[0], stride);
  Tiles::template store<1>(corner[1], stride);
  Tiles::template store<2>(corner[2], stride);
  Tiles::template store<3>(corner[3], stride);
}

#if defined(__x86_64__)

// Requires has_amx_bf16(). All state belongs to the calling thread.
struct AmxTiles {
  static void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config) : "memory"); }
  // Context switches need not save a reset tile state.
  static void release() { asm volatile("tilerelease" ::: "memory"); }

  template <int kTo>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTo));
  }
  // stride: bytes between rows in memory.
  template <int kTo>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTo) : "memory");
  }
  template <int kFrom>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kFrom) : "memory");
  }
  // c[m][n] += sum over p of a[m][2p] b[p][2n] + a[m][2p + 1] b[p][2n + 1]; a, b: bf16, c: f32.
  template <int kC, int kA, int kB>
  static void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  // Prefetches a 64-byte line into L2, or L1; never faults.
  static void fetch(const void* line) { __builtin_prefetch(line, 0, 2); }
  static void fetch_near(const void* line) { __builtin_prefetch(line, 0, 3); }
};

#endif

}  // namespace lariat::cpu
