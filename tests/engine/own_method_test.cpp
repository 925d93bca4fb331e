// Position methods that belong to a sequence and not to the session.
#include <deque>

#include "engine/position_method.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

using OwnMethod = OnLlama;

// In one step, of prompts or of tokens, each gets what it gets alone, bit for bit, where keys are stored once
// and where they are stored twice, and while scales move.
TEST_F(OwnMethod, SequencesOfSeveralShareAStep) {
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
      all.push_back(&sequences.emplace_back(
          session.new_sequence(session.rope(), parse_position_method(method, 64, 0))));
      prompts.push_back({all.back(), std::span(tokens).first(kPrefilled)});
    }
    std::vector<std::vector<float>> logits(methods.size());
    const auto keep = [&](size_t i, const Matrix& rows) {
      for (int64_t r = 0; r < rows.rows; ++r)
        logits[i].insert(logits[i].end(), rows.f32(r), rows.f32(r) + vocab);
    };
    session.prefill(prompts, [&](size_t i, int64_t, const Matrix& rows) { keep(i, rows); });
    for (size_t t = kPrefilled; t < tokens.size(); ++t) {
      const Matrix rows = session.decode(all, std::vector<int32_t>(all.size(), tokens[t]));
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
          std::pair(rerope, std::vector{"none", rerope, dca, "self-extend/group=3/window=20", sinks})}) {
      const auto together = run(own, methods, scaling);
      for (size_t i = 0; i < methods.size(); ++i) {
        EXPECT_EQ(together[i], run(methods[i], {methods[i]}, scaling)[0]) << scaling << " " << methods[i];
        EXPECT_EQ(together[i] == together[0], std::string(methods[i]) == methods[0]) << methods[i];
      }
    }
  }
}

}  // namespace
}  // namespace lariat::test
