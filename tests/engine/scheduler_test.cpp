#include "engine/runtime/scheduler.h"

#include <array>
#include <cmath>
#include <deque>
#include <iostream>
#include <map>
#include <random>

#include "tests/engine/batch_cases.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

// Fails at random: allocations, passes, and logits of the texts whose greedy sampling has this top_k.
class FailingBackend : public ForwardingBackend {
 public:
  static constexpr int32_t kNotANumber = 4711;
  explicit FailingBackend(Backend& inner) : ForwardingBackend(inner) {}

  Buffer allocate(size_t bytes) override {
    if (strikes(0.15)) throw Error("out of memory");
    return ForwardingBackend::allocate(bytes);
  }
  void linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) override {
    if (strikes(0.0005)) throw std::bad_alloc();
    ForwardingBackend::linear(x, weight, epilogue, out);
  }
  void draw(const Matrix& logits, std::span<const Sampling> how, std::span<const double> uniforms) override {
    for (size_t t = 0; t < how.size(); ++t)
      if (how[t].top_k == kNotANumber && strikes(0.2))
        std::fill_n(logits.f32(static_cast<int64_t>(t)), logits.cols, NAN);
    ForwardingBackend::draw(logits, how, uniforms);
  }

  double scale = 0;  // of all chances; 0: nothing fails

 private:
  bool strikes(double chance) { return std::uniform_real_distribution<>(0, 1)(random_) < chance * scale; }
  std::mt19937_64 random_{7};
};

class SchedulerTest : public testing::Test {
 protected:
  static constexpr int64_t kPrompts = 16;

  std::vector<int32_t> prompt(size_t i) const {
    const std::array<int64_t, 8> lengths{1, 5, 64, 65, 248, 250, 257, 300};
    std::vector<int32_t> tokens = some_tokens(static_cast<size_t>(lengths[i % 8]), model.spec.vocab_size);
    for (int32_t& token : tokens)
      token = static_cast<int32_t>((token + 7 * (i / 8)) % static_cast<size_t>(model.spec.vocab_size));
    return tokens;
  }
  Request request(size_t i, int64_t most = 12) const {
    Request made{.tokens = prompt(i % kPrompts), .options = {.max_new_tokens = most}};
    if (i % 2 == 1) made.options.sampler = {{0.9F}, 1.0F, i % kPrompts};
    return made;
  }
  std::vector<std::vector<int32_t>> alone(Session& session, int64_t most = 12) const {
    std::vector<std::vector<int32_t>> tokens(kPrompts);
    for (size_t i = 0; i < tokens.size(); ++i) {
      Scheduler scheduler(session);
      Request one = request(i, most);
      one.on_end = [&tokens, i](const Generation& result) { tokens[i] = result.tokens; };
      scheduler.add(std::move(one));
      scheduler.run();
    }
    return tokens;
  }

  CpuBackend cpu{2};
  FailingBackend backend{cpu};
  Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
};

TEST_F(SchedulerTest, OneRequestsErrorIsItsOwn) {
  SessionOptions options = scaled_session(model, "dynamic-yarn");
  options.prefill_chunk = 64;
  Session session(model, backend, options);
  const auto expected = alone(session);
  ASSERT_EQ(session.pool().pages(), 0);

  constexpr size_t kRequests = 200;
  std::mt19937_64 random(1);
  const auto one_of = [&](uint64_t n) { return random() % n; };
  std::deque<std::atomic<bool>> interrupted(kRequests);
  std::map<std::string, int> ends;
  std::vector<int> ended(kRequests);
  int64_t restarts = 0;
  Scheduler scheduler(session, 8);
  const auto make = [&](size_t i) {
    Request made = request(i);
    const size_t fault = one_of(10), at = one_of(12);
    made.options.interrupted = &interrupted[i];
    if (fault == 0 && i % 2 == 0) made.options.sampler.top_k = FailingBackend::kNotANumber;
    made.on_token = [&, i, fault, at, n = size_t{0}](int32_t) mutable {
      if (n++ != at) return true;
      if (fault == 1) throw std::runtime_error("callback");
      if (fault == 2) interrupted[i] = true;
      if (fault == 3) scheduler.cancel(static_cast<int64_t>(1 + one_of(kRequests)));
      return true;
    };
    if (fault == 4) made.on_logits = [](int64_t, const Matrix&) { throw std::runtime_error("logits"); };
    interrupted[i] = fault == 5;
    made.on_end = [&, i, fault](const Generation& result) {
      ++ended[i];
      restarts += result.restarts;
      ++ends[result.error ? "error" : name_of(result.stop_reason)];
      const auto& whole = expected[i % kPrompts];
      const bool survives = !result.error && result.stop_reason == StopReason::kLength;
      EXPECT_LE(result.tokens.size(), whole.size());
      EXPECT_TRUE(std::equal(result.tokens.begin(), result.tokens.end(), whole.begin())) << i;
      if (survives) {
        EXPECT_EQ(result.tokens, whole) << i;
      }
      if (fault == 6) throw std::runtime_error("end");
    };
    return made;
  };
  backend.scale = 1;
  for (size_t i = 0; i < kRequests; ++i) {
    scheduler.add(make(i));
    for (uint64_t steps = one_of(6); steps > 0; --steps) EXPECT_NO_THROW(scheduler.step());
    if (one_of(20) == 0) scheduler.cancel(static_cast<int64_t>(1 + one_of(kRequests)));
  }
  while (scheduler.step()) {
  }
  EXPECT_EQ(ended, std::vector<int>(kRequests, 1));
  EXPECT_EQ(session.pool().pages(), 0);
  EXPECT_GT(ends["length"], 80);
  EXPECT_GT(ends["error"], 20);
  EXPECT_GT(ends["interrupted"], 10);
  EXPECT_GT(restarts, 0);
  std::cout << "length " << ends["length"] << ", error " << ends["error"] << ", interrupted "
            << ends["interrupted"] << ", restarts " << restarts << '\n';

  backend.scale = 0;
  EXPECT_EQ(alone(session), expected) << "the session continues";
}

// Up to 15 texts of up to 2 pages each, in 6 pages.
TEST_F(SchedulerTest, WithFewPagesTheYoungestRestarts) {
  for (const char* scaling : {"yarn", "dynamic-yarn"}) {
    SessionOptions options = scaled_session(model, scaling, 4);
    options.prefill_chunk = 64;
    Session ample(model, backend, options);
    const auto expected = alone(ample, 270);
    options.cache_memory = 6 * ample.pool().geometry().page_bytes;
    Session session(model, backend, options);
    Scheduler scheduler(session);
    int64_t restarts = 0, most_pages = 0;
    std::vector<std::vector<int32_t>> tokens(kPrompts);
    for (size_t i = 0; i < tokens.size(); ++i) {
      Request one = request(i, 270);
      one.on_end = [&, i](const Generation& result) {
        tokens[i] = result.tokens;
        restarts += result.restarts;
        EXPECT_EQ(result.error, nullptr);
      };
      scheduler.add(std::move(one));
    }
    while (scheduler.step()) most_pages = std::max(most_pages, session.pool().pages());
    EXPECT_EQ(tokens, expected);
    EXPECT_EQ(most_pages, 6);
    EXPECT_EQ(session.pool().pages(), 0);
    EXPECT_GT(restarts, 0);
    std::cout << scaling << ": " << restarts << " restarts\n";
  }
}

TEST_F(SchedulerTest, ATextThatNeverFitsEndsAlone) {
  SessionOptions options = f32_session();
  KvPool pool(model.spec, backend, DType::kF32, DType::kF32);
  options.cache_memory = pool.geometry().page_bytes;
  Session session(model, backend, options);
  Scheduler scheduler(session);
  std::map<size_t, Generation> results;
  for (const size_t i : {2, 7, 6, 3}) {  // 64, 300, 257, 65 tokens; a page holds 256
    Request one = request(i);
    one.on_end = [&results, i](Generation result) { results[i] = std::move(result); };
    scheduler.add(std::move(one));
  }
  while (scheduler.step()) {
  }
  for (const auto& [i, result] : results) EXPECT_EQ(result.error != nullptr, i > 5) << i;
  EXPECT_EQ(results[3].tokens.size(), 12U);
  EXPECT_EQ(results[2].tokens.size(), 12U);
}

// Later prompts find pages of running and of ended texts, if their RoPE frequencies are the same, and the
// pages were not re-rotated since. Each prompt then has the tokens of a run alone.
TEST_F(SchedulerTest, APromptFindsTheBeginningOfEarlierOnes) {
  for (const char* scaling : {"yarn", "dynamic-yarn"}) {
    SessionOptions options = scaled_session(model, scaling, 64);
    options.prefill_chunk = 64;
    const std::vector<int32_t> all = some_tokens(1200, model.spec.vocab_size);
    const auto run = [&](Session& session, std::initializer_list<size_t> lengths, int64_t most) {
      Scheduler scheduler(session);
      std::vector<std::vector<int32_t>> tokens;
      int64_t prefilled = 0;
      for (const size_t n : lengths) {
        Request one{.tokens = {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)},
                    .options = {.max_new_tokens = most}};
        one.on_end = [&](const Generation& result) { tokens.push_back(result.tokens); };
        scheduler.add(std::move(one));
        scheduler.run([&](int64_t done) { prefilled = done; });
      }
      return std::pair(tokens, prefilled);
    };
    const auto alone = [&](size_t n, int64_t most) {
      Session fresh(model, backend, options);
      return run(fresh, {n}, most).first.front();
    };
    const size_t page = Session(model, backend, options).pool().geometry().page_bytes;
    options.prefix_memory = 3 * page;
    Session session(model, backend, options);
    const auto [tokens, prefilled] = run(session, {600, 601, 512, 1100}, 3);
    const bool dynamic = scaling[0] == 'd';  // one step holds 600 and 601 tokens
    EXPECT_EQ(prefilled, 600 + 89 + (dynamic ? 512 : 256) + (dynamic ? 1100 : 588)) << scaling;
    for (size_t i = 0; const size_t n : {600, 601, 512, 1100}) EXPECT_EQ(tokens[i++], alone(n, 3)) << n;
    EXPECT_EQ(session.pool().pages(), 3) << "of the least recent, one gave way";

    // A text whose keys were re-rotated leaves none of them to others.
    options.prefix_memory = 64 * page;
    Session growing(model, backend, options);
    const auto [grown, anew] = run(growing, {300, 300, 1100}, 260);
    EXPECT_EQ(grown, (std::vector{alone(300, 260), alone(300, 260), alone(1100, 260)}));
    EXPECT_EQ(anew, dynamic ? 300 + 300 + 1100 : 300 + 44 + 844);
  }
}

// Kept pages give way to running texts.
TEST_F(SchedulerTest, KeptPrefixesWaitForNobody) {
  SessionOptions options = f32_session();
  options.cache_memory = options.prefix_memory =
      3 * Session(model, backend, options).pool().geometry().page_bytes;
  Session session(model, backend, options);
  for (const size_t seed : {1, 2, 3}) {
    std::vector<int32_t> tokens = some_tokens(700, model.spec.vocab_size);
    tokens.front() = static_cast<int32_t>(seed);
    Scheduler scheduler(session);
    int ended = 0;
    scheduler.add(
        {.tokens = tokens, .options = {.max_new_tokens = 4}, .on_end = [&](const Generation& result) {
           EXPECT_EQ(result.restarts, 0);
           ++ended;
         }});
    scheduler.run();
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(session.pool().pages(), 2) << "the third is not full";
    EXPECT_EQ(session.free_pages(), 3);
  }
}

// Several prompts share a pass in order of arrival, and a running text waits for one chunk at most.
TEST_F(SchedulerTest, TokensComeBetweenChunks) {
  SessionOptions options = f32_session();
  options.prefill_chunk = 64;
  Session session(model, backend, options);
  Scheduler scheduler(session);
  std::vector<size_t> order;
  for (const size_t i : {0, 7, 6, 5}) {  // 1, 300, 257, 250 tokens
    Request one = request(i, 16);
    one.on_token = [&order, i](int32_t) { return order.push_back(i), true; };
    scheduler.add(std::move(one));
  }
  int64_t before = 0;
  scheduler.step([&](int64_t done) { before = done; });
  EXPECT_EQ(before, 64);
  EXPECT_EQ(order, std::vector<size_t>{0}) << "the first token, before the second prompt ends";
  for (int step = 1; step < 5; ++step) {
    scheduler.step([&](int64_t done) { EXPECT_LE(done - std::exchange(before, done), 64); });
    EXPECT_EQ(std::ranges::count(order, 0U), step + 1);
  }
  EXPECT_EQ(std::ranges::count(order, 7U), 1);
  scheduler.run();
  EXPECT_EQ(order.size(), 4 * 16U);
}

TEST_F(SchedulerTest, RunThrowsTheFirstErrorAndEndsTheOthers) {
  Session session(model, backend, f32_session());
  Scheduler scheduler(session);
  std::vector<StopReason> ended;
  for (size_t i = 0; i < 3; ++i) {
    Request one = request(i);
    one.on_end = [&](const Generation& result) { ended.push_back(result.stop_reason); };
    if (i == 1) one.on_token = [](int32_t) -> bool { throw std::runtime_error("callback"); };
    scheduler.add(std::move(one));
  }
  EXPECT_THROW(scheduler.run(), std::runtime_error);
  EXPECT_EQ(ended.size(), 3U);
  EXPECT_FALSE(scheduler.step());
  EXPECT_EQ(session.pool().pages(), 0);
}

}  // namespace
}  // namespace lariat::test
