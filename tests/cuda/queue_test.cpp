// Launches that are collected, recorded and replayed: the same ops again and again, at other positions, in
// other pages and with other work in between, against the float64 reference. A kernel that took what changes
// as an argument of its launch would go on with that of the recorded step and fail here.
#include <memory>

#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 32, kDim = kHeads * kHeadDim;
constexpr int64_t kKvDim = kKvHeads * kHeadDim, kCapacity = 600;
constexpr int64_t kLayers = 2;
constexpr double kQueueTolerance = 1e-4;  // f32 all through; another position is off by 0.1 and more

// Two layers without a model, each with a RoPE table of its own: weights, activations and the caches of some
// sequences on one backend.
class Layers {
 public:
  Layers(Backend& backend, std::vector<int64_t> lengths)
      : backend_(backend),
        lengths_(std::move(lengths)),
        rows_(static_cast<int64_t>(lengths_.size())),
        w_q_(weight(1, kDim)),
        w_k_(weight(2, kKvDim)),
        w_v_(weight(3, kKvDim)),
        norm_(weight(4, 1)),
        bias_(weight(5, 1)),
        slopes_(backend, alibi_slopes(kHeads), 1, kHeads),
        x_(backend, rows_, kDim),
        normed_(backend, rows_, kDim),
        q_(backend, rows_, kDim),
        k_(backend, rows_, kKvDim),
        v_(backend, rows_, kKvDim),
        out_(backend, rows_, kDim),
        cos_(backend, kLayers * rows_, kHeadDim / 2),
        sin_(backend, kLayers * rows_, kHeadDim / 2),
        q_scale_(backend, kLayers * rows_, 1) {
    for (size_t i = 0; i < lengths_.size(); ++i) add_cache(i);
  }

  // One token for each sequence; the last layer's output.
  std::vector<float> step(double theta = 10000.0, float scale = 1.0F) {
    std::vector<StepSequence> sequences;
    for (size_t i = 0; i < lengths_.size(); ++i) sequences.push_back(caches_[i]->sequence(lengths_[i]++, 1));
    const std::vector<double> inv_freq = frequencies(kHeadDim, theta);
    const std::vector<double> local = frequencies(kHeadDim, 500.0);
    const std::vector<SequenceRope> ropes(sequences.size(), {inv_freq, scale});
    std::vector<SequenceRope> local_ropes;  // of M-RoPE, but for the first sequence
    std::vector<std::vector<int32_t>> positions;
    const std::vector<uint8_t> axes = axes_of(local.size(), true);
    for (const StepSequence& sequence : sequences) {
      positions.push_back(axis_positions(sequence.first_position, 1));
      local_ropes.push_back({.inv_freq = local, .log_beta = 0.5, .log_ctx = 3});
      if (local_ropes.size() > 1)
        local_ropes.back().positions = positions.back(), local_ropes.back().axes = axes;
    }
    const std::vector<float> input = Rng(static_cast<uint64_t>(lengths_[0])).normals(rows_ * kDim);
    backend_.copy_in(x_.view().data, input.data(), input.size() * sizeof(float));
    const Step step{.sequences = sequences};
    backend_.rope_table(step, ropes, table(0));
    backend_.rope_table(step, local_ropes, table(1));
    const Norm rms_norm{norm_.view(), Matrix(), 1e-5F}, layer_norm{norm_.view(), bias_.view(), 1e-5F, true};
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const RopeTable rope = table(layer);
      backend_.norm(x_.view(), layer == 0 ? rms_norm : layer_norm, normed_.view());
      multiply(backend_, normed_.view(), w_q_.view(), Matrix(), DType::kF32, q_.view());
      backend_.linear(normed_.view(), weight_of(w_k_.view()), Epilogue::capped(1.1F, 9.0F), k_.view());
      multiply(backend_, normed_.view(), w_v_.view(), Matrix(), DType::kF32, v_.view());
      const KvLayer& part = caches_[0]->layer(static_cast<size_t>(layer));
      backend_.qkv_to_cache(step, q_.view(), k_.view(), v_.view(), QkvEpilogue(), rope, part);
      const Matrix slopes = layer == 0 ? Matrix() : slopes_.view();
      backend_.attention(step, q_.view(), rope, part, {kHeads, 0.17F, 0, 20.0F, slopes}, out_.view());
      backend_.add_norm(x_.view(), out_.view(), 0.8F, rms_norm, normed_.view());
      const Activation activation = layer == 0 ? Activation::kSilu : Activation::kGeluTanh;
      backend_.glu(normed_.view(), x_.view(), activation, normed_.view());
      backend_.glu(normed_.view(), Matrix(), Activation::kGelu, normed_.view());
      backend_.add_norm(x_.view(), normed_.view(), 0.9F, Norm(), Matrix());
    }
    return normed_.values();
  }

  // The same keys and values in other pages.
  void move_cache(size_t i) {
    const std::unique_ptr<Cache> old = std::move(caches_[i]);
    add_cache(i);
    for (size_t layer = 0; layer < size_t{kLayers}; ++layer) {
      caches_[i]->set_keys(old->keys(lengths_[i], layer), layer);
      caches_[i]->set_values(old->values(lengths_[i], layer), layer);
    }
  }
  void rerotate(const std::vector<double>& delta) {
    std::vector<KeyRotation> rotations;
    for (size_t i = 0; i < caches_.size(); ++i)
      rotations.push_back({caches_[i]->pages(), lengths_[i], delta});
    backend_.rerotate_keys(rotations, caches_[0]->layers(), false);
  }

 private:
  RopeTable table(int64_t layer) const {
    const auto rows = [&](const Tensor& all) { return all.view().row_range(layer * rows_, rows_); };
    return {rows(cos_), rows(sin_), rows(q_scale_), kHeadDim, false};
  }
  Tensor weight(uint64_t seed, int64_t rows) {
    return {backend_, Rng(seed).normals(rows * kDim, 0.1F), rows, kDim};
  }
  void add_cache(size_t i) {
    caches_.resize(std::max(caches_.size(), i + 1));
    caches_[i] =
        std::make_unique<Cache>(backend_, kCapacity, kKvHeads, kHeadDim, DType::kF32, DType::kF32, kLayers);
    for (size_t layer = 0; layer < size_t{kLayers}; ++layer) {
      caches_[i]->set_keys(Rng(i + 10).normals(kCapacity * kKvDim), layer);
      caches_[i]->set_values(Rng(i + 20).normals(kCapacity * kKvDim), layer);
    }
  }

  Backend& backend_;
  std::vector<int64_t> lengths_;
  int64_t rows_;
  Tensor w_q_, w_k_, w_v_, norm_, bias_, slopes_;
  Tensor x_, normed_, q_, k_, v_, out_, cos_, sin_, q_scale_;
  std::vector<std::unique_ptr<Cache>> caches_;
};

class CudaQueue : public OnCuda {
 protected:
  CudaBackend::StepCounts counts() const { return dynamic_cast<CudaBackend&>(*cuda_).step_counts(); }
};

TEST_F(CudaQueue, ReplaysAtNewPositionsForOneAndForEightSequences) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{5}, {252}, {3, 250, 17, 100, 255, 1, 30, 254}}) {
    Layers tested(*cuda_, lengths), expected(reference_, lengths);
    const auto before = counts();
    for (int i = 0; i < 8; ++i)
      expect_close(tested.step(), expected.step(), kQueueTolerance, 0, std::to_string(i));
    const auto after = counts();
    // The first step may take memory that the second has; a doubled length is another record.
    EXPECT_GE(after.replayed - before.replayed, lengths[0] == 5 ? 5 : 2);
    EXPECT_EQ(after.direct + after.recorded + after.replayed,
              before.direct + before.recorded + before.replayed + 8);
  }
}

TEST_F(CudaQueue, OtherPagesFrequenciesAndFactorsNeedNoNewRecord) {
  Layers tested(*cuda_, {40, 7}), expected(reference_, {40, 7});
  const auto compare = [&](const char* when, double theta = 10000.0, float scale = 1.0F) {
    expect_close(tested.step(theta, scale), expected.step(theta, scale), kQueueTolerance, 0, when);
  };
  for (int i = 0; i < 4; ++i) compare("at first");
  const auto before = counts();
  EXPECT_GE(before.replayed, 1);
  tested.move_cache(1);
  compare("in other pages");
  const std::vector<double> delta = frequency_change(kHeadDim);
  tested.rerotate(delta);
  expected.rerotate(delta);
  compare("re-rotated", 20221.0);
  compare("with an attention factor", 20221.0, 1.4F);
  EXPECT_EQ(counts().replayed, before.replayed + 3);
}

TEST_F(CudaQueue, WhatComesBetweenDoesNotSpoilTheRecord) {
  Layers tested(*cuda_, {12, 90}), expected(reference_, {12, 90});
  for (int i = 0; i < 4; ++i) expect_close(tested.step(), expected.step(), kQueueTolerance, 0, "at first");
  const auto before = counts();
  {
    Layers other(*cuda_, {300}), other_expected(reference_, {300});  // grows working memory
    expect_close(other.step(), other_expected.step(), kQueueTolerance, 0, "the other");
    expect_close(tested.step(), expected.step(), kQueueTolerance, 0, "after a step of others");
    for (int i = 0; i < 3; ++i) {
      expect_close(other.step(), other_expected.step(), kQueueTolerance, 0, "the other again");
    }
  }
  for (int i = 0; i < 4; ++i) expect_close(tested.step(), expected.step(), kQueueTolerance, 0, "at last");
  EXPECT_GE(counts().replayed, before.replayed + 2);
}

// Nothing collected runs after its memory is gone, and nothing collected is lost.
TEST_F(CudaQueue, FreedMemoryHasBeenUsedBefore) {
  const std::vector<float> values = Rng(3).normals(256);
  const Tensor out(*cuda_, 1, 256), ones(*cuda_, std::vector<float>(256, 1.0F), 1, 256);
  {
    const Tensor x(*cuda_, values, 1, 256);
    cuda_->norm(x.view(), {ones.view(), Matrix()}, out.view());
  }
  const Tensor x(reference_, values, 1, 256), expected(reference_, 1, 256);
  const Tensor host_ones(reference_, std::vector<float>(256, 1.0F), 1, 256);
  reference_.norm(x.view(), {host_ones.view(), Matrix()}, expected.view());
  expect_close(out.values(), expected.values(), 1e-5, 0, "norm");
}

// A launch that fails is reported by the first call that waits, or that waits after memory was freed, and the
// backend goes on.
TEST_F(CudaQueue, AFailedLaunchIsReportedOnce) {
  for (bool freed : {false, true}) {
    const std::vector<float> values = Rng(4).normals(64);
    const Tensor x(*cuda_, values, 1, 64), ones(*cuda_, std::vector<float>(64, 1.0F), 1, 64);
    cuda_->norm(x.view().row_range(0, 0), {ones.view(), Matrix()}, x.view());  // a grid of no blocks
    if (freed) cuda_->allocate(64);                                            // and freed
    EXPECT_ANY_THROW(cuda_->synchronize());
    EXPECT_NO_THROW(cuda_->synchronize());
    EXPECT_EQ(x.values(), values);
  }
}

}  // namespace
}  // namespace lariat::test
