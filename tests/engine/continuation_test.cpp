#include <utility>

#include "tests/engine/losses_by_hand.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

// Sum of losses from index `first` on, decoded one at a time.
double nll_by_hand(Session& session, Sequence& sequence, std::span<const int32_t> tokens, size_t first) {
  double nll = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const auto logits = decode(session, sequence, tokens[i]);
    if (i + 1 >= first) nll += loss_by_hand(logits, tokens[i + 1]);
  }
  return nll;
}

class Continuation : public OnLlama {
 protected:
  Continuation() {
    options_.bos = {1};
    options_.buckets = 7;
  }
  PerplexityResult measure(Sequence& sequence, std::vector<int32_t>& tokens, std::span<const int32_t> text) {
    TokenSource source(std::vector<int32_t>(text.begin(), text.end()));
    return measure_continuation(session_, sequence, tokens, source, options_);
  }
  Session session_{model_, backend_, f32_session()};
  PerplexityOptions options_;
};

TEST_F(Continuation, ScoresEveryTokenAfterTheBos) {
  const auto text = some_tokens(80, model_.spec.vocab_size);
  Sequence sequence = session_.new_sequence();
  std::vector<int32_t> tokens;
  const PerplexityResult result = measure(sequence, tokens, text);
  EXPECT_EQ(result.tokens, 80);
  EXPECT_EQ(result.ctx, 81);
  EXPECT_EQ(sequence.length(), 81);
  EXPECT_EQ(tokens.front(), 1);
  EXPECT_EQ(tokens.size(), 81U);
  Sequence by_hand = session_.new_sequence();
  EXPECT_NEAR(result.nll, nll_by_hand(session_, by_hand, tokens, 1), 80 * kSumOrderTolerance);
  ASSERT_EQ(result.positions.size(), 7U);
  double of_buckets = 0;
  int64_t from = 1;
  for (const auto& bucket : result.positions) {
    EXPECT_EQ(bucket.from, std::exchange(from, bucket.to));
    EXPECT_EQ(bucket.tokens, bucket.to - bucket.from);
    of_buckets += bucket.nll;
  }
  EXPECT_EQ(from, 81);
  EXPECT_NEAR(of_buckets, result.nll, 1e-9);
}

TEST_F(Continuation, TwoPartsEqualTheWhole) {
  const auto text = some_tokens(400, model_.spec.vocab_size);
  Sequence whole = session_.new_sequence(), first = session_.new_sequence();
  std::vector<int32_t> all, some;
  const PerplexityResult at_once = measure(whole, all, text);
  const PerplexityResult head = measure(first, some, std::span(text).first(250));
  save_context(session_, first, some, dir_ / "context");
  SavedContext context = load_context(session_, dir_ / "context");
  const PerplexityResult tail = measure(context.sequence, context.tokens, std::span(text).subspan(250));
  EXPECT_EQ(head.tokens + tail.tokens, at_once.tokens);
  EXPECT_EQ(tail.tokens, 150);
  EXPECT_EQ(tail.positions.front().from, 251);
  EXPECT_NEAR(head.nll + tail.nll, at_once.nll, 400 * kSumOrderTolerance);
  EXPECT_EQ(context.tokens, all);
  EXPECT_EQ(context.sequence.length(), whole.length());
}

// The context's last token is decoded again.
TEST_F(Continuation, AfterPlacedTokensEqualsTheWhole) {
  const Model model = open_f32(checkpoint_dir("qwen2_vl"), backend_);
  Session session(model, backend_, f32_session());
  const auto all = some_tokens(60, model.spec.vocab_size);
  const auto head = std::span(all).first(30), tail = std::span(all).subspan(30);
  std::vector<int32_t> positions;  // an image of 5 x 8, ten of its tokens in the tail
  for (int32_t i = 0; i < 40; ++i) positions.insert(positions.end(), {0, i / 8, i % 8});
  Sequence sequence = session.new_sequence(), by_hand = session.new_sequence();
  for (Sequence* of : {&sequence, &by_hand}) of->set_mrope_positions(positions);
  prefill(session, sequence, head);
  std::vector<int32_t> tokens(head.begin(), head.end());
  TokenSource source(std::vector<int32_t>(tail.begin(), tail.end()));
  const PerplexityResult result = measure_continuation(session, sequence, tokens, source, options_);
  EXPECT_EQ(result.tokens, 30);
  EXPECT_NEAR(result.nll, nll_by_hand(session, by_hand, all, 30), 30 * kSumOrderTolerance);
}

TEST_F(Continuation, SeveralBosTokensAreNotScored) {
  const auto text = some_tokens(20, model_.spec.vocab_size);
  options_.bos = {1, 5};
  Sequence sequence = session_.new_sequence(), by_hand = session_.new_sequence();
  std::vector<int32_t> tokens;
  const PerplexityResult result = measure(sequence, tokens, text);
  EXPECT_EQ(result.tokens, 20);
  EXPECT_NEAR(result.nll, nll_by_hand(session_, by_hand, tokens, 2), 20 * kSumOrderTolerance);
}

TEST_F(Continuation, WithoutABosTheFirstTokenIsNotScored) {
  options_.bos.clear();
  const auto text = some_tokens(9, model_.spec.vocab_size);
  Sequence sequence = session_.new_sequence();
  std::vector<int32_t> tokens;
  EXPECT_EQ(measure(sequence, tokens, text).tokens, 8);
  EXPECT_EQ(sequence.length(), 9);
  Sequence other = session_.new_sequence();
  std::vector<int32_t> one, none;
  EXPECT_THROW(measure(other, one, std::span(text).first(1)), Error);
  EXPECT_THROW(measure(other, none, {}), Error);
  EXPECT_THROW(measure(sequence, tokens, {}), Error);
}

TEST_F(Continuation, InterruptedKeepsWhatWasScored) {
  const std::atomic<bool> interrupted = true;
  options_.interrupted = &interrupted;
  Sequence sequence = session_.new_sequence();
  std::vector<int32_t> tokens;
  const PerplexityResult result = measure(sequence, tokens, some_tokens(20, model_.spec.vocab_size));
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.tokens, 0);
}

}  // namespace
}  // namespace lariat::test
