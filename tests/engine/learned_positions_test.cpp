// GPT-2: a row of a table per position, and none beyond (models/families/gpt2.cpp).
#include <functional>

#include "engine/contexts/join_contexts.h"
#include "engine/contexts/memory_check.h"
#include "engine/lariat.h"
#include "models/positions/parse_position_method.h"
#include "tests/engine/generations.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

constexpr int64_t kLearned = 640;  // n_positions of gpt2_scaled

class LearnedPositions : public FolderTest {
 protected:
  std::filesystem::path saved(std::span<const int32_t> tokens, const std::string& name) {
    Sequence sequence = session_.new_sequence();
    prefill(session_, sequence, tokens);
    save_context(session_, sequence, tokens, dir_ / name);
    return dir_ / name;
  }

  CpuBackend backend_{1};
  const std::filesystem::path model_dir_ = checkpoint_dir("gpt2_scaled");
  const Model model_ = open_f32(model_dir_, backend_);
  Session session_{model_, backend_, f32_session()};
  const std::vector<int32_t> text_ = some_tokens(kLearned + 1, model_.spec.vocab_size);
};

TEST_F(LearnedPositions, EndWithALineThatSaysSo) {
  const std::vector<int32_t>& text = text_;
  const auto all = std::span(text);
  const std::vector files = {saved(all.first(9), "a"), saved(all.first(9), "b")};
  const PositionMethod method = parse_position_method("rerope", kLearned, 0);
  RopeScaling scaled = model_.spec.rope();
  scaled.type = RopeType::kDynamicYarn;
  const auto open = [&](const OpenOptions& options) { Engine::open(model_dir_, options); };
  const auto with = [&](const auto& change) {
    SessionOptions options = f32_session();
    change(options);
    Session(model_, backend_, options);
  };
  const std::pair<std::function<void()>, std::string> table[] = {
      {[&] { all_logits(session_, text, text.size()); }, "641 | 640"},
      {[&] { all_logits(session_, text, text.size() - 1); }, "641 | 640"},
      {[&] {
         Sequence sequence = session_.new_sequence();
         generate(session_, sequence, text, {});
       },
       "641 | 640"},
      {[&] { check_memory(session_, kLearned + 1, 1, "window"); }, "window | 641 | 640"},
      {[&] { with([](SessionOptions& options) { options.max_ctx = kLearned + 1; }); }, "`max_ctx` 641 | 640"},
      {[&] { with([&](SessionOptions& options) { options.rope = scaled; }); }, "GPT2LMHeadModel | learned"},
      {[&] { with([&](SessionOptions& options) { options.positions = method; }); }, "learned"},
      {[&] { session_.new_sequence({.method = method}); }, "learned"},
      {[&] { session_.new_sequence({.rope = scaled}); }, "learned"},
      {[&] { join_contexts(session_, files, {}, {}); }, "learned | anew"},
      {[&] { join_contexts(session_, files, {.recompute = 2}, {}); }, "learned | anew"},
      {[&] { open({.reads = Reads::kTokens, .device = "cpu", .max_ctx = kLearned + 1}); },
       "`max_ctx` 641 | 640"},
      {[&] { open({.reads = Reads::kTokens, .device = "cpu", .rope = {.scaling = "dynamic"}}); }, "learned"},
      {[&] { open({.reads = Reads::kTokens, .device = "cpu", .position_method = "sinks"}); }, "learned"},
  };
  for (const auto& [action, words] : table) EXPECT_TRUE(names(error_of(action), words));
}

// The last row is used, and a text ends there.
TEST_F(LearnedPositions, AreUsedToTheLast) {
  Sequence sequence = session_.new_sequence();
  const auto prompt = std::span(text_).first(kLearned - 3);
  const Generation written = generate(session_, sequence, prompt, {.max_new_tokens = 9});
  EXPECT_EQ(written.tokens.size(), 4U) << "the last token needs no position";
  EXPECT_EQ(written.stop_reason, StopReason::kLength);
  const Engine engine = Engine::open(model_dir_, {.reads = Reads::kTokens, .device = "cpu"});
  EXPECT_EQ(engine.session_options.max_ctx, kLearned);
  EXPECT_NE(why_too_long(session_, kLearned + 1, 1), "");
  EXPECT_EQ(why_too_long(session_, kLearned, 1), "");
}

// Sequences of a batch, truncated, forked, saved and joined texts continue at their own positions.
TEST_F(LearnedPositions, FollowTheirTokens) {
  const auto all = std::span(text_).first(300);
  const std::vector<float> expected = all_logits(session_, all, 300);
  const auto expect_row = [&](size_t row, const std::vector<float>& logits) {
    EXPECT_LE(max_abs_difference(logits, std::span(expected).subspan(row * logits.size(), logits.size())),
              kSumOrderTolerance)
        << row;
  };
  Sequence one = session_.new_sequence(), two = session_.new_sequence();
  prefill(session_, one, all.first(270));
  prefill(session_, two, all.first(20));
  Sequence* const both[] = {&one, &two};
  const std::vector<float> rows = to_host(backend_, decode(session_, both, std::vector{all[270], all[20]}));
  expect_row(270, {rows.begin(), rows.begin() + std::ssize(rows) / 2});
  expect_row(20, {rows.begin() + std::ssize(rows) / 2, rows.end()});
  one.truncate(100);
  expect_row(100, decode(session_, one, all[100]));
  Sequence copy = session_.fork(one, 50);
  expect_row(50, decode(session_, copy, all[50]));
  const std::vector files = {saved(all.first(30), "a"), saved(all.subspan(30, 40), "b")};
  SavedContext loaded = load_context(session_, files[0]);
  expect_row(30, decode(session_, loaded.sequence, all[30]));
  SavedContext joined = join_contexts(session_, files, {.anew = true}, {});
  expect_row(70, decode(session_, joined.sequence, all[70]));
}

}  // namespace
}  // namespace lariat::test
