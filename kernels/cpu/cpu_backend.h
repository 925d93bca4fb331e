#pragma once
#include <atomic>
#include <cstring>

#include "kernels/backend.h"
#include "kernels/cpu/draw.h"
#include "kernels/cpu/rope_angles.h"

namespace lariat {

// Call counts for tests: per product, or block of grouped_linear with float weights; per attention call and
// sequence.
struct CpuPaths {
  int64_t gemv = 0, gemm = 0;
  int64_t attention_stream = 0, attention_block = 0;
};

// Rows of a grouped_linear by block.
struct GroupedRows {
  std::vector<int32_t> first, rows;
  std::vector<int32_t> few;  // blocks for gemv: 1 to kGemvRows rows

  void sort(std::span<const int32_t> chosen, size_t n_blocks);
  int64_t count(size_t block) const { return first[block + 1] - first[block]; }
  std::span<const int32_t> of(size_t block) const {
    return std::span(rows).subspan(static_cast<size_t>(first[block]), static_cast<size_t>(count(block)));
  }
};

// Default backend: host memory, Highway vectors and a thread team.
class CpuBackend final : public Backend {
 public:
  // threads: 0 uses every available core.
  explicit CpuBackend(int threads = 0);

  int threads() const { return threads_; }
  const CpuPaths& paths() const { return paths_; }  // since construction
  std::string name() const override { return "cpu"; }
  std::string description() const override;
  Traits traits() const override;

  Buffer allocate(size_t bytes) override;
  void release(void* data, size_t bytes) noexcept override;
  void copy_in(void* dst, const void* host_src, size_t bytes) override { copy(dst, host_src, bytes); }
  void copy_out(void* host_dst, const void* src, size_t bytes) override { copy(host_dst, src, bytes); }
  void copy(void* dst, const void* src, size_t bytes) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);
  }
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
  Saturation saturated() override { return {saturated_keys_, saturated_values_}; }
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
  // Scratch of the running op; the next call overwrites it.
  void* scratch(size_t bytes) { return at_least(scratch_, bytes); }
  void* at_least(Buffer& buffer, size_t bytes);
  bool fuses(const Matrix& x, const Weight& gated) const;
  // Products of one x; weights that read x in the same form run together.
  void multiply(const Matrix& x, std::span<const Product> products, DType compute);
  void multiply_alike(const Matrix& x, std::span<const Product> products, DType compute);
  void multiply_in_parts(const Matrix& x, std::span<const Product> products);
  void multiply_codes(const Matrix& x, std::span<const Product> products);
  void multiply_group(const Matrix& x, const RowBlock& block, std::span<const int32_t> ids, DType compute,
                      const Matrix& out);
  void soft_cap(const Matrix& x, float scale, float cap);  // x = cap * tanh(scale x / cap)
  // First index of each row's largest logit; 0 for a row of only NaN.
  void find_largest(const Matrix& logits, std::span<int32_t> ids);

  int threads_;
  CpuPaths paths_;
  std::atomic<int64_t> saturated_keys_{0}, saturated_values_{0};
  Buffer scratch_;
  std::vector<RopeAngles> angles_;  // one per sequence
  GroupedRows grouped_rows_;
  std::vector<int32_t> drawn_;  // result of the last draw
  Buffer gathered_;             // rows and outputs of a block
  Buffer up_;                   // second product of a gated unit
  Buffer rest_;                 // second part of x and its products

  std::vector<std::vector<cpu::Candidate>> candidates_;  // tokens that a draw sorts, per thread
};

}  // namespace lariat
