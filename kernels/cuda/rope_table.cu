#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

struct Rows {
  float *cos, *sin, *q_scale;
  int64_t cos_stride, sin_stride, q_scale_stride;
};

// Behind the pairs of a row of frequencies.
constexpr int64_t kScaleWords = 4;  // q_scale, log_beta, log_ctx, log_steps of the sequence

// frequencies: [sequences][pairs + kScaleWords].
// One thread per (row, pair). Bound by double arithmetic; a table serves every layer of a step.
__global__ void rope_table_kernel(DeviceStep step, int64_t n_rows, const double* frequencies,
                                  AxisPositions axes, int64_t pairs, Rows rows) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t row = i / pairs, pair = i % pairs;
  if (row >= n_rows) return;
  const StepRow at = step.row(row);
  const double* inv_freq = frequencies + at.sequence * (pairs + kScaleWords);
  double sine = 0.0, cosine = 0.0;
  const double position =
      axes.axes == nullptr ? static_cast<double>(at.position) : axes.at(at.sequence, pairs, row, pair);
  sincos(position * inv_freq[pair], &sine, &cosine);
  rows.cos[row * rows.cos_stride + pair] = static_cast<float>(cosine);
  rows.sin[row * rows.sin_stride + pair] = static_cast<float>(sine);
  if (pair > 0) return;
  double scale = inv_freq[pairs];
  const double log_beta = inv_freq[pairs + 1];
  if (log_beta != 0.0) {
    const auto ctx = static_cast<int64_t>(inv_freq[pairs + 2]), past = at.position + 1 - ctx;
    const int64_t beyond = inv_freq[pairs + 3] != 0.0 ? at.position / ctx * ctx : past > 0 ? past : 0;
    scale *= 1.0 + log_beta * log1p(static_cast<double>(beyond) / static_cast<double>(ctx));
  }
  rows.q_scale[row * rows.q_scale_stride] = static_cast<float>(scale);
}

}  // namespace

void CudaBackend::rope_table(const Step& step, std::span<const SequenceRope> ropes, const RopeTable& table) {
  constexpr unsigned kThreads = 128;
  const int64_t pairs = table.rotary_dim / 2;
  const SequenceTables& tables = enter(step);
  if (tables.rows * pairs == 0) return;
  std::vector<double> frequencies;
  for (const SequenceRope& rope : ropes) {
    frequencies.insert(frequencies.end(), rope.inv_freq.begin(), rope.inv_freq.end());
    frequencies.insert(frequencies.end(), {static_cast<double>(rope.q_scale), rope.log_beta,
                                           static_cast<double>(rope.log_ctx), rope.log_steps ? 1.0 : 0.0});
  }
  const size_t axes_at = frequencies.size(), n_axes = ropes.size() * static_cast<size_t>(pairs);
  const bool axes = append_axis_positions(ropes, step.sequences, static_cast<size_t>(pairs), frequencies);
  const double* words = send_frequencies(frequencies);
  launch(rope_table_kernel, dim3(to_unsigned(ceil_div<int64_t>(tables.rows * pairs, kThreads))),
         dim3(kThreads), 0, stream(), on_device(tables), tables.rows, words,
         axes ? AxisPositions{words + axes_at, words + axes_at + n_axes} : AxisPositions{}, pairs,
         Rows{typed<float>(table.cos), typed<float>(table.sin), typed<float>(table.q_scale), table.cos.stride,
              table.sin.stride, table.q_scale.stride});
}

}  // namespace lariat
