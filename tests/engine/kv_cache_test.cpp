#include "engine/runtime/kv_cache.h"

#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

class KvCaches : public testing::Test {
 protected:
  KvCache filled(int64_t length) {
    KvCache cache(pool_, before_);
    cache.reserve(length);
    cache.advance(length);
    return cache;
  }
  void change_frequencies(KvCache& cache, bool rerotate) {
    RopeFrequencies after = before_;
    for (double& f : after.inv_freq) f *= 0.5;
    KvCache* const one = &cache;
    set_frequencies(pool_, {&one, 1}, {&after, 1}, false, rerotate);
  }

  CpuBackend backend_{1};
  const Model model_ = open_f32(checkpoint_dir("llama_gqa"), backend_);
  KvPool pool_{model_.spec, backend_, DType::kF32, DType::kF32};
  const RopeFrequencies before_ = rope_frequencies(model_.spec.rope(), 0);
};

TEST_F(KvCaches, WithoutKeysAreConsistent) {
  KvCache stale = filled(10), other = filled(1);
  change_frequencies(stale, false);
  EXPECT_FALSE(stale.consistent());
  other.share_prefix(stale, 1);
  EXPECT_FALSE(other.consistent());
  stale.truncate(1);
  EXPECT_FALSE(stale.consistent());
  other.share_prefix(stale, 0);
  EXPECT_TRUE(other.consistent());
  stale.truncate(0);
  EXPECT_TRUE(stale.consistent());
}

TEST_F(KvCaches, RestoreReplacesEverything) {
  KvCache cache = filled(10);
  change_frequencies(cache, false);
  const auto page = pool_.allocate(0);
  cache.restore({{page}, 5, before_});
  EXPECT_EQ(cache.pages()[0], page->data());
  EXPECT_EQ(cache.length(), 5);
  EXPECT_TRUE(cache.consistent());
}

TEST_F(KvCaches, HaveRoomWhenEveryWritablePageIsUnshared) {
  KvCache cache = filled(10), other(pool_, before_);
  cache.reserve(kKvPage + 1);
  EXPECT_TRUE(cache.has_room(2 * kKvPage));
  EXPECT_FALSE(cache.has_room(2 * kKvPage + 1));
  other.share_prefix(cache, 10);
  EXPECT_FALSE(cache.has_room(11));
}

// Scaling changes the first RoPE only.
TEST(KvPools, ReRotateTheLayersOfTheFirstRope) {
  CpuBackend backend(1);
  for (const char* name : {"smollm3", "gemma3"}) {
    const ModelSpec spec = load_config(checkpoint_dir(name));
    const auto rotated =
        std::ranges::count_if(spec.layers, [](const LayerSpec& layer) { return layer.attention.rope == 0; });
    ASSERT_LT(rotated, std::ssize(spec.layers)) << name;
    EXPECT_EQ(std::ssize(KvPool(spec, backend, DType::kF16, DType::kF16).rotated_layers()), rotated) << name;
  }
}

TEST(KvPools, RefuseEightBitLatentValues) {
  CpuBackend backend(1);
  const ModelSpec spec = load_config(checkpoint_dir("deepseek_v2"));
  EXPECT_THROW(KvPool(spec, backend, DType::kF16, DType::kQ8), UsageError);
}

TEST_F(KvCaches, CountReRotationCosts) {
  KvCache cache = filled(10);
  change_frequencies(cache, true);
  EXPECT_EQ(cache.rerotations().count, 1);
  EXPECT_EQ(cache.rerotations().positions, 10);
  EXPECT_GT(cache.rerotations().seconds, 0);
  EXPECT_LT(cache.rerotations().seconds, 60);
}

}  // namespace
}  // namespace lariat::test
