#include "tests/kernels/amx_emulation.h"

#include <vector>

#include "kernels/convert.h"

namespace lariat::test {
namespace {

using cpu::TileConfig;

// A 3 x 2 tile of sums of 2 pairs, by hand.
class AmxEmulation : public testing::Test {
 protected:
  void SetUp() override { EmulatedTiles::release(); }
  void TearDown() override { EmulatedTiles::release(); }

  static TileConfig shapes() {
    TileConfig config;
    const auto set = [&](int tile, int rows, int bytes) {
      config.rows[tile] = static_cast<uint8_t>(rows);
      config.row_bytes[tile] = static_cast<uint16_t>(bytes);
    };
    set(0, 3, 8);  // sums
    set(1, 3, 8);  // 3 rows of 2 pairs
    set(2, 2, 8);  // 2 pairs of 2 columns
    set(3, 1, 4);
    return config;
  }
  // Row 1 and column 1 of the tiles: c + a b for one row of a and one column of b, two pairs each.
  static float one_sum(const float (&a)[4], const float (&b)[4], float c) {
    uint16_t left[3][4] = {}, right[2][4] = {};
    float sums[3][2] = {};
    sums[1][1] = c;
    for (int i = 0; i < 4; ++i) {
      left[1][i] = f32_to_bf16(a[i]);
      right[i / 2][2 + i % 2] = f32_to_bf16(b[i]);
    }
    EmulatedTiles::configure(shapes());
    EmulatedTiles::load<0>(sums, 8);
    EmulatedTiles::load<1>(left, 8);
    EmulatedTiles::load<2>(right, 8);
    EmulatedTiles::dot<0, 1, 2>();
    EmulatedTiles::store<0>(sums, 8);
    for (int i = 0; i < 6; ++i) {
      if (i == 3) continue;
      EXPECT_EQ(sums[i / 2][i % 2], 0) << i;
    }
    return sums[1][1];
  }
};

TEST_F(AmxEmulation, SumsFirstAndSecondValuesSeparately) {
  EXPECT_EQ(one_sum({1, 2, 3, 4}, {5, 6, 7, 8}, 1), 71);
  // 2^24 + 1 is 2^24 in f32. Each chain is summed in order, without c.
  EXPECT_EQ(one_sum({0x1p24F, 1, -0x1p24F, 1}, {1, 1, 1, 1}, 0), 2);
  EXPECT_EQ(one_sum({0x1p24F, -0x1p24F, 1, 0}, {1, 1, 1, 1}, 0), 0);
  EXPECT_EQ(one_sum({1, 1, 0, 0}, {1, 1, 1, 1}, 0x1p24F), 0x1p24F + 2);
}

TEST_F(AmxEmulation, TreatsSubnormalsAsZero) {
  constexpr float kSubnormal = 0x1p-127F;
  EXPECT_EQ(one_sum({kSubnormal, 0, 0, 0}, {0x1p100F, 0, 0, 0}, 0), 0);
  EXPECT_EQ(one_sum({0, 0, 0, 0}, {0, 0, 0, 0}, kSubnormal), 0);
  EXPECT_EQ(one_sum({0x1p-70F, 0, 0, 0}, {0x1p-60F, 0, 0, 0}, 0), 0);
  EXPECT_EQ(one_sum({0x1p-60F, 0, 0, 0}, {0x1p-60F, 0, 0, 0}, 0), 0x1p-120F);
}

TEST_F(AmxEmulation, LoadsTheShapeAndZerosTheRest) {
  char memory[3][10] = {"abcdefghi", "jklmnopqr", "stuvwxyz!"}, back[3][8] = {};
  EmulatedTiles::configure(shapes());
  EmulatedTiles::load<1>(memory, 10);
  EmulatedTiles::store<1>(back, 8);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(std::memcmp(back[r], memory[r], 8), 0) << r;
  EmulatedTiles::zero<1>();
  EmulatedTiles::store<1>(back, 8);
  for (const auto& row : back) EXPECT_EQ(std::string(row, 8), std::string(8, '\0'));
}

TEST_F(AmxEmulation, FaultsOnInvalidConfigurations) {
  const auto refused = [](auto change) {
    TileConfig config = cpu::full_tiles();
    change(config);
    EXPECT_THROW(EmulatedTiles::configure(config), TileFault);
  };
  EXPECT_NO_THROW(EmulatedTiles::configure(cpu::full_tiles()));
  refused([](TileConfig& c) { c.palette = 2; });
  refused([](TileConfig& c) { c.start_row = 1; });
  refused([](TileConfig& c) { c.reserved[13] = 1; });
  refused([](TileConfig& c) { c.rows[7] = 17; });
  refused([](TileConfig& c) { c.row_bytes[7] = 68; });
  refused([](TileConfig& c) { c.rows[7] = 0; });
  refused([](TileConfig& c) { c.row_bytes[7] = 0; });
  refused([](TileConfig& c) { c.rows[8] = c.row_bytes[8] = 1; });
}

TEST_F(AmxEmulation, FaultsOnMissingAndMismatchedShapes) {
  char memory[1024] = {};
  EXPECT_THROW(EmulatedTiles::zero<0>(), TileFault);
  EXPECT_THROW(EmulatedTiles::load<0>(memory, 64), TileFault);
  EXPECT_THROW(EmulatedTiles::store<0>(memory, 64), TileFault);
  EXPECT_THROW((EmulatedTiles::dot<0, 1, 2>()), TileFault);
  EmulatedTiles::configure(shapes());
  EXPECT_NO_THROW((EmulatedTiles::dot<0, 1, 2>()));
  EXPECT_THROW(EmulatedTiles::zero<4>(), TileFault);
  EXPECT_THROW(EmulatedTiles::load<4>(memory, 64), TileFault);
  EXPECT_THROW(EmulatedTiles::store<4>(memory, 64), TileFault);
  EXPECT_THROW((EmulatedTiles::dot<0, 1, 4>()), TileFault);
  EXPECT_THROW((EmulatedTiles::dot<0, 2, 1>()), TileFault);
  EXPECT_THROW((EmulatedTiles::dot<0, 1, 3>()), TileFault);
  EXPECT_THROW((EmulatedTiles::dot<3, 1, 2>()), TileFault);
  EXPECT_THROW((EmulatedTiles::dot<0, 0, 2>()), TileFault);
  EXPECT_THROW((EmulatedTiles::dot<0, 1, 1>()), TileFault);
  EmulatedTiles::release();
  EXPECT_THROW((EmulatedTiles::dot<0, 1, 2>()), TileFault);
}

#ifdef __SANITIZE_ADDRESS__
TEST_F(AmxEmulation, IsVisibleToAddressSanitizer) {
  std::vector<char> memory(cpu::kTileBytes - 1);
  EmulatedTiles::configure(cpu::full_tiles());
  EXPECT_DEATH(EmulatedTiles::load<0>(memory.data(), 64), "heap-buffer-overflow");
  EXPECT_DEATH(EmulatedTiles::store<0>(memory.data(), 64), "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace lariat::test
