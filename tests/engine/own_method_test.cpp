#include <deque>

#include "engine/contexts/join_contexts.h"
#include "models/positions/parse_position_method.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

using OwnMethod = OnLlama;

// A shared step is bitwise identical to separate runs, with keys stored once or twice, while scales change.
TEST_F(OwnMethod, SequencesWithDifferentMethodsShareAStep) {
  const auto tokens = some_tokens(300, model_.spec.vocab_size);
  const auto vocab = static_cast<size_t>(model_.spec.vocab_size);
  constexpr size_t kPrefilled = 40;
  const auto run = [&](const char* own, const std::vector<const char*>& methods, const char* scaling) {
    SessionOptions options = f32_session();
    options.rope = resolve_rope(model_.spec.rope(), {.scaling = scaling});
    options.positions = parse_position_method(own, 64, 0);
    Session session(model_, backend_, options);
    std::deque<Sequence> sequences;
    std::vector<Sequence*> all;
    std::vector<Prompt> prompts;
    for (const char* method : methods) {
      all.push_back(
          &sequences.emplace_back(session.new_sequence({.method = parse_position_method(method, 64, 0)})));
      prompts.push_back({all.back(), std::span(tokens).first(kPrefilled), 0});
    }
    std::vector<std::vector<float>> logits(methods.size());
    const auto keep = [&](size_t i, const Matrix& rows) {
      for (int64_t r = 0; r < rows.rows; ++r)
        logits[i].insert(logits[i].end(), rows.f32(r), rows.f32(r) + vocab);
    };
    session.forward(prompts, [&](size_t i, int64_t, const Matrix& rows) { keep(i, rows); });
    for (size_t t = kPrefilled; t < tokens.size(); ++t) {
      const Matrix rows = decode(session, all, std::vector<int32_t>(all.size(), tokens[t]));
      for (size_t i = 0; i < all.size(); ++i) keep(i, rows.row_range(static_cast<int64_t>(i), 1));
    }
    const Sequence fork = session.fork(sequences[0], 9);
    EXPECT_EQ(fork.method().name, sequences[0].method().name);
    return logits;
  };
  const char *dca = "dca/chunk=24/window=10/temperature=length", *sinks = "sinks/sinks=3/window=37",
             *rerope = "rerope/window=20/k=auto";
  for (const char* scaling : {"none", "dynamic-yarn"}) {
    for (const auto& [own, methods] :
         {std::pair("none", std::vector{dca, "none", sinks, "none", "none", dca}),
          std::pair(rerope, std::vector{"none", rerope, dca, "self-extend/group=3/window=20", sinks,
                                        "jet-long/window=20", "jet-long-freq/window=20",
                                        "jet-long-freq/window=20/far=bands/factors=1,4"})}) {
      const auto together = run(own, methods, scaling);
      for (size_t i = 0; i < methods.size(); ++i) {
        EXPECT_EQ(together[i], run(methods[i], {methods[i]}, scaling)[0]) << scaling << " " << methods[i];
        EXPECT_EQ(together[i] == together[0], std::string(methods[i]) == methods[0]) << methods[i];
      }
    }
  }
}

std::vector<float> decode_all(Session& session, Sequence& sequence, std::span<const int32_t> rest) {
  std::vector<float> all;
  for (const int32_t token : rest) {
    const std::vector<float> logits = decode(session, sequence, token);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

struct OwnSettings : OnLlama {
  static constexpr size_t kPrefilled = 40, kTokens = 80;
  SequenceOptions own(const char* scaling, const char* method) const {
    return {resolve_rope(model_.spec.rope(), {.scaling = scaling, .factor = 2, .original_ctx = 32}),
            parse_position_method(method, 32, 0)};
  }
  SessionOptions session_with(const SequenceOptions& own) const {
    SessionOptions options = f32_session();
    options.rope = own.rope;
    options.positions = *own.method;
    return options;
  }
  const std::vector<int32_t> tokens_ = some_tokens(kTokens, model_.spec.vocab_size);
  std::span<const int32_t> head() const { return std::span(tokens_).first(kPrefilled); }
  std::span<const int32_t> rest() const { return std::span(tokens_).subspan(kPrefilled); }
};

// A sequence, its fork and its saved copy are bitwise identical to a run alone under the same settings.
TEST_F(OwnSettings, SequencesWithDifferentScalingsShareASession) {
  const SequenceOptions owns[] = {own("yarn", "dca/chunk=24/window=8"), own("dynamic", "none")};
  Session session(model_, backend_, f32_session());
  std::deque<Sequence> sequences;
  std::vector<Sequence*> all;
  std::vector<Prompt> prompts;
  for (const SequenceOptions& one : owns) {
    all.push_back(&sequences.emplace_back(session.new_sequence(one)));
    prompts.push_back({all.back(), head()});
  }
  session.forward(prompts);
  std::vector<Sequence> forks, loaded;
  for (size_t i = 0; i < 2; ++i) {
    forks.push_back(session.fork(sequences[i], kPrefilled));
    const auto file = dir_ / std::to_string(i);
    save_context(session, sequences[i], head(), file);
    loaded.push_back(load_context(session, file, owns[i]).sequence);
  }
  std::vector<std::vector<float>> together(2);
  const auto vocab = static_cast<size_t>(model_.spec.vocab_size);
  for (const int32_t token : rest()) {
    const Matrix rows = decode(session, all, std::vector(2, token));
    for (size_t i = 0; i < 2; ++i) {
      const float* const row = rows.f32(static_cast<int64_t>(i));
      together[i].insert(together[i].end(), row, row + vocab);
    }
  }
  EXPECT_NE(together[0], together[1]);
  for (size_t i = 0; i < 2; ++i) {
    Session alone(model_, backend_, session_with(owns[i]));
    Sequence sequence = alone.new_sequence();
    prefill(alone, sequence, head());
    EXPECT_EQ(together[i], decode_all(alone, sequence, rest())) << i;
    EXPECT_EQ(together[i], decode_all(session, forks[i], rest())) << i;
    EXPECT_EQ(together[i], decode_all(session, loaded[i], rest())) << i;
  }
  EXPECT_TRUE(names(error_of([&] { load_context(session, dir_ / "0", owns[1]); }), "dca"));
}

TEST_F(OwnSettings, ContextsAreJoinedUnderTheRequestedScaling) {
  const SequenceOptions dynamic = own("dynamic", "none");
  Session session(model_, backend_, f32_session()), alone(model_, backend_, session_with(dynamic));
  const auto file = dir_ / "part";
  Sequence part = session.new_sequence();
  prefill(session, part, head());
  save_context(session, part, head(), file);
  const std::vector files{file, file};
  SavedContext joined = join_contexts(session, files, {}, {}, {}, dynamic),
               expected = join_contexts(alone, files, {}, {});
  EXPECT_EQ(joined.sequence.cache().frequencies(), expected.sequence.cache().frequencies());
  EXPECT_EQ(decode_all(session, joined.sequence, rest()), decode_all(alone, expected.sequence, rest()));
}

}  // namespace
}  // namespace lariat::test
