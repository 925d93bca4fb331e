#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

struct Rows {
  float *cos, *sin, *q_scale;
  int64_t cos_stride, sin_stride, q_scale_stride;
};

// frequencies: [sequences][pairs + 1], the last of a row is the sequence's q_scale.
// One thread per (row, pair). Bound by double arithmetic; a table serves every layer of a step.
__global__ void rope_table_kernel(Step step, int64_t n_rows, const double* frequencies, int64_t pairs,
                                  Rows rows) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t row = i / pairs, pair = i % pairs;
  if (row >= n_rows) return;
  const StepRow at = step.row(row);
  const double* inv_freq = frequencies + at.sequence * (pairs + 1);
  double sine = 0.0, cosine = 0.0;
  sincos(static_cast<double>(at.position) * inv_freq[pair], &sine, &cosine);
  rows.cos[row * rows.cos_stride + pair] = static_cast<float>(cosine);
  rows.sin[row * rows.sin_stride + pair] = static_cast<float>(sine);
  if (pair == 0) rows.q_scale[row * rows.q_scale_stride] = static_cast<float>(inv_freq[pairs]);
}

}  // namespace

void CudaBackend::rope_table(std::span<const SequenceRope> ropes, const RopeTable& table) {
  constexpr unsigned kThreads = 128;
  const int64_t pairs = table.rotary_dim / 2;
  if (step_.rows * pairs == 0) return;
  std::vector<double> frequencies;
  for (const SequenceRope& rope : ropes) {
    frequencies.insert(frequencies.end(), rope.inv_freq.begin(), rope.inv_freq.end());
    frequencies.push_back(static_cast<double>(rope.q_scale));
  }
  reserve(step_.frequencies, frequencies.size());
  send(step_.frequencies, 0, frequencies.data(), frequencies.size());
  launch(rope_table_kernel, dim3(to_unsigned(ceil_div<int64_t>(step_.rows * pairs, kThreads))),
         dim3(kThreads), 0, stream(), on_device(step_), step_.rows,
         static_cast<const double*>(step_.frequencies.device.data()), pairs,
         Rows{typed<float>(table.cos), typed<float>(table.sin), typed<float>(table.q_scale), table.cos.stride,
              table.sin.stride, table.q_scale.stride});
}

}  // namespace lariat
