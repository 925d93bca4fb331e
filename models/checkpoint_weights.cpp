#include <algorithm>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/cpu/parallel.h"
#include "models/tensor_names.h"
#include "models/weight_source.h"

// The weights of a checkpoint, from its tensors.
namespace lariat {
namespace {

// Which row of its tensor is row r of a parameter.
struct RowMap {
  RowRange part;
  int64_t pair_rows = 0;  // StoredTensor::pair_rows

  RowMap(const Parameter& parameter, const StoredTensor& tensor)
      : part(parameter.part), pair_rows(tensor.pair_rows) {}
  bool neighbours(int64_t rows) const { return pair_rows == 0 && (part.of == 0 || part.run == rows); }
  int64_t operator()(int64_t r) const {
    if (part.of > 0) r = part.first + r / part.run * part.stride + r % part.run;
    if (pair_rows == 0) return r;
    const int64_t half = pair_rows / 2, in_head = r % pair_rows;
    return r - in_head + 2 * (in_head % half) + in_head / half;
  }
};

// A tensor whose elements lie apart.
Matrix strided(const StoredTensor& tensor, std::vector<std::byte>& gathered) {
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  const size_t size = size_of(tensor.float_dtype());
  gathered.resize(static_cast<size_t>(rows * cols) * size);
  for_ranges(cores(), rows, 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first * cols; i < last * cols; ++i) {
      const int64_t at = tensor.first + i / cols * tensor.row_step + i % cols * tensor.col_step;
      std::memcpy(gathered.data() + static_cast<size_t>(i) * size,
                  tensor.data + at * static_cast<int64_t>(size), size);
    }
  });
  return {gathered.data(), tensor.float_dtype(), rows, cols};
}

// The rows of a tensor of floats that a parameter is: in place where they are neighbours, else put together
// in `gathered`. A vector that is part of another is a column of rows of one element.
Matrix float_rows(const StoredTensor& tensor, const Parameter& parameter, std::vector<std::byte>& gathered) {
  const RowMap map(parameter, tensor);
  const bool vector = is_vector(parameter.role);
  const int64_t rows = vector ? parameter.cols : parameter.rows, cols = vector ? 1 : parameter.cols;
  const DType dtype = tensor.float_dtype();
  const size_t row_bytes = static_cast<size_t>(cols) * size_of(dtype);
  if (tensor.col_step > 0) return strided(tensor, gathered);
  const std::byte* data =
      tensor.data + (map.neighbours(rows) ? static_cast<size_t>(map.part.first) * row_bytes : 0);
  if (!map.neighbours(rows)) {
    gathered.resize(static_cast<size_t>(rows) * row_bytes);
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(gathered.data() + static_cast<size_t>(r) * row_bytes,
                  tensor.data + static_cast<size_t>(map(r)) * row_bytes, row_bytes);
    }
    data = gathered.data();
  }
  return {const_cast<std::byte*>(data), dtype, parameter.rows, parameter.cols};
}

HostWeight code_rows(const StoredTensor& tensor, const Parameter& parameter) {
  const auto read = [codes = tensor.codes, map = RowMap(parameter, tensor)](int64_t row, const CodeRow& to) {
    codes->read_codes(map(row), to);
  };
  return {tensor.codes->m.form(), parameter.rows, parameter.cols, read};
}

// Those of a whole tensor, read once and in order, by each thread its share: memory goes back while
// they are, so that a large tensor is never there twice.
HostWeight passing_rows(const StoredTensor& tensor, const Parameter& parameter, const Tensors& checkpoint) {
  HostWeight rows = code_rows(tensor, parameter);
  const size_t row_bytes = tensor.bytes / static_cast<size_t>(parameter.rows);
  const auto run = std::max<int64_t>(1, (int64_t{1} << 20) / static_cast<int64_t>(row_bytes + 1));
  rows.read_codes = [=, &tensor, &checkpoint, read = rows.read_codes](int64_t row, const CodeRow& to) {
    read(row, to);
    const auto behind = static_cast<size_t>(row + 1);
    if ((row + 1) % run == 0)
      checkpoint.give_back(tensor, (behind - static_cast<size_t>(run)) * row_bytes, behind * row_bytes);
  };
  return rows;
}

class CheckpointWeights : public WeightLoader {
 public:
  CheckpointWeights(const ModelSpec& spec, const Tensors& checkpoint, Backend& backend,
                    std::optional<Form> asked)
      : WeightLoader(spec, backend, asked), spec_(spec), checkpoint_(checkpoint) {}

 private:
  const StoredTensor& tensor(const Parameter& parameter) const {
    return checkpoint_.get(parameter.name, stored_shape(parameter));
  }
  Form own_form(const Parameter& parameter) const override { return tensor(parameter).form(); }
  HostWeight host(const Parameter& parameter, bool once, std::vector<std::byte>& made) override {
    const StoredTensor& from = tensor(parameter);
    once = once && parameter.part.of == 0 && from.pair_rows == 0;
    if (from.codes) return once ? passing_rows(from, parameter, checkpoint_) : code_rows(from, parameter);
    const Matrix floats = float_rows(from, parameter, made);
    const float one = parameter.role == Role::kNorm && spec_.norm_plus_one ? 1.0F : 0.0F;
    if (one == 0 && from.plus == 0) return floats;
    std::vector<std::byte> sums(static_cast<size_t>(parameter.cols) * sizeof(float));
    for (int64_t i = 0; i < parameter.cols; ++i)
      store_f32(sums.data(), DType::kF32, i, load_f32(floats.data, floats.dtype, i) + from.plus + one);
    made = std::move(sums);
    return Matrix(made.data(), DType::kF32, 1, parameter.cols);
  }
  void give_back(const Parameter& parameter) override { checkpoint_.give_back(tensor(parameter)); }

  const ModelSpec& spec_;
  const Tensors& checkpoint_;
};

}  // namespace

Weights load_weights(const ModelSpec& spec, const Tensors& checkpoint, Backend& backend,
                     std::optional<Form> asked) {
  CheckpointWeights source(spec, checkpoint, backend, asked);
  return source.finish(read_weights(spec, &checkpoint, source, asked));
}

}  // namespace lariat
