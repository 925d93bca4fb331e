#include <deque>
#include <set>

#include "kernels/reference/reference_backend.h"
#include "models/positions/parse_position_method.h"
#include "tests/engine/batch_cases.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

// Scales from 64 tokens on: RoPE frequencies differ within the batch.
SessionOptions dynamic_session(const Model& model) { return scaled_session(model, "dynamic-yarn"); }

TEST(Batch, EightSequencesDecodeTheTokensOfSeparateRuns) {
  CpuBackend cpu(2);
  ReferenceBackend reference;
  for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&reference)}) {
    SCOPED_TRACE(backend->name());
    check_batch_equals_separate_runs(*backend, f32_session());
    check_batch_equals_separate_runs(*backend,
                                     dynamic_session(open_f32(checkpoint_dir("llama_gqa"), *backend)));
  }
  check_batch_equals_separate_runs(cpu, {});
}

// Requests join at different steps, with chunked prompts, two with a common prefix.
TEST(Batch, LateRequestsEqualSeparateRuns) {
  CpuBackend backend(2);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  auto prompts = batch_prompts(model.spec.vocab_size);
  prompts[5] = prompts[7];
  prompts[5].resize(270);
  for (SessionOptions options : {f32_session(), dynamic_session(model)}) {
    options.prefill_chunk = 64;
    Session session(model, backend, options);
    std::vector<Generation> alone(prompts.size()), texts(prompts.size());
    const auto request = [&](size_t i, std::vector<Generation>& into) {
      Request made{.tokens = prompts[i],
                   .options = {.max_new_tokens = 20, .eos_ids = {3, 14, 15}, .logprobs = 2},
                   .on_token = [](int32_t token) { return token % 17 != 0; },
                   .on_end = [&into, i](Generation result) { into[i] = std::move(result); }};
      if (i == 4)
        made.sequence_options = {scaled_session(model, "yarn", 2).rope,
                                 parse_position_method("dca/chunk=24/window=8", 64, 0)};
      if (i % 2 == 1) made.options.sampler = {{0.8F, static_cast<int32_t>(10 * i)}, 1.3F, i};
      return made;
    };
    for (size_t i = 0; i < prompts.size(); ++i) {
      Scheduler scheduler(session);
      scheduler.add(request(i, alone));
      scheduler.run();
    }
    Scheduler scheduler(session);
    std::vector<int64_t> done;
    const auto progress = [&](int64_t n) { done.push_back(n); };
    for (const size_t i : {6, 4, 0, 7, 5, 1, 2, 3}) {
      scheduler.add(request(i, texts));
      EXPECT_TRUE(scheduler.step(progress));
    }
    scheduler.run(progress);
    // A page of 270 tokens, whose dynamic step holds 300 too.
    EXPECT_EQ(done.back(), 1 + 2 + 7 + 30 + 255 + 270 - kKvPage + 257 + 300);
    EXPECT_GT(done.size(), 12U) << "chunked prefill";
    std::set<StopReason> reasons;
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(texts[i].tokens, alone[i].tokens) << i;
      EXPECT_EQ(texts[i].stop_reason, alone[i].stop_reason) << i;
      EXPECT_EQ(texts[i].decode_steps, alone[i].decode_steps) << i;
      reasons.insert(texts[i].stop_reason);
      ASSERT_EQ(texts[i].logprobs.size(), texts[i].tokens.size());
      for (size_t k = 0; k < texts[i].logprobs.size(); ++k) {
        EXPECT_EQ(texts[i].logprobs[k].logprob, alone[i].logprobs[k].logprob) << i;
        EXPECT_EQ(texts[i].logprobs[k].top.size(), 2U);
      }
    }
    EXPECT_GT(reasons.size(), 1U) << "requests must end for different reasons";
  }
}

TEST(Batch, CallsPerStepDoNotDependOnTheNumberOfSequences) {
  CpuBackend cpu(1);
  ForwardingBackend counting(cpu);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), counting);
  Session session(model, counting, f32_session());
  const auto prompts = batch_prompts(model.spec.vocab_size);
  std::vector<Sequence> sequences;
  for (const auto& prompt : prompts) {
    sequences.push_back(session.new_sequence());
    prefill(session, sequences.back(), prompt);
  }
  const auto calls = [&](size_t n) {
    std::vector<Sequence*> batch;
    for (size_t i = 0; i < n; ++i) batch.push_back(&sequences[i]);
    const std::vector<int32_t> tokens(n, 3);
    const int64_t before = counting.ops();
    decode(session, batch, tokens);
    return counting.ops() - before;
  };
  const int64_t one = calls(1);
  // Per layer: qkv products, qkv to cache, attention, product with norm, gated unit, product with norm.
  // Per step: RoPE angles, embedding, first norm, head.
  EXPECT_EQ(one, 6 * static_cast<int64_t>(model.spec.layers.size()) + 4);
  EXPECT_EQ(calls(8), one);
}

TEST(Fork, OfALongSequenceAllocatesNothing) {
  CpuBackend cpu(2);
  ForwardingBackend watched(cpu);
  const Model model = load_model(checkpoint_dir("llama_gqa"), load_config(checkpoint_dir("llama_gqa")),
                                 watched, DType::kBF16);
  Session session(model, watched, {});
  Sequence original = session.new_sequence();
  prefill(session, original, some_tokens(10000, model.spec.vocab_size));
  const int64_t pages = session.pool().pages(), allocations = watched.allocations();
  EXPECT_EQ(pages, 40);  // 256 positions each
  Sequence fork = session.fork(original, 10000);
  EXPECT_EQ(watched.allocations(), allocations);
  EXPECT_EQ(session.pool().pages(), pages);
  for (int64_t i = 0; i < pages; ++i) EXPECT_EQ(fork.cache().pages()[i], original.cache().pages()[i]);

  decode(session, fork, 5);
  EXPECT_EQ(session.pool().pages(), pages + 1);
  EXPECT_EQ(fork.cache().pages()[38], original.cache().pages()[38]);
  EXPECT_NE(fork.cache().pages()[39], original.cache().pages()[39]);
}

TEST(Fork, RerotationLeavesTheOtherUnchanged) {
  CpuBackend cpu(2);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), cpu);
  Session session(model, cpu, dynamic_session(model));
  const auto text = some_tokens(300, model.spec.vocab_size);
  const auto next_logits = [&](Sequence& sequence) {
    const auto logits = decode(session, sequence, 9);
    return std::vector<float>(logits.begin(), logits.end());
  };
  Sequence untouched = session.new_sequence();
  prefill(session, untouched, text);
  const std::vector<float> expected = next_logits(untouched);

  Sequence original = session.new_sequence();
  prefill(session, original, text);
  Sequence fork = session.fork(original, 300);
  prefill(session, fork, some_tokens(200, model.spec.vocab_size));  // past a scale step
  EXPECT_EQ(fork.cache().rerotations().count, 1);
  EXPECT_EQ(original.cache().rerotations().count, 0);
  EXPECT_EQ(next_logits(original), expected);
}

}  // namespace
}  // namespace lariat::test
