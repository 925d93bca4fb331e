// Rotated keys under a changing scale vs UnrotatedBackend.
#include <fmt/format.h>

#include <cstdio>

#include "engine/rope_options.h"
#include "kernels/error.h"
#include "tests/engine/saved_context_util.h"
#include "tests/engine/unrotated_backend.h"

namespace lariat::test {
namespace {

constexpr int64_t kL0 = 64;  // of llama_gqa

Model model_with(const std::string& scaling, Backend& backend) {
  RopeOptions options;
  options.scaling = scaling;
  options.original_ctx = kL0;
  return open_f32(checkpoint_dir("llama_gqa"), backend, options);
}

std::vector<float> decode_all(const Model& model, Backend& backend, const SessionOptions& options,
                              size_t prefilled, size_t n) {
  Session session(model, backend, options);
  return all_logits(session, some_tokens(n, model.spec.vocab_size), prefilled);
}

class DynamicCache : public testing::TestWithParam<const char*> {};

TEST_P(DynamicCache, BitIdenticalToNoScalingUpToTheOriginalLength) {
  CpuBackend backend(1);
  const Model scaled = model_with(GetParam(), backend), plain = model_with("none", backend);
  for (const size_t prefilled : {size_t{10}, static_cast<size_t>(kL0)}) {
    EXPECT_EQ(decode_all(scaled, backend, f32_session(), prefilled, kL0),
              decode_all(plain, backend, f32_session(), prefilled, kL0));
  }
}

TEST_P(DynamicCache, DecodeTo8TimesTheOriginalLengthEqualsUnrotatedKeys) {
  CpuBackend backend(1);
  UnrotatedBackend unrotated(backend);
  const Model model = model_with(GetParam(), backend);
  for (const int steps : {4, 1, 8, 0}) {
    SessionOptions options = f32_session();
    options.rope_steps = steps;
    // Exact scales re-rotate 448 times with f32 rounding, 37 times as often as four steps per octave.
    const double tolerance = steps == 0 ? 2e-4 : 1e-4;
    EXPECT_LE(max_abs_difference(decode_all(model, backend, options, 40, 8 * kL0),
                                 decode_all(model, unrotated, options, 40, 8 * kL0)),
              tolerance)
        << steps << " steps per octave";
  }
}

TEST_P(DynamicCache, TheSplitOfALongPrefillDoesNotMatter) {
  CpuBackend backend(1);
  const Model model = model_with(GetParam(), backend);
  SessionOptions options = f32_session();
  options.prefill_chunk = 0;
  const auto expected = decode_all(model, backend, options, 300, 300);
  for (const int64_t chunk : {1, 7, 64}) {
    options.prefill_chunk = chunk;
    EXPECT_LE(max_abs_difference(decode_all(model, backend, options, 300, 300), expected), kSumOrderTolerance)
        << chunk;
  }
}

TEST_P(DynamicCache, CountsItsRerotationsAndShrinksBack) {
  CpuBackend backend(1);
  const Model model = model_with(GetParam(), backend);
  Session session(model, backend, f32_session());
  Sequence sequence = session.new_sequence();
  const auto tokens = some_tokens(8 * kL0, model.spec.vocab_size);
  prefill(session, sequence, std::span(tokens).first(40));
  for (size_t i = 40; i < tokens.size(); ++i) decode(session, sequence, tokens[i]);
  EXPECT_EQ(sequence.cache().rerotations().count, 12);  // three octaves of four steps
  EXPECT_GT(sequence.cache().rerotations().positions, 12 * kL0);

  // Below the original length frequencies are unscaled.
  sequence.truncate(20);
  decode(session, sequence, 1);
  EXPECT_EQ(sequence.cache().frequencies(), frequencies_for(session.options(), session.rope(), 1));
  EXPECT_EQ(sequence.cache().rerotations().count, 13);
}

INSTANTIATE_TEST_SUITE_P(Scalings, DynamicCache,
                         testing::Values("dynamic", "dynamic-yarn", "dynamic-yarn-radix"),
                         [](const auto& test) { return test_name(test.param); });

// Layers unlike Llama's. Keys with local RoPE or none are not re-rotated.
class FamilyCache : public testing::TestWithParam<const char*> {};

TEST_P(FamilyCache, DecodePastTheTrainedContextEqualsUnrotatedKeys) {
  CpuBackend backend(1);
  UnrotatedBackend unrotated(backend);
  for (const char* scaling : {"", "dynamic-yarn"}) {
    RopeOptions options;
    if (*scaling != '\0') options.scaling = scaling;
    const Model model = open_f32(checkpoint_dir(GetParam()), backend, options);
    const auto n = static_cast<size_t>(4 * model.spec.max_position_embeddings);
    const auto expected = decode_all(model, unrotated, f32_session(), 40, n);
    const double difference = max_abs_difference(decode_all(model, backend, f32_session(), 40, n), expected);
    EXPECT_LE(difference, 1e-4) << scaling;
    RecordProperty(*scaling == 0 ? "own" : "dynamic", fmt::format("{:.1e}", difference));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyCache, testing::ValuesIn(GoldenList::names(GoldenList::kCache)),
                         [](const auto& test) { return std::string(test.param); });

// Each sequence equals a session with its scaling.
TEST(OwnScaling, SequencesWithDifferentScalingsShareAStep) {
  CpuBackend backend(1);
  const Model model = model_with("none", backend);
  const auto tokens = some_tokens(3 * kL0, model.spec.vocab_size);
  const size_t vocab = static_cast<size_t>(model.spec.vocab_size), prefilled = 40;
  Session session(model, backend, f32_session());
  std::vector<Sequence> sequences;
  std::vector<std::vector<float>> expected;
  for (const char* scaling : {"dynamic-yarn", "none", "dynamic"}) {
    const Model scaled = model_with(scaling, backend);
    expected.push_back(decode_all(scaled, backend, f32_session(), prefilled, tokens.size()));
    sequences.push_back(session.new_sequence({.rope = scaled.spec.rope()}));
    prefill(session, sequences.back(), std::span(tokens).first(prefilled));
  }
  for (size_t i = prefilled; i < tokens.size(); ++i) {
    std::vector<Sequence*> all;
    for (Sequence& sequence : sequences) all.push_back(&sequence);
    const Matrix logits = decode(session, all, std::vector<int32_t>(all.size(), tokens[i]));
    for (size_t s = 0; s < all.size(); ++s) {
      const std::span<const float> row(logits.f32(static_cast<int64_t>(s)), vocab);
      ASSERT_LE(max_abs_difference(row, std::span(expected[s]).subspan(i * vocab, vocab)), 1e-5) << i;
    }
  }
  const Sequence fork = session.fork(sequences[0], kL0);
  EXPECT_EQ(fork.rope().type, RopeType::kDynamicYarn);
  EXPECT_GT(max_abs_difference(expected[0], expected[1]), 0.01);
}

// Dropped pages are not re-rotated, copied or counted.
TEST(Holes, DroppedPagesAreSkipped) {
  CpuBackend backend(1);
  const Model model = model_with("none", backend);
  KvPool pool(model.spec, backend, DType::kF32, DType::kF32);
  const RopeFrequencies before = rope_frequencies(model.spec.rope(), 0);
  RopeFrequencies after = before;
  for (double& f : after.inv_freq) f *= 0.5;
  const auto page_bytes = pool.geometry().page_bytes;
  const auto rotated = [&](bool holes) {
    KvCache cache(pool, before), other(pool, before);
    cache.reserve(4 * kKvPage);
    for (size_t p = 0; p < 4; ++p) {
      auto* const floats = static_cast<float*>(cache.pages()[p]);
      for (size_t i = 0; i < page_bytes / sizeof(float); ++i) floats[i] = static_cast<float>(i % 97 + p);
    }
    cache.advance(4 * kKvPage);
    if (holes) cache.drop(100, 3 * kKvPage + 50);  // whole pages
    other.share_prefix(cache, 4 * kKvPage);
    KvCache* const one = &cache;
    set_frequencies(pool, {&one, 1}, {&after, 1}, false, true);
    EXPECT_EQ(cache.bytes(), (holes ? 2 : 4) * page_bytes);
    EXPECT_EQ(pool.pages(), holes ? 4 : 8);  // the other cache keeps shared pages
    EXPECT_EQ(cache.pages()[1] == nullptr, holes);
    std::vector<float> kept;
    for (const size_t p : {size_t{0}, size_t{3}}) {
      const auto* const floats = static_cast<const float*>(cache.pages()[p]);
      kept.insert(kept.end(), floats, floats + page_bytes / sizeof(float));
    }
    return kept;
  };
  EXPECT_EQ(rotated(true), rotated(false));
}

// M-RoPE: three positions per token.
TEST(PlacedCache, DecodePastTheTrainedContextEqualsUnrotatedKeys) {
  CpuBackend backend(1);
  UnrotatedBackend unrotated(backend);
  for (const char* name : {"qwen2_vl", "qwen3_vl"}) {
    RopeOptions scaling;
    scaling.scaling = "dynamic-yarn";
    scaling.original_ctx = 32;
    const Model model = open_f32(checkpoint_dir(name), backend, scaling);
    const std::vector<int32_t> tokens = some_tokens(size_t{150}, model.spec.vocab_size);
    std::vector<int32_t> positions;  // words, an image of 6 x 8, words
    for (int32_t i = 0; i < 10; ++i) positions.insert(positions.end(), 3, i);
    for (int32_t i = 0; i < 48; ++i) positions.insert(positions.end(), {10, 10 + i / 8, 10 + i % 8});
    const auto run = [&](Backend& on) {
      Session session(model, on, f32_session());
      return all_logits(session, tokens, 60, positions);
    };
    EXPECT_LE(max_abs_difference(run(backend), run(unrotated)), 1e-4) << name;
  }
}

// Table of docs/context-extension.md: relative logit error, decoding from 40 tokens to 8 L0. 16-bit caches
// drift with the number of re-rotations; a stale cache is worst.
TEST(Drift, Table) {
  CpuBackend backend(1);
  UnrotatedBackend unrotated(backend);
  std::printf(
      "| scaling | K cache | 1 step | 4 steps | 8 steps | exact | stale, 4 steps "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const char* scaling : {"dynamic", "dynamic-yarn"}) {
    const Model model = model_with(scaling, backend);
    for (const DType k_dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      std::printf("| %s | %s |", scaling, std::string(name_of(k_dtype)).c_str());
      double errors[5];
      int column = 0;
      for (const int steps : {1, 4, 8, 0, -4}) {
        SessionOptions options = f32_session();
        options.rope_steps = std::abs(steps);
        const auto expected = decode_all(model, unrotated, options, 40, 8 * kL0);
        options.k_dtype = k_dtype;
        options.stale_cache = steps < 0;
        const auto got = decode_all(model, backend, options, 40, 8 * kL0);
        errors[column] = relative_error(got, expected);
        std::printf(" %.1e |", errors[column++]);
      }
      std::printf("\n");
      EXPECT_GT(errors[4], errors[1]) << "stale keys must be worse than re-rotated ones";
      if (k_dtype != DType::kF32) {
        EXPECT_GT(errors[3], errors[1]) << "a re-rotation at every token must cost precision";
      }
    }
  }
}

}  // namespace
}  // namespace lariat::test
