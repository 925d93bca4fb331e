#pragma once
#include <string>

#include "kernels/backend.h"

namespace lariat::test {

// Tests derive from it to watch, count or replace ops.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

  int64_t ops() const { return ops_; }
  int64_t allocations() const { return allocations_; }

  std::string name() const override { return inner_.name(); }
  std::string description() const override { return inner_.description(); }
  Traits traits() const override { return inner_.traits(); }
  Buffer allocate(size_t bytes) override { return ++allocations_, inner_.allocate(bytes); }
  void release(void* data, size_t bytes) noexcept override { inner_.release(data, bytes); }
  void copy_in(void* dst, const void* src, size_t bytes) override { inner_.copy_in(dst, src, bytes); }
  void copy_out(void* dst, const void* src, size_t bytes) override { inner_.copy_out(dst, src, bytes); }
  void copy(void* dst, const void* src, size_t bytes) override { inner_.copy(dst, src, bytes); }
  LoadedWeight load_weight(std::span<const HostWeight> host, std::span<const WeightFormat> formats,
                           DType compute) override {
    return inner_.load_weight(host, formats, compute);
  }
  void synchronize() override { inner_.synchronize(); }

  void embed(std::span<const int32_t> tokens, const HostWeight& table, float scale,
             const Matrix& out) override {
    counted().embed(tokens, table, scale, out);
  }
  void norm(const Matrix& x, const Norm& norm, const Matrix& out) override { counted().norm(x, norm, out); }
  void add_norm(const Matrix& residual, const Matrix& delta, float scale, const Norm& norm,
                const Matrix& out) override {
    counted().add_norm(residual, delta, scale, norm, out);
  }
  void linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) override {
    counted().linear(x, weight, epilogue, out);
  }
  void rope_table(const Step& step, std::span<const SequenceRope> ropes, const RopeTable& table) override {
    counted().rope_table(step, ropes, table);
  }
  void qkv_to_cache(const Step& step, const Matrix& q, const Matrix& k, const Matrix& v,
                    const QkvEpilogue& epilogue, const RopeTable& rope, const KvLayer& layer) override {
    counted().qkv_to_cache(step, q, k, v, epilogue, rope, layer);
  }
  void keys_from_cache(const Step& step, const KvLayer& layer, int64_t first, const Matrix& out) override {
    counted().keys_from_cache(step, layer, first, out);
  }
  Saturation saturated() override { return inner_.saturated(); }
  void attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges, const KvLayer& layer,
                 const AttentionParams& params, const Matrix& out) override {
    counted().attention(step, q, ranges, layer, params, out);
  }
  void rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                     bool interleaved) override {
    counted().rerotate_keys(sequences, layers, interleaved);
  }
  void glu(const Matrix& gate, const Matrix& up, Activation activation, const Matrix& out) override {
    counted().glu(gate, up, activation, out);
  }
  void xielu(const Matrix& x, const Xielu& parameters) override { counted().xielu(x, parameters); }
  void route(const Matrix& logits, const Router& router, const Routing& routing) override {
    counted().route(logits, router, routing);
  }
  void grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                      const Matrix& out) override {
    counted().grouped_linear(x, weight, routing, out);
  }
  void combine_experts(const Matrix& x, const Routing& routing, bool add, const Matrix& out) override {
    counted().combine_experts(x, routing, add, out);
  }
  void draw(const Matrix& logits, std::span<const Sampling> how, std::span<const double> uniforms) override {
    counted().draw(logits, how, uniforms);
  }
  void read_drawn(std::span<int32_t> ids) override { inner_.read_drawn(ids); }
  void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) override {
    counted().token_nll(logits, targets, nll);
  }

 protected:
  Backend& inner_;

 private:
  Backend& counted() { return ++ops_, inner_; }

  int64_t ops_ = 0, allocations_ = 0;
};

}  // namespace lariat::test
