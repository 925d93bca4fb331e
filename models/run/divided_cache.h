#pragma once
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/load/split.h"

namespace lariat {

// A KV cache whose pages are dealt to ranks (Split::by_sequence). Each rank stores all heads of its pages and
// attends over them with the queries of all heads. Partial results are merged by largest score and sum
// (FlashDecoding, https://crfm.stanford.edu/2023/10/12/flashdecoding.html). Host memory only.
class DividedCache {
 public:
  DividedCache(Backend& backend, const Split& split, Communicator& ranks)
      : backend_(backend), split_(split), ranks_(ranks) {}

  struct KeysAndValues {
    Matrix k, v;
  };
  // Gathers the keys and values of all heads; valid until the next call.
  KeysAndValues all_heads(size_t layer, const Matrix& k, const Matrix& v, int64_t head_dim);
  // Backend::attention for q and out of this rank's heads. params: of all heads.
  void attention(size_t layer, const Step& step, const Matrix& q, std::span<const KeyRange> ranges,
                 const KvLayer& cache, const AttentionParams& params, const Matrix& out);

 private:
  void weigh(const Matrix& state, const Matrix& out) const;

  Backend& backend_;
  const Split& split_;
  Communicator& ranks_;
  std::vector<float> k_, v_, q_, out_, state_;
};

}  // namespace lariat
