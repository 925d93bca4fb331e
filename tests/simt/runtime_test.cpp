// Unusual machines, simulated by the shim.
#include <memory>
#include <thread>

#include "kernels/error.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/engine/ahead_cases.h"
#include "tests/kernels/tensors.h"
#include "tests/simt/simt.h"

namespace lariat::test {
namespace {

// Enough small launches for a recorded step.
float doubled_often(Backend& backend, const Tensor& x) {
  const std::vector<float> ones(64, 1.0F);
  backend.copy_in(x.view().data, ones.data(), ones.size() * sizeof(float));
  for (int i = 0; i < 10; ++i) backend.add_norm(x.view(), x.view(), 1.0F, Norm(), Matrix());
  return x.values()[5];
}

TEST(CudaMachine, WithoutGraphsLaunchesRunOneByOne) {
  for (auto failure : {simt::CaptureFailure::kBegin, simt::CaptureFailure::kEnd}) {
    std::vector<std::string> warnings;
    CudaBackend backend(0, [&](const std::string& line) { warnings.push_back(line); });
    const Tensor x(backend, 1, 64);
    simt::set_capture_failure(failure);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(doubled_often(backend, x), 1024.0F);
    simt::set_capture_failure(simt::CaptureFailure::kNone);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(doubled_often(backend, x), 1024.0F);
    EXPECT_EQ(warnings, std::vector<std::string>{"CUDA: recording a decode step: not supported; without CUDA "
                                                 "graphs every token takes longer"});
    EXPECT_EQ(backend.step_counts().direct, 8);
    EXPECT_EQ(backend.step_counts().recorded + backend.step_counts().replayed, 0);
    const uint64_t before = simt::early_launches();
    doubled_often(backend, x);
    EXPECT_EQ(simt::early_launches() - before, 9U);
  }
}

// Launches after a list's first start early, unless disabled.
TEST(CudaMachine, LaunchesStartEarly) {
  for (const char* setting : {"1", "0"}) {
    setenv("LARIAT_PDL", setting, 1);
    CudaBackend backend;
    unsetenv("LARIAT_PDL");
    const Tensor x(backend, 1, 64);
    const uint64_t before = simt::early_launches();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(doubled_often(backend, x), 1024.0F);
    EXPECT_EQ(backend.step_counts().replayed, 2);
    EXPECT_EQ(simt::early_launches() - before, *setting == '1' ? 4U * 9 : 0U);
  }
}

TEST(CudaMachine, UnrecordableEarlyLaunchesAreRecordedInOrder) {
  CudaBackend backend(0, [](const std::string& line) { ADD_FAILURE() << line; });
  const Tensor x(backend, 1, 64);
  doubled_often(backend, x);
  const uint64_t before = simt::early_launches();
  simt::set_capture_failure(simt::CaptureFailure::kEarly);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(doubled_often(backend, x), 1024.0F);
  simt::set_capture_failure(simt::CaptureFailure::kNone);
  EXPECT_EQ(backend.step_counts().recorded, 1);
  EXPECT_EQ(backend.step_counts().replayed, 2);
  EXPECT_EQ(simt::early_launches(), before);
}

// A thread starts on device 0, whatever its backend's device.
TEST(CudaMachine, AnyThreadMayCallABackendOfAnyDevice) {
  CudaBackend first(0), second(1);
  for (CudaBackend* backend : {&first, &second}) {
    std::thread([&] {
      const Tensor x(*backend, 1, 64);
      for (int i = 0; i < 4; ++i) EXPECT_EQ(doubled_often(*backend, x), 1024.0F);
      EXPECT_GE(backend->step_counts().replayed, 2);
      first.synchronize();  // changes the device
      EXPECT_EQ(doubled_often(*backend, x), 1024.0F);
    }).join();
  }
  EXPECT_NE(cuda_unavailable_reason(simt::kDevices), "");
  EXPECT_THROW(make_cuda_backend(-1), Error);
}

TEST(CudaMachine, MemoryOfAnotherDeviceIsRefused) {
  CudaBackend first(0), second(1);
  const Tensor x(second, 1, 64);
  first.add_norm(x.view(), x.view(), 1.0F, Norm(), Matrix());
  EXPECT_THROW(first.synchronize(), simt::Fault);
}

TEST(CudaMachine, AStepOfManySequencesAllocatesNothing) {
  constexpr int64_t kMany = 65, kDeep = 32, kNarrow = 16;
  CudaBackend backend;
  std::vector<std::unique_ptr<Cache>> caches;
  for (int64_t i = 0; i < kMany; ++i) {
    caches.push_back(std::make_unique<Cache>(backend, kKvPage, 1, kNarrow, DType::kF32, DType::kF32, kDeep));
  }
  const Tensor rows(backend, kMany, kNarrow), out(backend, kMany, kNarrow);
  const Tensor cos(backend, kMany, kNarrow / 2), sin(backend, kMany, kNarrow / 2);
  const Tensor q_scale(backend, kMany, 1);
  const RopeTable rope = {cos.view(), sin.view(), q_scale.view(), {}, kNarrow, false};
  const KeyRange seen = KeyRange::causal(rope, 0);
  const std::vector<double> inv_freq(kNarrow / 2, 0.1);
  const std::vector<SequenceRope> ropes(kMany, {inv_freq, 1.0F});
  int64_t before = 0;
  for (int64_t position = 0; position < 3; ++position) {
    std::vector<StepSequence> sequences;
    for (const auto& cache : caches) sequences.push_back(cache->sequence(position, 1));
    const Step step{.sequences = sequences};
    backend.rope_table(step, ropes, rope);
    for (const KvLayer& layer : caches[0]->layers()) {
      backend.qkv_to_cache(step, rows.view(), rows.view(), rows.view(), QkvEpilogue(), rope, layer);
      backend.attention(step, rows.view(), {&seen, 1}, layer, {1, 0.25F}, out.view());
    }
    backend.synchronize();
    if (position == 0) before = simt::device_allocations();
  }
  EXPECT_EQ(simt::device_allocations(), before);
}

// Three tables, as of dca or jet-long: one launch each, none that sends frequencies again.
TEST(CudaMachine, UnchangedFrequenciesAreSentOnce) {
  CudaBackend backend;
  const Tensor cos(backend, 1, 8), sin(backend, 1, 8), q_scale(backend, 1, 1);
  const RopeTable table = {cos.view(), sin.view(), q_scale.view(), {}, 16, false};
  const StepSequence sequence{5, 1, nullptr};
  const Step step{.sequences = {&sequence, 1}};
  const auto run = [&] {
    const uint64_t before = simt::block_clock().launch;
    for (const double frequency : {0.1, 0.2, 0.3}) {
      const std::vector<double> inv_freq(8, frequency);
      const SequenceRope rope{inv_freq, 1.0F};
      backend.rope_table(step, {&rope, 1}, table);
      EXPECT_FLOAT_EQ(cos.values()[7], std::cos(5 * static_cast<float>(frequency)));
    }
    return simt::block_clock().launch - before;
  };
  EXPECT_GE(run(), 3U + 3U);
  EXPECT_EQ(run(), 3U);
  EXPECT_EQ(run(), 3U);
}

// The next step is queued before the host has the last token. The GPU idles only after the prompt, its token,
// and the last requested token.
TEST(CudaMachine, DecodingNeverWaitsForTheHost) {
  CudaBackend backend;
  AheadBackend plain(backend, false);
  for (const SamplerOptions& sampler : {SamplerOptions{}, drawing()}) {
    const auto waits = [&](Backend& on, int64_t tokens) {
      const Model model = open_f32(checkpoint_dir("llama_gqa"), on);
      Session session(model, on, f32_session());
      Sequence sequence = session.new_sequence();
      const uint64_t before = simt::idle_waits();
      generate(session, sequence, std::vector<int32_t>{1, 2, 3},
               {.max_new_tokens = tokens, .sampler = sampler});
      return simt::idle_waits() - before;
    };
    EXPECT_EQ(waits(backend, 24), waits(backend, 4));
    EXPECT_EQ(waits(backend, 24), 3U);
    EXPECT_EQ(waits(plain, 24), 2U + 23U) << "every step waits";
  }
}

}  // namespace
}  // namespace lariat::test
