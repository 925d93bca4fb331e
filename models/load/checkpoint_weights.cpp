#include <algorithm>
#include <cmath>

#include "kernels/convert.h"
#include "models/load/tensor_names.h"
#include "models/load/weight_source.h"

namespace lariat {
namespace {

bool is_contiguous(const Parameter& parameter) {
  const RowRange& part = parameter.part;
  if (part.of == 0) return part.swap == 0;
  return part.run == (is_vector(parameter.role) ? parameter.cols : parameter.rows);
}

// Maps a parameter's row (vector: element) to the tensor's.
auto index_in(const RowRange& part) {
  return [part](int64_t r) {
    if (part.of > 0) return part.first + r / part.run * part.stride + r % part.run;
    return part.swap == 0 ? r : r + (r / part.swap % 2 == 0 ? part.swap : -part.swap);
  };
}

HostWeight with_unit_rows(HostWeight from, const WeightFormat& format) {
  const int64_t rows = from.m.rows, cols = from.m.cols;
  const auto read = [from = std::move(from), dtype = format.dtype, cols](int64_t row, const CodeRow& to) {
    std::vector<float> values(static_cast<size_t>(cols));
    read_floats(from, row, {values.data(), DType::kF32, 1, cols});
    double sum = 0.0;
    for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
    const auto length = static_cast<float>(std::max(std::sqrt(sum), 1e-12));
    for (int64_t i = 0; i < cols; ++i) store_f32(to.codes, dtype, i, values[static_cast<size_t>(i)] / length);
  };
  return {format, rows, cols, read};
}

HostWeight ones(int64_t cols) {
  return {DType::kF32, 1, cols, [cols](int64_t, const CodeRow& to) {
            for (int64_t i = 0; i < cols; ++i) store_f32(to.codes, DType::kF32, i, 1.0F);
          }};
}

class CheckpointWeights : public WeightLoader {
 public:
  CheckpointWeights(const ModelSpec& spec, const Tensors& checkpoint, Backend& backend,
                    std::optional<WeightFormat> requested)
      : WeightLoader(spec, backend, requested), spec_(spec), checkpoint_(checkpoint) {}

 private:
  const StoredTensor& tensor(const Parameter& parameter) const {
    return checkpoint_.get(parameter.name, stored_shape(parameter));
  }
  // Uses the file's memory if it holds identical floats.
  HostWeight host(const Parameter& parameter, bool once) override {
    if (parameter.ones) return ones(parameter.cols);
    const StoredTensor& from = tensor(parameter);
    const Matrix in_place = is_contiguous(parameter) ? from.rows().m : Matrix();
    if (is_vector(parameter.role)) {
      const float plus = parameter.role == Role::kNorm && spec_.norm_plus_one ? 1.0F : 0.0F;
      if (in_place && plus == 0) return in_place.column_range(parameter.part.first, parameter.cols);
      return elements_of(from, parameter.cols, index_in(parameter.part), plus);
    }
    if (has_unit_rows(parameter, spec_))
      return with_unit_rows(rows_of(from, parameter.rows, index_in(parameter.part)),
                            own_format(parameter, from.format(), spec_));
    if (in_place) return in_place.row_range(parameter.part.first, parameter.rows);
    HostWeight rows = rows_of(from, parameter.rows, index_in(parameter.part));
    if (once && is_contiguous(parameter)) release_while_reading(parameter, from, rows);
    return rows;
  }
  // Each thread reads its share in order, once: a large tensor is never in memory twice.
  void release_while_reading(const Parameter& parameter, const StoredTensor& from, HostWeight& rows) const {
    const auto row_bytes = static_cast<int64_t>(from.bytes) / rows_in(parameter);
    const int64_t run = std::max<int64_t>(1, (int64_t{1} << 20) / (row_bytes + 1));
    rows.read_row = [=, this, &from, first = parameter.part.first, read = std::move(rows.read_row)](
                        int64_t row, const CodeRow& to) {
      read(row, to);
      const int64_t end = first + row + 1;
      if ((row + 1) % run == 0)
        checkpoint_.release_pages(from, static_cast<size_t>((end - run) * row_bytes),
                                  static_cast<size_t>(end * row_bytes));
    };
  }
  static int64_t rows_in(const Parameter& parameter) { return std::max(parameter.rows, parameter.part.of); }
  void release_pages(const Parameter& parameter) override {
    if (parameter.ones) return;
    const StoredTensor& from = tensor(parameter);
    if (!parameter.stacked) return checkpoint_.release_pages(from);
    const size_t row_bytes = from.bytes / static_cast<size_t>(rows_in(parameter)),
                 first = static_cast<size_t>(parameter.part.first) * row_bytes;
    checkpoint_.release_pages(from, first, first + static_cast<size_t>(parameter.rows) * row_bytes);
  }

  const ModelSpec& spec_;
  const Tensors& checkpoint_;
};

}  // namespace

Weights load_weights(const ModelSpec& spec, const Tensors& checkpoint, Backend& backend,
                     std::optional<WeightFormat> requested, const Split& split) {
  CheckpointWeights source(spec, checkpoint, backend, requested);
  return source.finish(read_weights(spec, &checkpoint, source, requested, split));
}

}  // namespace lariat
