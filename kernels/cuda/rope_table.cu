#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

struct Rows {
  float *cos, *sin, *q_scale, *whole_q_scale;
  int64_t cos_stride, sin_stride, q_scale_stride, whole_q_scale_stride;
};

// frequencies: [sequences][pairs frequencies, pairs phases, q_scale]. whole_q_scale: [rows], or null. One
// thread per (row, pair). Bound by double arithmetic.
__global__ void rope_table_kernel(DeviceStep step, int64_t n_rows, const double* frequencies,
                                  AxisPositions axes, const double* whole_q_scale, int64_t pairs, Rows rows) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t row = i / pairs, pair = i % pairs;
  if (row >= n_rows) return;
  const StepRow at = step.row(row);
  const double* inv_freq = frequencies + at.sequence * (2 * pairs + 1);
  double sine = 0.0, cosine = 0.0;
  const double position =
      axes.axes == nullptr ? static_cast<double>(at.position) : axes.at(at.sequence, pairs, row, pair);
  sincos(position * inv_freq[pair] + inv_freq[pairs + pair], &sine, &cosine);
  rows.cos[row * rows.cos_stride + pair] = static_cast<float>(cosine);
  rows.sin[row * rows.sin_stride + pair] = static_cast<float>(sine);
  if (pair > 0) return;
  rows.q_scale[row * rows.q_scale_stride] = static_cast<float>(inv_freq[2 * pairs]);
  if (whole_q_scale != nullptr)
    rows.whole_q_scale[row * rows.whole_q_scale_stride] = static_cast<float>(whole_q_scale[row]);
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
    for (size_t j = 0; j < rope.inv_freq.size(); ++j)
      frequencies.push_back(rope.phases.empty() ? 0.0 : rope.phases[j]);
    frequencies.push_back(static_cast<double>(rope.q_scale));
  }
  const size_t axes_at = frequencies.size(), n_axes = ropes.size() * static_cast<size_t>(pairs);
  const bool axes =
      std::any_of(ropes.begin(), ropes.end(), [](const auto& rope) { return !rope.positions.empty(); });
  if (axes) append_axes(ropes, static_cast<size_t>(pairs), frequencies);
  for (size_t s = 0; axes && s < ropes.size(); ++s)
    append_positions(ropes[s].positions, !ropes[s].axes.empty(), step.sequences[s], frequencies);
  const size_t whole_at = frequencies.size();
  for (size_t s = 0; table.whole_q_scale && s < ropes.size(); ++s) {
    for (int64_t i = 0; i < step.sequences[s].n_tokens; ++i)
      frequencies.push_back(static_cast<double>(ropes[s].whole_q_scale_of(i)));
  }
  const double* words = send_frequencies(frequencies);
  launch(rope_table_kernel, dim3(to_unsigned(ceil_div<int64_t>(tables.rows * pairs, kThreads))),
         dim3(kThreads), 0, stream(), on_device(tables), tables.rows, words,
         axes ? AxisPositions{words + axes_at, words + axes_at + n_axes} : AxisPositions{},
         table.whole_q_scale ? words + whole_at : nullptr, pairs,
         Rows{typed<float>(table.cos), typed<float>(table.sin), typed<float>(table.q_scale),
              typed<float>(table.whole_q_scale), table.cos.stride, table.sin.stride, table.q_scale.stride,
              table.whole_q_scale.stride});
}

}  // namespace lariat
