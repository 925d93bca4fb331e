#pragma once
#include <atomic>
#include <deque>
#include <optional>

#include "models/positions/parse_position_method.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/generations.h"
#include "tests/engine/saved_context_util.h"

// Decoding with steps queued ahead of their tokens equals a plain loop.
namespace lariat::test {

// Can pretend to be asynchronous; counts the steps that ran ahead.
class AheadBackend : public ForwardingBackend {
 public:
  explicit AheadBackend(Backend& inner, bool asynchronous = true)
      : ForwardingBackend(inner), asynchronous_(asynchronous) {}
  int64_t steps_ahead() const { return steps_ahead_; }

  Traits traits() const override {
    Traits traits = inner_.traits();
    traits.asynchronous = asynchronous_;
    return traits;
  }
  void draw(const Matrix& logits, std::span<const Sampling> how, std::span<const double> uniforms) override {
    ForwardingBackend::draw(logits, how, uniforms);
    ops_when_drawn_ = ops();
  }
  void read_drawn(std::span<int32_t> ids) override {
    steps_ahead_ += ops() > ops_when_drawn_ ? 1 : 0;
    inner_.read_drawn(ids);
  }

 private:
  bool asynchronous_;
  int64_t steps_ahead_ = 0, ops_when_drawn_ = 0;
};

struct AheadCase {
  const char* name = "";
  SamplerOptions sampler{};
  int64_t prompt = 6, max_new_tokens = 20, max_ctx = 0;
  // Token count at which eos comes (or the next unseen token), the caller stops, interrupts or throws; -1:
  // never.
  int eos_at = -1, stop_at = -1, interrupt_at = -1, throw_at = -1;
  const char* scaling = "";  // applies from 64 tokens on
  int rope_steps = 4;
  // n - 2 of n tokens (prefill gives the first, the last is never fed), one more on an early end.
  int64_t steps_ahead = 18;
  int64_t lookup = 0, repeats_after = 0;  // the prompt's period; 0: none
  const char *checkpoint = "llama_gqa", *method = "";
};

inline void PrintTo(const AheadCase& c, std::ostream* out) { *out << c.name; }

inline SamplerOptions drawing(float penalty = 1.0F) {
  return {{.temperature = 0.9F, .top_k = 40, .top_p = 0.95F}, penalty, 11};
}

inline std::vector<AheadCase> ahead_cases() {
  return {
      {.name = "Greedy"},
      {.name = "Drawn", .sampler = drawing()},
      {.name = "OneToken", .max_new_tokens = 1, .steps_ahead = 0},
      {.name = "TwoTokens", .max_new_tokens = 2, .steps_ahead = 0},
      {.name = "Penalty", .sampler = drawing(1.2F)},
      {.name = "Eos", .sampler = drawing(), .eos_at = 9, .steps_ahead = 9},
      {.name = "Stop", .sampler = drawing(), .stop_at = 5, .steps_ahead = 4},
      {.name = "StopAtOnce", .stop_at = 1, .steps_ahead = 0},
      {.name = "Interrupted", .sampler = drawing(), .interrupt_at = 7, .steps_ahead = 6},
      {.name = "Thrown", .sampler = drawing(), .throw_at = 6, .steps_ahead = 5},
      {.name = "FullContext", .max_ctx = 13, .steps_ahead = 6},
      {.name = "NewPage", .sampler = drawing(), .prompt = 250, .steps_ahead = 17},
      {.name = "NewPageAndEos", .sampler = drawing(), .prompt = 250, .eos_at = 12, .steps_ahead = 11},
      // 62 to 79 tokens: a dynamic scale steps at 65 and 77, an exact scale at every token from 65.
      {.name = "ScaleSteps", .prompt = 60, .scaling = "dynamic-yarn", .steps_ahead = 16},
      {.name = "ScaleStepsAndStop", .prompt = 60, .stop_at = 8, .scaling = "dynamic", .steps_ahead = 6},
      {.name = "ExactScale", .prompt = 60, .scaling = "dynamic", .rope_steps = 0, .steps_ahead = 3},
  };
}

struct AheadOutcome {
  Generation generation;
  int64_t length = 0, rerotations = 0, rotated = 0;
  size_t bytes = 0;
  std::string context;
};

struct Thrown {};

inline AheadOutcome run_ahead_case(Backend& backend, const AheadCase& c, std::vector<int32_t> eos_ids) {
  const Model model = open_f32(checkpoint_dir(c.checkpoint), backend);
  SessionOptions options = *c.scaling != 0 ? scaled_session(model, c.scaling, 4.0) : f32_session();
  options.rope_steps = c.rope_steps;
  options.max_ctx = c.max_ctx;
  if (*c.method != 0) options.positions = parse_position_method(c.method, 64, 0);
  Session session(model, backend, options);
  Sequence sequence = session.new_sequence();
  std::vector<int32_t> tokens = some_tokens(static_cast<size_t>(c.prompt), model.spec.vocab_size);
  for (size_t i = 0; c.repeats_after > 0 && i < tokens.size(); ++i)
    tokens[i] = tokens[i % static_cast<size_t>(c.repeats_after)];
  std::atomic<bool> interrupted = false;
  const GenerateOptions generating{.max_new_tokens = c.max_new_tokens,
                                   .eos_ids = std::move(eos_ids),
                                   .sampler = c.sampler,
                                   .logprobs = 2,
                                   .lookup = c.lookup,
                                   .interrupted = &interrupted};
  AheadOutcome outcome;
  std::vector<int32_t> seen;
  const auto on_token = [&](int32_t token) {
    seen.push_back(token);
    const auto count = static_cast<int>(seen.size());
    interrupted = count == c.interrupt_at;
    if (count == c.throw_at) throw Thrown();
    return count != c.stop_at;
  };
  try {
    outcome.generation = generate(session, sequence, tokens, generating, on_token);
    EXPECT_EQ(outcome.generation.tokens, seen);
  } catch (const Thrown&) {
    outcome.generation.tokens = seen;
  }
  outcome.length = sequence.length();
  outcome.rerotations = sequence.cache().rerotations().count;
  outcome.rotated = sequence.cache().rerotations().positions;
  outcome.bytes = sequence.cache().bytes();
  tokens.insert(tokens.end(), seen.begin(), seen.end());
  tokens.resize(static_cast<size_t>(outcome.length));
  const TempFolder folder;
  save_context(session, sequence, tokens, folder.path / "context");
  outcome.context = slurp(folder.path / "context");
  return outcome;
}

// Returns the token at eos_at or the next unseen token; none without eos_at.
inline std::vector<int32_t> eos_ids_of(Backend& backend, const AheadCase& c, int64_t& later) {
  if (c.eos_at < 0) return {};
  const auto all = run_ahead_case(backend, c, {}).generation.tokens;
  auto eos = all.begin() + c.eos_at;
  while (eos != all.end() && std::find(all.begin(), eos, *eos) != eos) ++eos;
  if (eos == all.end()) throw Error("every token repeats an earlier one");
  later = eos - all.begin() - c.eos_at;
  return {*eos};
}

inline void expect_same_outcome(const AheadOutcome& actual, const AheadOutcome& expected) {
  const Generation &text = actual.generation, &other = expected.generation;
  EXPECT_EQ(text.tokens, other.tokens);
  EXPECT_EQ(text.stop_reason, other.stop_reason);
  EXPECT_EQ(text.decode_steps, other.decode_steps);
  ASSERT_EQ(text.logprobs.size(), other.logprobs.size());
  for (size_t i = 0; i < text.logprobs.size(); ++i)
    EXPECT_EQ(text.logprobs[i].logprob, other.logprobs[i].logprob) << i;
  EXPECT_EQ(actual.length, expected.length);
  EXPECT_EQ(actual.rerotations, expected.rerotations);
  EXPECT_EQ(actual.rotated, expected.rotated);
  EXPECT_EQ(actual.bytes, expected.bytes);
  EXPECT_TRUE(actual.context == expected.context) << "the saved contexts differ";
}

inline void check_ahead(Backend& backend, const AheadCase& c) {
  AheadBackend plain(backend, false), ahead(backend);
  int64_t later = 0;
  const std::vector<int32_t> eos_ids = eos_ids_of(plain, c, later);
  const AheadOutcome expected = run_ahead_case(plain, c, eos_ids);
  const AheadOutcome actual = run_ahead_case(ahead, c, eos_ids);
  EXPECT_EQ(plain.steps_ahead(), 0);
  EXPECT_EQ(ahead.steps_ahead(), c.steps_ahead + later);
  expect_same_outcome(actual, expected);
}

inline void check_batch_ahead(Backend& inner) {
  constexpr int64_t kNew = 16;
  const auto run = [](Backend& backend, std::span<const int32_t> eos_ids, std::vector<int64_t>& lengths) {
    const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
    Session session(model, backend, f32_session());
    std::vector<std::vector<int32_t>> prompts;
    for (const size_t length : {3U, 30U, 12U})
      prompts.push_back(some_tokens(length, model.spec.vocab_size, length));
    std::deque<Sequence> sequences;
    std::vector<Prompt> batch;
    for (const auto& prompt : prompts)
      batch.push_back({&sequences.emplace_back(session.new_sequence()), prompt});
    const GenerateOptions greedy{.max_new_tokens = kNew, .eos_ids = {eos_ids.begin(), eos_ids.end()}};
    std::vector<std::vector<int32_t>> texts;
    for (auto& text : generate(session, batch, greedy, [](size_t, int32_t) { return true; }))
      texts.push_back(std::move(text.tokens));
    lengths.clear();
    for (const Sequence& sequence : sequences) lengths.push_back(sequence.length());
    return texts;
  };
  AheadBackend plain(inner, false), ahead(inner);
  std::vector<int64_t> expected_lengths, lengths;
  const auto whole = run(plain, {}, expected_lengths);
  const std::vector<int32_t> eos_ids = {whole[0][9], whole[1][5]};
  const auto expected = run(plain, eos_ids, expected_lengths);
  ASSERT_NE(expected[0].size(), expected[1].size()) << "the texts must have different lengths";
  EXPECT_EQ(run(ahead, eos_ids, lengths), expected);
  EXPECT_EQ(lengths, expected_lengths);
  EXPECT_GT(ahead.steps_ahead(), 4);
}

}  // namespace lariat::test
