#include <algorithm>
#include <bit>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dispatch.h"

// Decode steps: a hundred small launches whose queueing costs more than they take, recorded once as a CUDA
// graph and queued as one from then on. What changes at every step, the positions, lies in device memory;
// what changes now and then (the tables of cache blocks, a length that wants more blocks per grid, the
// clock's attention factor, working memory that moved) is in the key of the record.
namespace lariat {
namespace {

using namespace cuda;

constexpr int64_t kShortest = kKvPage;

using Positions = ByValue<int64_t, CudaBackend::kGemvTokens>;

// One block; thread i stores position i.
__global__ void store_positions_kernel(int64_t* to, const __grid_constant__ Positions positions, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) to[i] = positions.value[i];
}

// Grids are planned for a length of two to a power, so that a record lasts until the sequence has doubled.
int64_t step_length(int64_t length) {
  return std::max(kShortest, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length))));
}

}  // namespace

FirstPosition CudaBackend::step_position(const RopeTable& rope, int64_t first_position) const {
  if (!steps_.inside || rope.step_row < 0) return {first_position, nullptr};
  // No kernel may take the value: the next step has another.
  return {INT64_MIN, static_cast<const int64_t*>(steps_.positions.data()) + rope.step_row};
}

int64_t CudaBackend::planned_length(const RopeTable& rope, int64_t length) const {
  return steps_.inside && rope.step_row >= 0 ? step_length(length) : length;
}

// All that a recorded launch holds and another step may have differently. Brings the tables of cache blocks
// up to date, which the launches of a record take for granted.
std::vector<uint64_t> CudaBackend::step_key(const DecodeStep& step) {
  std::vector<uint64_t> key(step.constants.begin(), step.constants.end());
  key.push_back(scratch_moves_);
  for (size_t i = 0; i < step.positions.size(); ++i) {
    const int64_t length = step.positions[i] + 1;
    key.push_back(static_cast<uint64_t>(step_length(length)));
    for (const KvLayer& layer : step.caches[i]) {
      for (void* const* blocks : {layer.k_blocks, layer.v_blocks}) {
        key.push_back(reinterpret_cast<uintptr_t>(device_blocks(blocks, length)));
      }
    }
  }
  return key;
}

void CudaBackend::forget_graph() noexcept {
  if (steps_.graph != nullptr) graph_destroy(steps_.graph);
  steps_.graph = nullptr;
  steps_.graph_key.clear();
}

void CudaBackend::record_step(StepOps ops) {
  forget_graph();
  capture_begin(stream_);
  try {
    ops();
  } catch (...) {
    capture_abandon(stream_);
    throw;
  }
  steps_.graph = capture_end(stream_);
}

void CudaBackend::run_step(const DecodeStep& step, StepOps ops) {
  if (step.positions.size() > kGemvTokens)
    return ops();  // enough work per launch; and cuBLAS has its own memory
  if (steps_.positions.bytes() == 0) steps_.positions = allocate(sizeof(Positions));
  launch(store_positions_kernel, dim3(1), dim3(kWarpSize), 0, stream_,
         static_cast<int64_t*>(steps_.positions.data()),
         by_value<int64_t, kGemvTokens>(step.positions, 0, step.positions.size()),
         static_cast<int>(step.positions.size()));
  struct Inside {
    bool& flag;
    explicit Inside(bool& f) : flag(f) { flag = true; }
    ~Inside() { flag = false; }
  };
  std::vector<uint64_t> key = step_key(step);
  if (steps_.graph != nullptr && key == steps_.graph_key) {
    ++steps_.counts.replayed;
  } else if (key != steps_.last_key) {
    // The first of its kind: there may be no second, and it may need memory that a record cannot allocate.
    const Inside inside(steps_.inside);
    ops();
    ++steps_.counts.direct;
    steps_.last_key = step_key(step);
    return;
  } else {
    const Inside inside(steps_.inside);
    record_step(ops);
    steps_.graph_key = std::move(key);
    ++steps_.counts.recorded;
  }
  graph_launch(steps_.graph, stream_);
}

}  // namespace lariat
