// What joining contexts costs, against the same reckoned by hand.
#include "engine/eval/join_cost.h"

#include <algorithm>
#include <array>

#include "engine/generate.h"
#include "engine/join_contexts.h"
#include "engine/lariat.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

class JoinCostTest : public FolderTest {
 protected:
  JoinCostTest() {
    options_.parts = {1, 3};
    options_.part_tokens = 100;
    options_.next_tokens = 40;
    options_.joins = {"rotate", "recompute=1000", "anew"};
    options_.bos = text_bos(*engine_.tokenizer);
    options_.find = false;
  }
  SessionOptions scaled(const std::string& scaling) const { return scaled_session(engine_.model, scaling); }
  std::vector<JoinCost> measure(const SessionOptions& options) {
    Session session(engine_.model, *engine_.backend, options);
    std::vector<JoinCost> costs;
    complete_ = measure_join_cost(session, codec_, text_, options_, costs);
    EXPECT_EQ(session.pool().pages(), 0);
    return costs;
  }

  const Engine engine_ = Engine::open(demo_dir(), {.device = "cpu", .threads = 1, .dtype = DType::kF32});
  const TextCodec codec_ = prompt_codec(*engine_.tokenizer);
  const TokenSource text_ = read_tokens(demo_dir() / "heldout.txt", *engine_.tokenizer, 340);
  JoinCostOptions options_;
  bool complete_ = false;
};

std::vector<double> losses_of(const JoinCost& cost) {
  std::vector<double> losses;
  for (const TokenDivergence& token : cost.next.tokens) losses.push_back(token.loss);
  return losses;
}

double largest_kl(const JoinCost& cost) {
  for (const TokenDivergence& token : cost.next.tokens) EXPECT_GE(token.kl, 0);  // and a number
  return std::ranges::max_element(cost.next.tokens, {}, &TokenDivergence::kl)->kl;
}

TEST_F(JoinCostTest, IsNothingAnewAndOfOnePart) {
  for (const char* scaling : {"none", "dynamic-yarn"}) {
    const auto costs = measure(scaled(scaling));
    EXPECT_TRUE(complete_);
    ASSERT_EQ(costs.size(), 8U);
    for (size_t i = 0; i < costs.size(); ++i) {
      const JoinCost& cost = costs[i];
      EXPECT_EQ(cost.parts, i < 4 ? 1 : 3);
      EXPECT_EQ(cost.join, (std::array{"anew", "rotate", "recompute=1000", "last part"}[i % 4]));
      EXPECT_EQ(cost.next.tokens.size(), 39U);
      EXPECT_EQ(cost.seconds.size(), 1U);
      EXPECT_EQ(cost.median_seconds(), cost.seconds[0]);
      EXPECT_EQ(cost.next.tokens.back().position, 39);
      const double kl = largest_kl(cost);
      EXPECT_EQ(kl, i <= 4 ? 0 : kl) << scaling << " " << i;
    }
    EXPECT_GT(largest_kl(costs[5]), 1e-3) << scaling;
    // All of every part but the first is read again; under a dynamic scale that one was read on its own.
    EXPECT_LT(largest_kl(costs[6]), std::string(scaling) == "none" ? 1e-6 : largest_kl(costs[5]));
    EXPECT_GT(largest_kl(costs[7]), 1e-3) << scaling;
    EXPECT_EQ(losses_of(costs[7]), losses_of(costs[3])) << "the same tokens behind the same part";
  }
}

// The parts saved and joined as a user does it, and what follows read at once.
TEST_F(JoinCostTest, IsThatOfSavedContexts) {
  options_.joins = {"rotate/bos=keep"};
  const SessionOptions scaling = scaled("dynamic-yarn");
  const auto costs = measure(scaling);
  ASSERT_EQ(costs.size(), 6U);
  Session session(engine_.model, *engine_.backend, scaling);
  std::vector<std::filesystem::path> files;
  for (int64_t i = 0; i < 3; ++i) {
    const auto tokens = text_.behind_bos(options_.bos, 100 * i, 100 * (i + 1));
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, tokens);
    save_context(session, sequence, tokens, files.emplace_back(dir_ / std::to_string(i)));
  }
  for (const size_t row : {3U, 4U}) {
    SavedContext joined = join_contexts(session, files, parse_join(costs[row].join), options_.bos);
    EXPECT_EQ(joined.sequence.length(), row == 3 ? 301 : 303);
    std::vector<double> losses;
    forward(session, {&joined.sequence, text_.range(300, 340), 0},
            [&](size_t, int64_t first, const Matrix& logits) {
              for (int64_t i = 0; i < logits.rows && first + i < 39; ++i) {
                const std::span<const float> line(logits.f32(i), static_cast<size_t>(logits.cols));
                losses.push_back(diverge(line, line, text_.range(301 + first + i, 302 + first + i)[0]).loss);
              }
            });
    const auto found = losses_of(costs[row]);
    ASSERT_EQ(found.size(), losses.size());
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(found[i], losses[i], 1e-4) << row << " " << i;
  }
}

TEST_F(JoinCostTest, FindsThePasskeysThatTheJoinedPartsHold) {
  options_.parts = {2};
  options_.joins = {"rotate"};
  options_.find = true;
  options_.passkeys.depths = {0, 0.6};
  options_.passkeys.trials = 2;
  options_.passkeys.eos_ids = engine_.eos_ids();
  const auto costs = measure(f32_session());
  Session session(engine_.model, *engine_.backend, f32_session());
  ASSERT_EQ(costs.size(), 3U);
  for (size_t i = 0; i < 4; ++i) {
    const Needles needles =
        needles_of(options_.passkeys, 200, i < 2 ? 0.25 : 0.75, static_cast<int64_t>(i % 2));
    const auto question = codec_.encode("\n" + needles.question + " " + needles.answer);
    const auto prompt = PasskeyPrompts(codec_).build(200 + std::ssize(question), needles);
    Sequence sequence = session.new_sequence();
    GenerateOptions greedy;
    greedy.max_new_tokens = options_.passkeys.max_new_tokens;
    greedy.eos_ids = options_.passkeys.eos_ids;
    const auto answer = generate(session, sequence, prompt, greedy, [](int32_t) { return true; });
    for (const JoinCost& cost : costs) {
      ASSERT_EQ(cost.passkeys.trials.size(), 4U);
      EXPECT_EQ(cost.passkeys.trials[i].expected, needles.expected);
    }
    EXPECT_EQ(costs[0].passkeys.trials[i].answer, codec_.decode(answer.tokens)) << i;
    EXPECT_TRUE(costs[0].passkeys.trials[i].correct()) << i;
    EXPECT_EQ(costs[2].passkeys.trials[i].correct(), i >= 2) << "it stands in the last part, or it does not";
  }
  EXPECT_GT(costs[1].passkeys.correct(), 0);
  EXPECT_EQ(costs[1].seconds.size(), 5U);
}

TEST_F(JoinCostTest, Refuses) {
  const auto refused = [&](const SessionOptions& session) {
    std::vector<JoinCost> costs;
    return error_of([&] { costs = measure(session); });
  };
  SessionOptions session = f32_session();
  session.max_ctx = 340;  // and a BOS
  EXPECT_TRUE(names(refused(session), "341 | 340"));
  session = f32_session();
  session.stale_cache = true;
  EXPECT_TRUE(names(refused(session), "`rope_cache` stale"));
  options_.next_tokens = 41;
  EXPECT_TRUE(names(refused(f32_session()), "340 | 3 | 100 | 41 | 341"));
  options_.next_tokens = 40;
  options_.find = true;
  options_.part_tokens = 20;
  EXPECT_NE(refused(f32_session()), "");
  options_.joins = {"best"};
  EXPECT_TRUE(names(refused(f32_session()), "best | rotate"));
}

TEST_F(JoinCostTest, EndsWhenItIsInterrupted) {
  const std::atomic<bool> now = true;
  options_.interrupted = &now;
  EXPECT_TRUE(measure(f32_session()).empty());
  EXPECT_FALSE(complete_);
}

}  // namespace
}  // namespace lariat::test
