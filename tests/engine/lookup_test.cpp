// Prompt lookup decoding is bitwise identical to plain decoding.
#include "engine/runtime/lookup.h"

#include "tests/engine/ahead_cases.h"

namespace lariat::test {
namespace {

TEST(Lookup, GuessesWhatFollowedTheLongestSuffixLatest) {
  using Tokens = std::vector<int32_t>;
  const auto guess = [](const Tokens& text, int64_t most) { return Lookup().guess(text, most, 0.0); };
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 6, 1, 2, 3}, 7), (Tokens{4, 5, 6, 1, 2, 3, 4})) << "the text is repeated";
  EXPECT_EQ(guess({1, 2, 3, 4, 9, 3, 5, 1, 2, 3}, 1), Tokens{4}) << "a longer suffix comes first";
  EXPECT_EQ(guess({2, 3, 4, 2, 3, 5, 2, 3}, 2), (Tokens{5, 2})) << "then the latest";
  EXPECT_EQ(guess({3, 4, 3, 5, 3}, 1), Tokens{5});
  EXPECT_EQ(guess({7, 7}, 3), (Tokens{7, 7, 7}));
  EXPECT_EQ(guess({1, 2, 3}, 7), Tokens());
  EXPECT_EQ(guess({1, 2, 1}, 0), Tokens());
  EXPECT_EQ(guess({}, 7), Tokens());
}

// Guesses stop when they are wrong more often than a row is worth, and start again without a trial.
TEST(Lookup, GuessesAsFarAsTheyWereRight) {
  Lookup lookup;
  std::vector<int32_t> text;
  const auto guesses = [&](int32_t next) {
    text.push_back(next);
    return std::ssize(lookup.guess(text, 7, 0.2));
  };
  int64_t wrong = 0, right = 0;
  for (int32_t i = 0; i < 100; ++i) {
    wrong = guesses(1);
    guesses(100 + i);
  }
  EXPECT_EQ(wrong, 0) << "1 is never followed by the same token";
  for (int32_t i = 0; i < 100; ++i) right = guesses(i % 10);
  EXPECT_EQ(right, 7);
}

// Rows lie within a page, at its end, and where threads share a sequence.
TEST(Lookup, RowsOfOneSequenceAreDecodeSteps) {
  CpuBackend cpu(2);
  const auto check = [&](const Model& model) {
    Session session(model, cpu, {});
    Sequence sequence = session.new_sequence();
    Sequence* const one = &sequence;
    const std::vector<int32_t> text = some_tokens(610, model.spec.vocab_size);
    for (const size_t begin : {1U, 250U, 600U}) {
      prefill(session, sequence,
              std::span(text).first(begin).subspan(static_cast<size_t>(sequence.length())));
      for (size_t n = 2; n <= 8; n += 3) {
        const auto tokens = std::span(text).subspan(begin, n);
        if (session.rope().depends_on_length() && !session.can_take_back({&one, 1}, 8)) continue;
        const std::vector<float> expected = decode_logits(session, sequence, tokens);
        sequence.truncate(static_cast<int64_t>(begin));
        const Prompt prompt{&sequence, tokens, 0, false, true};
        EXPECT_TRUE(to_host(cpu, session.forward({&prompt, 1})) == expected) << begin << ' ' << n;
        sequence.truncate(static_cast<int64_t>(begin));
      }
    }
  };
  for (const char* checkpoint : GoldenList::names()) {
    SCOPED_TRACE(checkpoint);
    check(open_f32(checkpoint_dir(checkpoint), cpu));
  }
  for (const DType weights : {DType::kBF16, DType::kQ8, DType::kQ4})
    check(load_model(demo_dir(), load_config(demo_dir()), cpu, weights));
}

std::vector<AheadCase> lookup_cases() {
  std::vector<AheadCase> cases = ahead_cases();
  for (AheadCase& c : cases) {
    c.repeats_after = 5;
    if (*c.scaling == 0) c.checkpoint = "gemma2";
  }
  for (const char* checkpoint : {"gemma2", "deepseek_v3", "mpt"})
    cases.push_back({.name = checkpoint,
                     .prompt = 300,
                     .max_new_tokens = 300,
                     .repeats_after = 20,
                     .checkpoint = checkpoint});
  const AheadCase more[] = {
      {.name = "LongDrawn",
       .sampler = {{.temperature = 0.05F}, 1.0F, 5},
       .prompt = 300,
       .checkpoint = "gemma2"},
      {.name = "LongPenalty", .sampler = {{}, 1.02F}, .prompt = 300, .checkpoint = "gemma2"},
      {.name = "LongScaled", .prompt = 50, .scaling = "dynamic-yarn"},
      {.name = "LongMethod", .prompt = 50, .method = "self-extend/group=auto/window=16"},
  };
  for (AheadCase c : more) {
    c.max_new_tokens = 300;
    c.repeats_after = 10;
    cases.push_back(c);
  }
  return cases;
}

struct LookupOf : testing::TestWithParam<AheadCase> {};

TEST_P(LookupOf, LeavesWhatPlainDecodingLeaves) {
  CpuBackend cpu(2);
  AheadBackend asynchronous(cpu);
  AheadCase c = GetParam();
  int64_t later = 0;
  const std::vector<int32_t> eos_ids = eos_ids_of(cpu, c, later);
  const AheadOutcome expected = run_ahead_case(cpu, c, eos_ids);
  c.lookup = 7;
  for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&asynchronous)}) {
    const AheadOutcome actual = run_ahead_case(*backend, c, eos_ids);
    expect_same_outcome(actual, expected);
    EXPECT_LE(actual.generation.accepted, actual.generation.proposed);
    EXPECT_TRUE(c.max_new_tokens < 300 || actual.generation.accepted > 50) << actual.generation.accepted;
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, LookupOf, testing::ValuesIn(lookup_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

// Some ends lie within a run of accepted guesses.
TEST(Lookup, EndsAtAnyToken) {
  CpuBackend cpu(1);
  int64_t accepted = 0;
  for (int n = 1; n <= 16; ++n) {
    SCOPED_TRACE(n);
    for (AheadCase c : {AheadCase{.max_new_tokens = n}, AheadCase{.max_ctx = 6 + n}, AheadCase{.stop_at = n},
                        AheadCase{.interrupt_at = n}, AheadCase{.throw_at = n}}) {
      c.repeats_after = 5;
      c.checkpoint = "gemma2";
      const AheadOutcome expected = run_ahead_case(cpu, c, {});
      c.lookup = 7;
      const AheadOutcome actual = run_ahead_case(cpu, c, {});
      expect_same_outcome(actual, expected);
      accepted += actual.generation.accepted;
    }
  }
  EXPECT_GT(accepted, 200);
}

TEST(Lookup, OfABatchIsThatOfSeparateRuns) {
  CpuBackend cpu(2);
  const Model model = load_model(demo_dir(), load_config(demo_dir()), cpu, DType::kBF16);
  Session session(model, cpu, {});
  std::vector<Generation> texts(6);
  const auto run = [&](size_t together, bool lookup) {
    Scheduler scheduler(session, static_cast<int64_t>(together));
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<int32_t> tokens = some_tokens(300, model.spec.vocab_size);
      for (size_t k = 0; k < tokens.size(); ++k) tokens[k] = tokens[k % (20 + i)];
      GenerateOptions generating{.max_new_tokens = 120, .lookup = lookup && i % 3 != 1 ? 7 : 0};
      if (i % 2 == 1) generating.sampler = {{.temperature = 0.5F}, 1.0F, i};
      scheduler.add({.tokens = std::move(tokens),
                     .options = generating,
                     .on_end = [&texts, i](Generation text) { texts[i] = std::move(text); }});
    }
    scheduler.run();
  };
  run(1, false);
  const std::vector<Generation> alone = texts;
  for (const size_t together : {2U, 5U}) {
    run(together, true);
    int64_t accepted = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(texts[i].tokens, alone[i].tokens) << i << " of " << together;
      accepted += texts[i].accepted;
    }
    EXPECT_EQ(texts[1].proposed + texts[4].proposed, 0);
    EXPECT_GT(accepted, 20) << together;
  }
}

// A quantized copy guesses for three texts at a time, with another scale.
TEST(Draft, LeavesWhatPlainDecodingLeaves) {
  CpuBackend cpu(2), cpu_of_draft(1);
  const Model model = load_model(demo_dir(), load_config(demo_dir()), cpu, DType::kF32),
              small = load_model(demo_dir(), load_config(demo_dir()), cpu_of_draft, DType::kQ4);
  Session session(model, cpu, {}), draft(small, cpu_of_draft, scaled_session(small, "dynamic-yarn", 4.0));
  const auto run = [&](Session* by) {
    std::vector<Generation> texts(3);
    Scheduler scheduler(session);
    for (size_t i = 0; i < texts.size(); ++i) {
      GenerateOptions generating{.max_new_tokens = 150, .lookup = by != nullptr ? 7 : 0, .draft = by};
      if (i == 1) generating.sampler = {{.temperature = 0.7F}, 1.0F, i};
      scheduler.add({.tokens = some_tokens(30 + i, model.spec.vocab_size),
                     .options = generating,
                     .on_end = [&texts, i](Generation text) { texts[i] = std::move(text); }});
    }
    scheduler.run();
    return texts;
  };
  const std::vector<Generation> expected = run(nullptr), actual = run(&draft);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].tokens, expected[i].tokens) << i;
    EXPECT_GT(actual[i].accepted, 30) << i;
    EXPECT_LE(actual[i].accepted, actual[i].proposed);
  }
}

// The first prompt has ids that the draft lacks; texts of the second leave its vocabulary sooner or later.
TEST(Draft, OfASmallerVocabularyEndsNoText) {
  CpuBackend cpu(1);
  ModelSpec spec = load_config(demo_dir());
  const Model model = random_model(spec, cpu, DType::kF32, 1);
  spec.vocab_size = model.spec.vocab_size / 2;
  const Model small = random_model(spec, cpu, DType::kF32, 1);
  Session session(model, cpu, {}), draft(small, cpu, {});
  for (const int64_t vocab : {model.spec.vocab_size, spec.vocab_size}) {
    const auto run = [&](Session* by) {
      Sequence sequence = session.new_sequence();
      return generate(session, sequence, some_tokens(30, vocab),
                      {.max_new_tokens = 40, .lookup = by != nullptr ? 7 : 0, .draft = by});
    };
    const Generation expected = run(nullptr), actual = run(&draft);
    EXPECT_EQ(actual.tokens, expected.tokens);
    EXPECT_TRUE(vocab == spec.vocab_size || actual.proposed == 0) << actual.proposed;
  }
}

}  // namespace
}  // namespace lariat::test
