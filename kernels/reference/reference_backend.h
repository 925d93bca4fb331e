#pragma once
#include <cstring>

#include "kernels/backend.h"

namespace lariat {

// Reference for tests, in scalar float64 loops on one thread.
class ReferenceBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  std::string description() const override { return "float64 scalar reference"; }
  Traits traits() const override { return {}; }

  Buffer allocate(size_t bytes) override;
  void release(void* data, size_t bytes) noexcept override;
  void copy_in(void* dst, const void* host_src, size_t bytes) override;
  void copy_out(void* host_dst, const void* src, size_t bytes) override;
  void copy(void* dst, const void* src, size_t bytes) override { std::memcpy(dst, src, bytes); }
  LoadedWeight load_weight(std::span<const HostWeight> host, std::span<const WeightFormat> formats,
                           DType compute) override;

  void embed(std::span<const int32_t> tokens, const HostWeight& table, float scale,
             const Matrix& out) override;
  void norm(const Matrix& x, const Norm& norm, const Matrix& out) override;
  void add_norm(const Matrix& residual, const Matrix& delta, float scale, const Norm& norm,
                const Matrix& out) override;
  void linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) override;
  void rope_table(const Step& step, std::span<const SequenceRope> ropes, const RopeTable& table) override;
  void qkv_to_cache(const Step& step, const Matrix& q, const Matrix& k, const Matrix& v,
                    const QkvEpilogue& epilogue, const RopeTable& rope, const KvLayer& layer) override;
  void keys_from_cache(const Step& step, const KvLayer& layer, int64_t first, const Matrix& out) override;
  Saturation saturated() override { return saturated_; }
  void attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges, const KvLayer& layer,
                 const AttentionParams& params, const Matrix& out) override;
  void rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                     bool interleaved) override;
  void glu(const Matrix& gate, const Matrix& up, Activation activation, const Matrix& out) override;
  void xielu(const Matrix& x, const Xielu& parameters) override;
  void route(const Matrix& logits, const Router& router, const Routing& routing) override;
  void grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                      const Matrix& out) override;
  void combine_experts(const Matrix& x, const Routing& routing, bool add, const Matrix& out) override;
  void draw(const Matrix& logits, std::span<const Sampling> how, std::span<const double> uniforms) override;
  void read_drawn(std::span<int32_t> ids) override;
  void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) override;

 private:
  Saturation saturated_;
  std::vector<int32_t> drawn_;
};

}  // namespace lariat
