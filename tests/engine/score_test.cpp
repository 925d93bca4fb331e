#include "engine/eval/measure/score.h"

#include <numeric>

#include "engine/interrupt.h"
#include "engine/lariat.h"
#include "models/io/json_file.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

constexpr double kLogprobTolerance = 1e-4;  // float32 transformers rounds

TEST(GoldenScore, EqualsTransformersAndTheHarness) {
  const Engine engine = Engine::open(demo_dir(), {.device = "cpu", .dtype = DType::kF32});
  SessionOptions options = engine.session_options;
  options.k_dtype = options.v_dtype = DType::kF32;
  Session session(engine.model, *engine.backend, options);
  const SavedContext nothing{session.new_sequence(), {}};
  Scorer scorer(session, nothing, 0);
  std::vector<ScoredText> texts;
  const nlohmann::json golden = read_json(golden_dir() / "score.json");
  for (const auto& c : golden.at("cases")) {
    for (const std::string continuation : c.at("continuations"))
      texts.push_back(
          scored_text({}, *engine.tokenizer, c.at("prompt").get<std::string>(), continuation, true));
  }
  scorer.score(texts);
  size_t i = 0;
  for (const auto& c : golden.at("cases")) {
    for (const auto& expected : c.at("scores")) {
      SCOPED_TRACE(c.at("prompt").dump() + " " + expected.dump());
      const std::vector<int32_t> tokens(texts[i].tokens.begin() + texts[i].from, texts[i].tokens.end());
      EXPECT_EQ(tokens, expected.at("tokens").get<std::vector<int32_t>>());
      const std::vector<TokenScore>& scores = texts[i].scores;
      ASSERT_EQ(scores.size(), expected.at("logprobs").size());
      for (size_t k = 0; k < scores.size(); ++k)
        EXPECT_NEAR(scores[k].logprob, expected.at("logprobs")[k].get<double>(), kLogprobTolerance);
      EXPECT_EQ(std::ranges::all_of(scores, &TokenScore::likeliest), expected.at("greedy").get<bool>());
      ++i;
    }
  }
  EXPECT_LT(scorer.read(), scorer.tokens());
}

class Score : public testing::Test {
 protected:
  Score() : backend_(2), model_(open_f32(checkpoint_dir("llama_gqa"), backend_)) {}

  // `shared` tokens of one text, `own` tokens of another; scores the last `scored`.
  ScoredText text(size_t shared, size_t own, uint64_t which, size_t scored, uint64_t beginning = 7) const {
    std::vector<int32_t> tokens = some_tokens(shared, model_.spec.vocab_size, beginning);
    const auto rest = some_tokens(own, model_.spec.vocab_size, 100 + which);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return {tokens, std::ssize(tokens) - static_cast<int64_t>(scored), 0, {}};
  }
  std::vector<double> by_hand(const SessionOptions& options, const ScoredText& text) {
    Session session(model_, backend_, options);
    const std::span<const int32_t> tokens(text.tokens);
    const auto logits = all_logits(session, tokens.first(tokens.size() - 1), tokens.size() - 1);
    const auto vocab = static_cast<size_t>(model_.spec.vocab_size);
    std::vector<double> logprobs;
    for (auto at = static_cast<size_t>(text.from); at < tokens.size(); ++at) {
      const auto row = std::span(logits).subspan((at - 1) * vocab, vocab);
      double sum = 0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit));
      logprobs.push_back(row[static_cast<size_t>(tokens[at])] - std::log(sum));
    }
    return logprobs;
  }
  void expect_by_hand(const SessionOptions& options, Scorer& scorer, std::vector<ScoredText> texts) {
    scorer.score(texts);
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto expected = by_hand(options, texts[i]);
      ASSERT_EQ(texts[i].scores.size(), expected.size());
      for (size_t k = 0; k < expected.size(); ++k)
        EXPECT_NEAR(texts[i].scores[k].logprob, expected[k], 2 * kSumOrderTolerance)
            << "text " << i << ", " << k;
    }
  }

  CpuBackend backend_;
  const Model model_;
};

// Several prefix lengths, repeated texts, a text that is another's prefix. A prefix shared across a scale
// change, at 64 or 77 tokens, would be far off.
TEST_F(Score, SharingPrefixesChangesNothing) {
  for (const char* scaling : {"none", "dynamic-yarn", "dynamic"}) {
    SCOPED_TRACE(scaling);
    const SessionOptions options = scaled_session(model_, scaling, *scaling == 'd' ? 4.0 : 0);
    Session session(model_, backend_, options);
    const SavedContext nothing{session.new_sequence(), {}};
    Scorer scorer(session, nothing, 0);
    std::vector<ScoredText> texts = {text(60, 3, 1, 2),  text(60, 3, 1, 2),  text(60, 9, 1, 8),
                                     text(60, 30, 2, 5), text(40, 2, 3, 2),  text(60, 3, 4, 62),
                                     text(0, 2, 5, 1),   text(0, 20, 6, 19), text(60, 28, 2, 28)};
    expect_by_hand(options, scorer, texts);
    expect_by_hand(options, scorer, {text(60, 4, 9, 3), text(60, 30, 2, 5), text(40, 30, 3, 30)});
  }
}

TEST_F(Score, APrefixIsPrefilledOnce) {
  Session session(model_, backend_, f32_session());
  const SavedContext nothing{session.new_sequence(), {}};
  Scorer scorer(session, nothing, 0);
  int64_t tokens = 0;
  // Four of each text's 5 tokens are prefilled.
  for (uint64_t call = 0; call < 5; ++call) {
    std::vector<ScoredText> texts;
    for (uint64_t i = 0; i < 100; ++i) texts.push_back(text(300, 5, 1000 * call + i, 5));
    scorer.score(texts);
    tokens += 100 * 304;
  }
  EXPECT_EQ(scorer.tokens(), tokens);
  // Later calls and portions decode the last shared token again.
  EXPECT_GE(scorer.read(), 300 + 500 * 3);
  EXPECT_LE(scorer.read(), 300 + 500 * 4 + 10);
  const int64_t before = scorer.read();
  std::vector<ScoredText> same(50, text(20, 3, 1, 2, 99));
  scorer.score(same);
  EXPECT_EQ(scorer.read(), before + 22);
}

TEST_F(Score, KeepsTheLastText) {
  Session session(model_, backend_, f32_session());
  const SavedContext nothing{session.new_sequence(), {}};
  Scorer scorer(session, nothing, 0);
  const auto score_one = [&](const ScoredText& one) {
    std::vector<ScoredText> texts = {one};
    scorer.score(texts);
  };
  for (uint64_t i = 0; i < 12; ++i) score_one(text(200, 3, i, 2));
  EXPECT_LE(scorer.read(), 202 + 11 * 2);
  for (uint64_t i = 0; i < 200; ++i) {
    score_one(text(200, 3, i, 2, i));
    EXPECT_LE(session.pool().pages(), 2);
  }
}

// Sets a flag at the start of forward pass `at`.
struct Interrupting : ForwardingBackend {
  Interrupting(Backend& inner, int step) : ForwardingBackend(inner), at(step), interrupted(step == 0) {}
  void embed(std::span<const int32_t> tokens, const HostWeight& table, float scale,
             const Matrix& out) override {
    interrupted = interrupted || ++steps == at;
    ForwardingBackend::embed(tokens, table, scale, out);
  }
  const int at;
  int steps = 0;
  std::atomic<bool> interrupted;
};

// Later texts get the same scores.
TEST_F(Score, AnInterruptionLeavesNothingHalfDone) {
  SessionOptions options = scaled_session(model_, "dynamic-yarn", 4.0);
  options.prefill_chunk = 16;
  for (const int at : {0, 1, 2, 5}) {  // 0: before the first pass
    SCOPED_TRACE(at);
    Interrupting backend(backend_, at);
    Session session(model_, backend, options);
    const SavedContext nothing{session.new_sequence(), {}};
    Scorer scorer(session, nothing, 0, &backend.interrupted);
    std::vector<ScoredText> texts = {text(60, 30, 2, 5), text(60, 9, 1, 8), text(40, 2, 3, 2)};
    EXPECT_THROW(scorer.score(texts), Interrupted);
    EXPECT_EQ(backend.steps, at) << "a step after the interruption";
    EXPECT_EQ(session.pool().pages(), 0);
    backend.interrupted = false;
    expect_by_hand(options, scorer, texts);
  }
}

TEST_F(Score, AfterASavedContext) {
  for (const char* scaling : {"none", "dynamic-yarn"}) {
    const SessionOptions options = scaled_session(model_, scaling);
    Session session(model_, backend_, options);
    SavedContext context{session.new_sequence(), some_tokens(50, model_.spec.vocab_size)};
    prefill(session, context.sequence, context.tokens);
    Scorer scorer(session, context, 0);
    // A text without prompt is predicted by the context's last token. No text reaches a scale step.
    const std::vector<ScoredText> texts = {text(50, 10, 1, 3), text(50, 4, 2, 4), text(50, 10, 3, 9)};
    expect_by_hand(options, scorer, texts);
    EXPECT_LE(scorer.read(), 9 + 4 + 9);
    EXPECT_EQ(context.sequence.length(), 50);
  }
}

TEST_F(Score, NamesTheArgmax) {
  Session session(model_, backend_, f32_session());
  const SavedContext nothing{session.new_sequence(), {}};
  Scorer three(session, nothing, 3), all(session, nothing, 1 << 20);
  std::vector<ScoredText> texts = {text(9, 4, 1, 4)};
  three.score(texts);
  const std::vector<TokenScore> some = texts[0].scores;
  all.score(texts);
  const std::vector<TokenScore> every = texts[0].scores;
  for (size_t k = 0; k < some.size(); ++k) {
    ASSERT_EQ(some[k].top.size(), 3U);
    ASSERT_EQ(every[k].top.size(), static_cast<size_t>(model_.spec.vocab_size));
    EXPECT_EQ(some[k].likeliest,
              some[k].top[0].token == texts[0].tokens[static_cast<size_t>(texts[0].from) + k]);
    double sum = 0;
    for (size_t n = 0; n < every[k].top.size(); ++n) {
      sum += std::exp(every[k].top[n].logprob);
      if (n > 0) {
        EXPECT_LE(every[k].top[n].logprob, every[k].top[n - 1].logprob);
      }
      if (n < 3) {
        EXPECT_EQ(every[k].top[n].token, some[k].top[n].token);
      }
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(ScoredText, RefusesTextsWithoutOwnTokens) {
  const Tokenizer tokenizer = Tokenizer::load(demo_dir());
  EXPECT_NE(error_of([&] { scored_text({}, tokenizer, "Once", "", true); }), "");
  EXPECT_NE(error_of([&] { scored_text({}, tokenizer, "Once ", "", true); }), "");
  const ScoredText bare = scored_text({}, tokenizer, "Once", " upon", false);
  const ScoredText whole = scored_text({}, tokenizer, "<s>Once", " upon", true);
  EXPECT_EQ(bare.from, 1);
  EXPECT_EQ(whole.from, 2) << "one BOS";
  const std::vector<int32_t> before = {1, 498};
  const ScoredText behind = scored_text(before, tokenizer, "Once", " upon", true);
  EXPECT_EQ(behind.from, 3);
  EXPECT_EQ(scored_text(before, tokenizer, "", "Once", true).from, 2);
}

}  // namespace
}  // namespace lariat::test
