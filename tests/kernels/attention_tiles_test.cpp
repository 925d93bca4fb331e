// Attention on tiles, with emulated instructions, and with real ones if present.
#if defined(__x86_64__)
#include <gtest/gtest.h>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "tests/kernels/amx_emulation.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {
namespace {

using Attend = void (*)(const AttentionTask& task);

// Tests the second of two heads.
struct TiledCase {
  int64_t n, first_position, group, head_dim, value_dim;
  DType k_dtype = DType::kF16;
  int64_t window = 0;
  bool rest = false;  // a second range: keys before the window
  float softcap = 0.0F;
  bool alibi = false;
};

// Queries (in units of log2), keys and values are bf16 values. The cache after them is NaN.
struct TiledProblem {
  TiledCase shape;
  CpuBackend cpu{1};
  Cache cache;
  std::vector<float> q;

  explicit TiledProblem(const TiledCase& c)
      : shape(c), cache(cpu, c.first_position + c.n, 2, c.head_dim, c.k_dtype, DType::kBF16) {
    Rng rng(7);
    const auto rounded = [&](int64_t count, float factor) {
      std::vector<float> values = rng.normals(count, factor);
      for (float& value : values) value = round_to_bf16(value);
      return values;
    };
    const int64_t positions = c.first_position + c.n;
    q = rounded(c.n * c.group * c.head_dim, 2.0F / std::sqrt(static_cast<float>(c.head_dim)));
    cache.set_keys(rounded(positions * 2 * c.head_dim, 1.0F));
    cache.set_values(rounded(positions * 2 * c.head_dim, 1.0F));
  }

  // Sum of weights and weighted mean of values of `count` tokens.
  std::vector<float> run(Attend attend, int64_t first, int64_t count, float q_factor) {
    const int64_t rows = count * shape.group, padded = round_up<int64_t>(rows, 96), dim = shape.head_dim;
    AttentionTask task;
    task.layer = &cache.layer();
    task.pages = cache.pages();
    task.kv_head = 1;
    task.group = shape.group;
    task.rows = rows;
    task.first_position = shape.first_position + first;
    task.softcap = shape.softcap;
    constexpr float kSlopes[] = {0.5F, 0.25F, 0.0625F, 0.03F, 0.01F};
    if (shape.alibi) task.slopes = kSlopes;
    task.stride = dim;
    task.value_stride = shape.value_dim;
    const int64_t scratch = cpu::TiledMemory(rows, cache.layer(), nullptr).bytes / 4 + attention_scratch(dim);
    Buffer memory = cpu.allocate(static_cast<size_t>(2 * padded * (dim + 1) + scratch) * sizeof(float));
    auto* at = static_cast<float*>(memory.data());
    std::fill(at, at + 2 * padded * (dim + 1) + scratch, NAN);
    std::fill(at, at + 2 * padded * dim, 0.0F);
    for (int64_t i = 0; i < rows * dim; ++i) {
      at[i] = q_factor * q[static_cast<size_t>(first * shape.group * dim + i)];
    }
    task.q = at;
    task.acc = at + padded * dim;
    task.max = task.acc + padded * dim;
    task.sum = task.max + padded;
    task.scratch = task.sum + padded;
    std::fill(task.max, task.max + padded, -std::numeric_limits<float>::infinity());
    std::fill(task.sum, task.sum + padded, 0.0F);
    const KeyRange near = KeyRange::causal({}, shape.window);
    for (const KeyRange& range : {near, KeyRange{{.most = 0}, near.begin, {}}}) {
      task.first_seen = range.begin;
      task.last_seen = range.end;
      task.first_key = task.begin(0) / kKvPage * kKvPage;
      task.last_key = task.end(rows - 1);
      attend(task);
      if (!shape.rest) break;
    }
    std::vector<float> result;
    for (int64_t row = 0; row < rows; ++row) {
      // Tile kernels use units of log2, in queries too.
      result.push_back(task.max[row] * (q_factor == 1.0F ? cpu::kLn2 : 1.0F) + std::log(task.sum[row]));
      for (int64_t i = 0; i < shape.value_dim; ++i) {
        result.push_back(task.acc[row * dim + i] / task.sum[row]);
      }
    }
    return result;
  }

  std::vector<float> whole(Attend attend) { return run(attend, 0, shape.n, 1.0F); }
};

// Error in units of the weights' rounding, 2^-9 each, plus 1.1e-4 for the polynomial. The sum of weights is
// not rounded.
double tiled_error(const TiledCase& c, Attend attend) {
  TiledProblem problem(c);
  const std::vector<float> actual = problem.whole(attend);
  const std::vector<float> expected = problem.run(attention_block, 0, c.n, cpu::kLn2);
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    constexpr double kLargest = 4.5;
    const double bound = kLargest * (0x1p-8 + 1.1e-4);
    worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error / bound);
  }
  return worst;
}

constexpr TiledCase kTiledCases[] = {{1, 0, 1, 32, 32},
                                     {3, 0, 8, 64, 64, DType::kBF16},
                                     {70, 0, 8, 64, 64},
                                     {40, 250, 5, 128, 128},
                                     {33, 500, 3, 96, 64},
                                     {9, 1000, 4, 64, 32, DType::kBF16},
                                     {20, 255, 4, 192, 128},
                                     {300, 10, 1, 64, 64},
                                     {16, 240, 1, 256, 256},
                                     {70, 300, 8, 64, 64, DType::kF16, 100},
                                     {300, 10, 1, 64, 64, DType::kBF16, 30},
                                     {90, 700, 2, 64, 64, DType::kF16, 300, true},
                                     {70, 20, 5, 64, 32, DType::kF16, 0, false, 1.5F},
                                     {70, 300, 5, 128, 128, DType::kF16, 0, false, 0.0F, true},
                                     {90, 300, 3, 64, 64, DType::kF16, 70, true, 3.0F, true}};

void check_tiled_cases(Attend attend) {
  for (const TiledCase& c : kTiledCases) {
    EXPECT_LE(tiled_error(c, attend), 1.0) << c.n << " at " << c.first_position << " dim " << c.head_dim;
  }
}

// Rows are bitwise identical with any other rows and any start of the block.
void check_tiled_splits(Attend attend) {
  for (const TiledCase& c : {TiledCase{200, 400, 3, 64, 64},
                             {90, 0, 1, 128, 128, DType::kBF16},
                             {200, 400, 3, 64, 64, DType::kF16, 90, true, 2.0F, true}}) {
    TiledProblem problem(c);
    const std::vector<float> expected = problem.whole(attend);
    for (const std::vector<int64_t>& parts :
         {std::vector<int64_t>{1, 37, 50, 200}, {64, 64, 200}, {89, 200}}) {
      std::vector<float> actual;
      int64_t done = 0;
      for (int64_t count : parts) {
        count = std::min(count, c.n - done);
        if (count == 0) continue;
        const std::vector<float> part = problem.run(attend, done, count, 1.0F);
        actual.insert(actual.end(), part.begin(), part.end());
        done += count;
      }
      EXPECT_EQ(actual, expected) << parts.size() << " parts";
    }
  }
}

constexpr Attend kEmulated = cpu::attention_tiles<EmulatedTiles>;
TEST(AmxAttentionEmulated, MatchesTheVectorKernel) { check_tiled_cases(kEmulated); }
TEST(AmxAttentionEmulated, NoSplitChangesABit) { check_tiled_splits(kEmulated); }

using AmxAttentionProcessor = OnAmx;
TEST_F(AmxAttentionProcessor, MatchesTheVectorKernel) { check_tiled_cases(cpu::attention_amx); }
TEST_F(AmxAttentionProcessor, NoSplitChangesABit) { check_tiled_splits(cpu::attention_amx); }
TEST_F(AmxAttentionProcessor, MatchesTheEmulationBitForBit) {
  TiledProblem problem(kTiledCases[3]);
  EXPECT_EQ(problem.whole(cpu::attention_amx), problem.whole(kEmulated));
}

struct PairAttention : testing::Test {
  void SetUp() override {
    if (!cpu::supports_avx512_bf16()) LARIAT_SKIP("this processor has no AVX-512 for bf16");
  }
};
TEST_F(PairAttention, MatchesTheVectorKernel) { check_tiled_cases(cpu::attention_pairs); }
TEST_F(PairAttention, NoSplitChangesABit) { check_tiled_splits(cpu::attention_pairs); }

// A planted mistake: every row misses its last position.
void short_of_a_position(const AttentionTask& task) {
  AttentionTask shifted = task;
  shifted.last_seen.offset -= 1;
  kEmulated(shifted);
}

TEST(AmxAttentionPlanted, MistakesAreDetected) {
  const TiledCase c = kTiledCases[3];
  EXPECT_GT(tiled_error(c, short_of_a_position), 5.0);
  EXPECT_GT(tiled_error(c, cpu::attention_tiles<SwappedOperands>), 20.0);
  EXPECT_GT(tiled_error(c, cpu::attention_tiles<ForgottenZero>), 20.0);
  EXPECT_GT(tiled_error(c, cpu::attention_tiles<ForgottenSums>), 20.0);
  EXPECT_THROW(tiled_error(c, cpu::attention_tiles<ShortTile>), TileFault);
  EmulatedTiles::release();
  TiledProblem problem(c);
  problem.whole(kEmulated);
  EXPECT_FALSE(EmulatedTiles::configured());
}

}  // namespace
}  // namespace lariat::test
#endif
