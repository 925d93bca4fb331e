#include "engine/kv_cache.h"

#include <algorithm>

#include "engine/stopwatch.h"
#include "kernels/error.h"
#include "kernels/integers.h"

namespace lariat {

KvCache::KvCache(const ModelSpec& config, Backend& backend, DType k_dtype, DType v_dtype)
    : backend_(backend),
      k_dtype_(k_dtype),
      v_dtype_(v_dtype),
      n_layers_(config.n_layers),
      n_kv_heads_(config.n_kv_heads),
      head_dim_(config.head_dim),
      interleaved_(config.rope.interleaved),
      clock_(rope_frequencies(config.rope, 0)),
      k_blocks_(static_cast<size_t>(n_layers_)),
      v_blocks_(static_cast<size_t>(n_layers_)),
      layers_(static_cast<size_t>(n_layers_)) {
  for (auto& layer : layers_) {
    layer.k_dtype = k_dtype;
    layer.v_dtype = v_dtype;
    layer.n_kv_heads = n_kv_heads_;
    layer.head_dim = head_dim_;
  }
}

size_t KvCache::k_bytes_per_position() const {
  return static_cast<size_t>(n_layers_ * n_kv_heads_ * head_dim_) * size_of(k_dtype_);
}

size_t KvCache::v_bytes_per_position() const {
  return static_cast<size_t>(n_layers_ * n_kv_heads_ * head_dim_) * size_of(v_dtype_);
}

size_t KvCache::bytes() const {
  size_t total = 0;
  for (const auto& buffer : buffers_) total += buffer.bytes();
  return total;
}

void KvCache::reserve(int64_t positions) {
  const auto wanted = static_cast<size_t>(ceil_div(positions, kKvPage));
  const auto block_elements = static_cast<size_t>(n_kv_heads_ * kKvPage * head_dim_);
  while (k_blocks_[0].size() < wanted) {
    std::vector<Buffer> block;  // allocated whole before any of it is used
    try {
      for (int64_t i = 0; i < n_layers_; ++i) {
        block.push_back(backend_.allocate(block_elements * size_of(k_dtype_)));
        block.push_back(backend_.allocate(block_elements * size_of(v_dtype_)));
      }
    } catch (const Error& e) {
      const size_t mib = wanted * block_elements * (size_of(k_dtype_) + size_of(v_dtype_)) *
                             static_cast<size_t>(n_layers_) >>
                         20;
      throw Error("KV cache: no memory for " + std::to_string(positions) + " positions (" +
                  std::to_string(mib) + " MiB; " + std::to_string(bytes() >> 20) +
                  " MiB in use): " + e.what() + "; use a shorter --ctx or --kv-dtype f16");
    }
    for (size_t i = 0; i < static_cast<size_t>(n_layers_); ++i) {
      k_blocks_[i].push_back(block[2 * i].data());
      v_blocks_[i].push_back(block[2 * i + 1].data());
      layers_[i].k_blocks = k_blocks_[i].data();
      layers_[i].v_blocks = v_blocks_[i].data();
    }
    for (auto& buffer : block) buffers_.push_back(std::move(buffer));
  }
}

void KvCache::set_frequencies(const RopeFrequencies& clock, bool rerotate) {
  if (rerotate && length_ > 0 && clock.inv_freq != clock_.inv_freq) {
    // The difference is formed in double: p * (f_new - f_old), never two rounded angles subtracted.
    std::vector<double> delta(clock.inv_freq.size());
    for (size_t i = 0; i < delta.size(); ++i) delta[i] = clock.inv_freq[i] - clock_.inv_freq[i];
    backend_.synchronize();
    const auto start = Stopwatch::now();
    backend_.rerotate_keys(layers_, length_, delta, interleaved_);
    backend_.synchronize();
    stats_.seconds += seconds_since(start);
    stats_.count += 1;
    stats_.positions += length_;
  }
  clock_ = clock;
}

void KvCache::truncate(int64_t length) { length_ = std::min(length_, length); }

void KvCache::copy_prefix(const KvCache& from, int64_t length) {
  reserve(length);
  const auto blocks = static_cast<size_t>(ceil_div(length, kKvPage));
  const auto block_elements = static_cast<size_t>(n_kv_heads_ * kKvPage * head_dim_);
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (size_t b = 0; b < blocks; ++b) {
      backend_.copy(k_blocks_[layer][b], from.k_blocks_[layer][b], block_elements * size_of(k_dtype_));
      backend_.copy(v_blocks_[layer][b], from.v_blocks_[layer][b], block_elements * size_of(v_dtype_));
    }
  }
  length_ = length;
  clock_ = from.clock_;
}

}  // namespace lariat
