#pragma once
#include <cstdint>
#include <vector>

#include "kernels/communicator.h"
#include "models/spec/spec.h"

// Tensor parallelism (Megatron-LM, arXiv 1909.08053): several processes (ranks) divide each layer's heads and
// inner values, and the rows of the head. Each rank holds its rows of q, k, v, gate and up, and its columns
// of o and down, whose partial products are summed over the ranks. The KV cache is divided like the heads or
// by pages (DividedCache).
namespace lariat {

struct Weights;

// Consecutive heads, inner values or rows of one rank.
struct Share {
  int64_t first = 0, count = 0;
};

// Number of the heads of all ranks.
inline int64_t heads_of(const std::vector<Share>& parts) { return parts.back().first + parts.back().count; }

// A layer's parts, one per rank; dimensions that the layer lacks have counts of 0.
struct LayerSplit {
  std::vector<Share> heads, kv_heads;  // a KV head is on every rank that has one of its query heads
  std::vector<Share> inner, expert_inner;
};

// One of the processes that divide a model.
struct Place {
  int rank = 0, ranks = 1;
  bool by_sequence = false;  // page i of a sequence's cache is on rank i % ranks only; false: heads

  int owner_of(int64_t page) const { return by_sequence ? static_cast<int>(page % ranks) : rank; }
  bool owns(int64_t page) const { return owner_of(page) == rank; }
};

struct Split : Place {
  std::vector<LayerSplit> layers;
  std::vector<Share> vocab;  // rows of the head

  const Share& of(const std::vector<Share>& parts) const { return parts[static_cast<size_t>(rank)]; }
};

// Divides a model. planned: the formats of its weights (planned_weights): the columns of a
// quantized o or down are divided between groups, or between blocks of nested scales. Shares differ by at
// most one such unit. Throws Error with the largest possible number of ranks if there are more.
Split split_of(const ModelSpec& spec, const Weights& planned, const Place& place);

// The model that a rank runs: its heads and inner values; the vocabulary stays whole.
ModelSpec part_of(const ModelSpec& spec, const Split& split);

// Collects matrices side by side: `mine` are the columns parts[rank] * width of `all` (f32, host memory). to
// rank 0 only, or to every rank.
void gather_columns(Communicator& ranks, const Matrix& mine, const std::vector<Share>& parts, int64_t width,
                    const Matrix& all, bool to_every_rank);

}  // namespace lariat
