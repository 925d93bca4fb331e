// Loaded contexts continue bitwise identically, or under another scaling (docs/saved-contexts.md).
#include "engine/contexts/saved_context.h"

#include <fmt/format.h>

#include <cstdio>

#include "kernels/reference/reference_backend.h"
#include "tests/engine/saved_context_util.h"
#include "tests/engine/unrotated_backend.h"

namespace lariat::test {
namespace {

constexpr size_t kSaved = 400, kMore = 40;

struct Away {
  const char* checkpoint;
  const char* scaling;  // "": the model's own
  DType keys, values;
};

class ContextAway : public FolderTest, public testing::WithParamInterface<Away> {};

SessionOptions options_of(const Away& away, const Model& model) {
  SessionOptions options = scaled_session(model, away.scaling);
  options.k_dtype = away.keys;
  options.v_dtype = away.values;
  return options;
}

TEST_P(ContextAway, GoesOnAsIfItHadNotBeen) {
  CpuBackend backend(1);
  const auto dir = checkpoint_dir(GetParam().checkpoint);
  const Model model = load_model(dir, load_config(dir), backend, std::nullopt);
  const SessionOptions options = options_of(GetParam(), model);
  const auto tokens = some_tokens(kSaved + kMore, model.spec.vocab_size);
  const auto head = std::span(tokens).first(kSaved), tail = std::span(tokens).subspan(kSaved);
  Session session(model, backend, options);
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, head);
  save_context(session, sequence, head, dir_ / "context");
  const std::string saved = slurp(dir_ / "context");
  const auto expected = decode_logits(session, sequence, tail);

  Session later(model, backend, options);
  {
    SavedContext context = load_context(later, dir_ / "context");
    EXPECT_EQ(context.tokens, std::vector<int32_t>(head.begin(), head.end()));
    EXPECT_EQ(context.sequence.length(), static_cast<int64_t>(kSaved));
    EXPECT_EQ(later.pool().pages(), 2);
    EXPECT_EQ(decode_logits(later, context.sequence, tail), expected);
    EXPECT_EQ(context.sequence.cache().frequencies(), sequence.cache().frequencies());
  }
  EXPECT_EQ(later.pool().pages(), 0);
  EXPECT_EQ(slurp(dir_ / "context"), saved) << "the file was changed";
}

// MLA; a scale step after 400; other RoPE or a window; ALiBi; 16-bit caches.
INSTANTIATE_TEST_SUITE_P(Cases, ContextAway,
                         testing::Values(Away{"llama_gqa", "", DType::kF32, DType::kF32},
                                         Away{"llama_gqa", "", DType::kF16, DType::kF32},
                                         Away{"llama_gqa", "", DType::kF16, DType::kQ8},
                                         Away{"llama_gqa", "dynamic-yarn", DType::kF16, DType::kQ8},
                                         Away{"llama_bf16", "", DType::kF16, DType::kBF16},
                                         Away{"llama_bf16", "dynamic-yarn", DType::kF16, DType::kBF16},
                                         Away{"llama_gqa_interleaved", "dynamic", DType::kF32, DType::kF32},
                                         Away{"deepseek_v2", "", DType::kF32, DType::kF32},
                                         Away{"deepseek_v2", "dynamic-yarn", DType::kF16, DType::kF16},
                                         Away{"gemma3", "dynamic-yarn", DType::kF16, DType::kF32},
                                         Away{"bloom", "", DType::kF16, DType::kF32}),
                         [](const auto& test) {
                           return test_name(fmt::format("{}_{}_{}_{}", test.param.checkpoint,
                                                        test.param.scaling, name_of(test.param.keys),
                                                        name_of(test.param.values)));
                         });

class Context : public OnLlama {
 protected:
  void save(Session& session, const std::string& name, std::span<const int32_t> tokens) {
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, tokens);
    save_context(session, sequence, tokens, dir_ / name);
  }
  SavedContext load(Session& session, const std::string& name) { return load_context(session, dir_ / name); }
};

TEST_F(Context, OnTheReferenceBackend) {
  ReferenceBackend reference;
  const Model model = open_f32(model_dir_, reference);
  const auto tokens = some_tokens(30, model.spec.vocab_size);
  Session session(model, reference, scaled_session(model, "dynamic-yarn"));
  Sequence sequence = session.new_sequence();
  const auto head = std::span(tokens).first(20), tail = std::span(tokens).subspan(20);
  prefill(session, sequence, head);
  save_context(session, sequence, head, dir_ / "context");
  SavedContext context = load(session, "context");
  EXPECT_EQ(decode_logits(session, context.sequence, tail), decode_logits(session, sequence, tail));
}

TEST_F(Context, WithPlacedTokens) {
  const auto dir = checkpoint_dir("qwen2_vl");
  const Model model = open_f32(dir, backend_);
  Session session(model, backend_, scaled_session(model, "dynamic-yarn"));
  const auto tokens = some_tokens(150, model.spec.vocab_size);
  std::vector<int32_t> positions;  // words, an image of 6 x 8, words
  for (int32_t i = 0; i < 10; ++i) positions.insert(positions.end(), 3, i);
  for (int32_t i = 0; i < 48; ++i) positions.insert(positions.end(), {10, 10 + i / 8, 10 + i % 8});
  for (const size_t n : {size_t{30}, size_t{90}}) {
    const auto head = std::span(tokens).first(n), tail = std::span(tokens).subspan(n);
    Sequence sequence = session.new_sequence();
    sequence.set_mrope_positions(positions);
    prefill(session, sequence, head);
    save_context(session, sequence, head, dir_ / "context");
    SavedContext context = load_context(session, dir_ / "context");
    const auto expected = decode_logits(session, sequence, tail);
    Sequence fork = session.fork(context.sequence, context.sequence.length());
    EXPECT_EQ(decode_logits(session, context.sequence, tail), expected) << n;
    EXPECT_EQ(decode_logits(session, fork, tail), expected) << "of a fork, " << n;
  }
}

// The last token is decoded again; positions stay.
TEST_F(Context, DecodesPlacedTokensAgain) {
  const Model model = open_f32(checkpoint_dir("qwen2_vl"), backend_);
  Session session(model, backend_, f32_session());
  const auto tokens = some_tokens(40, model.spec.vocab_size);
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < 36; ++i) positions.insert(positions.end(), {0, i / 6, i % 6});
  for (const size_t n : {size_t{20}, size_t{36}, size_t{40}}) {
    Sequence sequence = session.new_sequence(), again = session.new_sequence();
    sequence.set_mrope_positions(positions);
    const auto expected = decode_logits(session, sequence, tokens);
    again.set_mrope_positions(positions);
    decode_logits(session, again, std::span(tokens).first(n));
    again.rewind(static_cast<int64_t>(n) - 1);
    const auto tail = std::span(tokens).subspan(n - 1);
    const auto got = decode_logits(session, again, tail);
    EXPECT_EQ(got, std::vector<float>(expected.end() - std::ssize(got), expected.end())) << n;
  }
}

// The saved sequence shares pages; the loaded one is forked, truncated and saved.
TEST_F(Context, OfForks) {
  const auto tokens = some_tokens(330, model_.spec.vocab_size);
  const auto head = std::span(tokens).first(300), tail = std::span(tokens).subspan(300);
  Session session(model_, backend_, scaled_session(model_, "dynamic-yarn"));
  Sequence first = session.new_sequence();
  prefill(session, first, tokens);
  Sequence fork = session.fork(first, 300);
  save_context(session, fork, head, dir_ / "context");
  const auto expected = decode_logits(session, fork, tail);
  SavedContext context = load(session, "context");
  Sequence of_loaded = session.fork(context.sequence, 300);
  EXPECT_EQ(decode_logits(session, of_loaded, tail), expected);
  EXPECT_EQ(decode_logits(session, context.sequence, tail), expected);
  context.sequence.truncate(300);
  save_context(session, context.sequence, head, dir_ / "again");
  SavedContext again = load(session, "again");
  EXPECT_EQ(again.tokens, context.tokens);
  // Truncated past a scale step: two more re-rotations.
  EXPECT_LE(max_abs_difference(decode_logits(session, again.sequence, tail), expected), 1e-4);
}

TEST_F(Context, CanOverwriteItsFile) {
  const auto tokens = some_tokens(310, model_.spec.vocab_size);
  const auto head = std::span(tokens).first(300), tail = std::span(tokens).subspan(300);
  Session session(model_, backend_, f32_session());
  save(session, "context", head);
  SavedContext context = load(session, "context");
  const auto expected = decode_logits(session, context.sequence, tail);
  save_context(session, context.sequence, tokens, dir_ / "context");
  context.sequence.truncate(300);
  EXPECT_EQ(decode_logits(session, context.sequence, tail), expected);
  EXPECT_EQ(load(session, "context").tokens, tokens);
}

TEST_F(Context, OfNoTokens) {
  Session session(model_, backend_, f32_session());
  save_context(session, session.new_sequence(), {}, dir_ / "context");
  SavedContext context = load(session, "context");
  EXPECT_EQ(context.sequence.length(), 0);
  Sequence fresh = session.new_sequence();
  const std::vector<int32_t> tokens = {1, 2, 3};
  EXPECT_EQ(decode_logits(session, context.sequence, tokens), decode_logits(session, fresh, tokens));
}

// Loading, and decoding within the last page, allocates nothing.
TEST_F(Context, IsMappedAndNotCopied) {
  ForwardingBackend counting(backend_);
  Session session(model_, counting, f32_session());
  const auto tokens = some_tokens(300, model_.spec.vocab_size);
  save(session, "context", tokens);
  const int64_t before = counting.allocations();
  SavedContext context = load(session, "context");
  EXPECT_EQ(counting.allocations(), before);
  const KvCache& cache = context.sequence.cache();
  EXPECT_EQ(cache.bytes(), 2 * session.pool().geometry().page_bytes);
  const std::vector<void*> pages(cache.pages(), cache.pages() + 2);
  const int64_t in_use = session.pool().pages();
  decode(session, context.sequence, tokens.front());
  EXPECT_EQ(std::vector<void*>(cache.pages(), cache.pages() + 2), pages);
  EXPECT_EQ(session.pool().pages(), in_use);
}

// The cache is full before the last token.
TEST_F(Context, WithAnUnreadLastToken) {
  const auto tokens = some_tokens(kKvPage + 1, model_.spec.vocab_size);
  Session session(model_, backend_, f32_session());
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, std::span(tokens).first(kKvPage));
  save_context(session, sequence, tokens, dir_ / "context");
  SavedContext context = load(session, "context");
  EXPECT_EQ(context.tokens, tokens);
  EXPECT_EQ(context.sequence.length(), kKvPage);
  save_context(session, context.sequence, context.tokens, dir_ / "again");
  EXPECT_EQ(slurp(dir_ / "again"), slurp(dir_ / "context"));
  const auto last = std::span(tokens).last(1);
  EXPECT_EQ(decode_logits(session, context.sequence, last), decode_logits(session, sequence, last));
}

TEST_F(Context, ExpectsTheSavedLength) {
  const auto tokens = some_tokens(100, model_.spec.vocab_size);
  Session session(model_, backend_, scaled_session(model_, "dynamic"));
  Sequence sequence = session.new_sequence();
  sequence.expect(250);
  prefill(session, sequence, tokens);
  save_context(session, sequence, tokens, dir_ / "context");
  SavedContext context = load(session, "context");
  EXPECT_EQ(context.sequence.expected(), 250);
  EXPECT_EQ(decode_logits(session, context.sequence, tokens), decode_logits(session, sequence, tokens));
}

TEST_F(Context, AStaleCacheKeepsItsKeysAndIsNotSaved) {
  const auto tokens = some_tokens(100, model_.spec.vocab_size);
  Session yarn(model_, backend_, scaled_session(model_, "yarn", 4));
  save(yarn, "context", tokens);
  SessionOptions options = scaled_session(model_, "none");
  options.stale_cache = true;
  Session stale(model_, backend_, options);
  SavedContext context = load(stale, "context");
  EXPECT_EQ(context.sequence.cache().rerotations().count, 0);
  EXPECT_EQ(context.sequence.cache().frequencies(), frequencies_for(stale.options(), stale.rope(), 100));
  EXPECT_THROW(save_context(stale, context.sequence, tokens, dir_ / "stale"), Error);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "stale"));
}

// Table of docs/saved-contexts.md: 400 tokens under one scaling, 40 more under another. Error of the logits
// vs unrotated keys (equal up to rounding) and vs a new prefill under the new scaling (different after the
// first layer, whose inputs are embeddings).
TEST_F(Context, TableOfScalings) {
  UnrotatedBackend unrotated(backend_);
  const auto tokens = some_tokens(kSaved + kMore, model_.spec.vocab_size);
  const auto head = std::span(tokens).first(kSaved), tail = std::span(tokens).subspan(kSaved);
  std::printf(
      "| read under | continued under | to unrotated keys, f32 | f16 | bf16 | to the context read anew, f32 "
      "|\n"
      "|---|---|---|---|---|---|\n");
  for (const Change& change : kScalingChanges) {
    const auto continued = [&](Backend& backend, DType keys) {
      SessionOptions from = scaled_session(model_, change.from, change.from_factor);
      SessionOptions to = scaled_session(model_, change.to, change.to_factor);
      from.k_dtype = to.k_dtype = keys;
      Session before(model_, backend, from), after(model_, backend, to);
      save(before, "context", head);
      SavedContext context = load(after, "context");
      return decode_logits(after, context.sequence, tail);
    };
    Session after(model_, backend_, scaled_session(model_, change.to, change.to_factor));
    Sequence fresh = after.new_sequence();
    prefill(after, fresh, head);
    const auto anew = decode_logits(after, fresh, tail);
    const auto exact = continued(unrotated, DType::kF32), got = continued(backend_, DType::kF32);
    const auto words = [](const char* name, double factor) {
      return factor > 0 ? fmt::format("{} {}", name, factor) : std::string(name);
    };
    const double f32 = relative_error(got, exact);
    const double f16 = relative_error(continued(backend_, DType::kF16), exact);
    const double bf16 = relative_error(continued(backend_, DType::kBF16), exact);
    const double to_anew = relative_error(got, anew);
    std::printf("| %s | %s | %.1e | %.1e | %.1e | %.1e |\n", words(change.from, change.from_factor).c_str(),
                words(change.to, change.to_factor).c_str(), f32, f16, bf16, to_anew);
    EXPECT_LE(f32, 2e-6);   // as in docs/context-extension.md
    EXPECT_LE(f16, 2e-3);   // three roundings of every key to 2^-11
    EXPECT_LE(bf16, 2e-2);  // likewise to 2^-8
    EXPECT_GT(to_anew, 100 * f32) << "deeper layers depend on the old frequencies";
  }
}

}  // namespace
}  // namespace lariat::test
