#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/cpu_features.h"
#include "tests/skip.h"

// AmxTiles in plain C++, after Intel's Software Developer's Manual, volume 2 (LDTILECFG, TILELOADD,
// TILESTORED, TILEZERO, TILERELEASE, TDPBF16PS). Throws where the processor faults; memcpy of exactly the
// instruction's bytes lets AddressSanitizer check them.
namespace lariat::test {

struct OnAmx : testing::Test {
  void SetUp() override {
    const std::string_view reason = cpu::amx_bf16_unavailable_reason();
    if (!reason.empty()) LARIAT_SKIP(reason);
  }
};

class TileFault : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct EmulatedTile {
  int rows = 0;
  int bytes = 0;
  unsigned char data[16][64] = {};
};

// c += a * b: sums of the pairs' first values and of their second values, each from zero in order, are added
// to c. Subnormals are zero, whatever MXCSR says.
void add_products(EmulatedTile& c, const EmulatedTile& a, const EmulatedTile& b);

class EmulatedTiles {
 public:
  static void configure(const cpu::TileConfig& config) {
    const auto refuse = [](bool wrong, const char* what) {
      if (wrong) throw TileFault(std::string("#GP: LDTILECFG with ") + what);
    };
    refuse(config.palette > 1, "an unknown palette");
    refuse(config.start_row != 0, "a start row");  // legal only after an interrupted load
    for (uint8_t byte : config.reserved) refuse(byte != 0, "a reserved byte that is not zero");
    for (int t = 0; t < 16; ++t) {
      const int rows = config.rows[t], bytes = config.row_bytes[t];
      refuse(t >= cpu::kTiles && (rows != 0 || bytes != 0), "a tile that does not exist");
      refuse(rows > 16 || bytes > 64, "a tile that is too large");
      refuse((rows == 0) != (bytes == 0), "a tile of rows without columns, or columns without rows");
    }
    configured_ = config.palette == 1;
    for (int t = 0; t < cpu::kTiles; ++t) {
      tiles_[t] = EmulatedTile();
      if (!configured_) continue;
      tiles_[t].rows = config.rows[t];
      tiles_[t].bytes = config.row_bytes[t];
    }
  }
  static void release() {
    configured_ = false;
    for (EmulatedTile& tile : tiles_) tile = EmulatedTile();
  }
  static bool configured() { return configured_; }

  template <int kTo>
  static void zero() {
    EmulatedTile& tile = valid<kTo>("TILEZERO");
    std::memset(tile.data, 0, sizeof(tile.data));
  }
  template <int kTo>
  static void load(const void* from, int64_t stride) {
    EmulatedTile& tile = valid<kTo>("TILELOADD");
    std::memset(tile.data, 0, sizeof(tile.data));
    for (int r = 0; r < tile.rows; ++r) {
      std::memcpy(tile.data[r], static_cast<const char*>(from) + r * stride, static_cast<size_t>(tile.bytes));
    }
  }
  template <int kFrom>
  static void store(void* to, int64_t stride) {
    const EmulatedTile& tile = valid<kFrom>("TILESTORED");
    for (int r = 0; r < tile.rows; ++r) {
      std::memcpy(static_cast<char*>(to) + r * stride, tile.data[r], static_cast<size_t>(tile.bytes));
    }
  }

  template <int kC, int kA, int kB>
  static void dot() {
    if (kC == kA || kC == kB || kA == kB) throw TileFault("#UD: TDPBF16PS with one tile in two places");
    EmulatedTile& c = valid<kC>("TDPBF16PS");
    const EmulatedTile &a = valid<kA>("TDPBF16PS"), &b = valid<kB>("TDPBF16PS");
    if (c.bytes % 4 != 0 || a.bytes % 4 != 0 || c.rows != a.rows || c.bytes != b.bytes ||
        a.bytes / 4 != b.rows) {
      throw TileFault("#UD: TDPBF16PS of shapes that do not fit");
    }
    add_products(c, a, b);
  }

  static void fetch(const void*) {}
  static void fetch_near(const void*) {}

 private:
  template <int kTile>
  static EmulatedTile& valid(const char* instruction) {
    static_assert(kTile >= 0 && kTile < cpu::kTiles);
    if (!configured_) throw TileFault(std::string("#UD: ") + instruction + " before LDTILECFG");
    if (tiles_[kTile].rows == 0) {
      throw TileFault(std::string("#UD: ") + instruction + " of tile " + std::to_string(kTile) +
                      ", which has no shape");
    }
    return tiles_[kTile];
  }

  static inline thread_local bool configured_ = false;
  static inline thread_local EmulatedTile tiles_[cpu::kTiles];
};

// Mistakes that the tile kernel tests must detect.
struct SwappedOperands : EmulatedTiles {
  template <int kC, int kA, int kB>
  static void dot() {
    EmulatedTiles::dot<kC, kB, kA>();
  }
};
struct ForgottenZero : EmulatedTiles {
  template <int kTo>
  static void zero() {}
};
struct ForgottenSums : EmulatedTiles {  // drops sums of earlier column blocks
  template <int kTo>
  static void load(const void* from, int64_t stride) {
    kTo < 4 ? EmulatedTiles::zero<kTo>() : EmulatedTiles::load<kTo>(from, stride);
  }
};
struct KeptTiles : EmulatedTiles {
  static void release() {}
};
struct ShortTile : EmulatedTiles {
  static void configure(const cpu::TileConfig& full) {
    cpu::TileConfig config = full;
    config.rows[5] = 8;
    EmulatedTiles::configure(config);
  }
};

}  // namespace lariat::test
