#include "models/load/weight_source.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/error.h"
#include "kernels/search_quant.h"

namespace lariat {
namespace {

HostWeight transposed(const HostWeight& from) {
  Matrix m = from.m;
  const auto floats = std::make_shared<std::vector<float>>();
  if (!m) {
    floats->resize(static_cast<size_t>(m.rows * m.cols));
    m = Matrix(floats->data(), DType::kF32, m.rows, m.cols);
    read_floats(from, 0, m);
  }
  const auto read = [m, floats](int64_t col, const CodeRow& to) {
    const size_t element = size_of(m.dtype);
    for (int64_t row = 0; row < m.rows; ++row)
      std::memcpy(to.codes + static_cast<size_t>(row) * element,
                  m.row_range(row, 1).column_range(col, 1).data, element);
  };
  return {m.dtype, m.cols, m.rows, read};
}

// Rounding a router's inputs could choose other experts.
DType compute_of(Role role, std::span<const WeightFormat> stored) {
  if (role == Role::kRouter) return DType::kF32;
  const bool bf16 = std::all_of(stored.begin(), stored.end(),
                                [](const WeightFormat& format) { return format.dtype == DType::kBF16; });
  return bf16 ? DType::kBF16 : DType::kF32;
}

}  // namespace

WeightFormat stored_format(const Parameter& parameter, std::optional<WeightFormat> requested,
                           const WeightFormat& own) {
  const Role role = parameter.role;
  if (is_vector(role) || role == Role::kPerExpert) return DType::kF32;  // small, and read by f32 code
  // A router is small, and its errors choose other experts.
  if (role == Role::kRouter) return is_quantized(own.dtype) ? WeightFormat(DType::kF32) : own;
  if (!requested || !is_quantized(requested->dtype)) return requested.value_or(own);
  const bool is_searched = !requested->grouping.plain();
  if (role == Role::kEmbedding) return own;
  if (role == Role::kHead || (role == Role::kSensitive && is_searched)) return DType::kQ8;
  return is_searched
             ? searched_format(requested->dtype, parameter.transposed ? parameter.rows : parameter.cols)
             : *requested;
}

WeightLoader::WeightLoader(const ModelSpec& spec, Backend& backend, std::optional<WeightFormat> requested)
    : spec_(spec), backend_(backend), requested_(requested) {}

// The rank's part of the source matrix.
HostWeight WeightLoader::own_part(const Parameter& parameter, bool once) {
  HostWeight all = host(parameter, once);
  const bool vector = is_vector(parameter.role);
  const Share &rows = vector ? Share() : parameter.own_rows,
              &cols = vector ? parameter.own_rows : parameter.own_cols;
  if (rows.count > 0) all = rows_of(all, rows.first, rows.count);
  return cols.count > 0 ? columns_of(all, cols.first, cols.count) : all;
}

Weight WeightLoader::weight(std::span<const Parameter> blocks) {
  const WeightFormat own = host(blocks[0], false).m.format();
  return left_out(blocks[0].role, stored_format(blocks[0], requested_, own)) ? Weight() : load(blocks);
}

HostWeight WeightLoader::table(const Parameter& parameter) {
  HostWeight rows = host(parameter, false);
  const WeightFormat own = rows.m.format();
  const bool stays = is_quantized(own.dtype) && stored_format(parameter, requested_, own) == own;
  // Rows are read one by one and keep their order (Traits::copies_bf16).
  if (!stays || !backend_.traits().host_memory) return load({&parameter, 1}, DType::kF32).blocks[0].w;
  release_pages(parameter);
  return rows;
}

Weights WeightLoader::finish(Weights weights) {
  weights.memory = std::move(memory_);
  return weights;
}

Weight WeightLoader::load(std::span<const Parameter> blocks, std::optional<DType> compute) {
  std::vector<HostWeight> from;
  std::vector<WeightFormat> stored;
  for (const Parameter& block : blocks) {
    from.push_back(own_part(block, true));
    stored.push_back(stored_format(block, requested_, own_format(block, from.back().m.format(), spec_)));
    if (block.transposed) from.back() = transposed(from.back());
  }
  LoadedWeight loaded =
      backend_.load_weight(from, stored, compute.value_or(compute_of(blocks[0].role, stored)));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool in_place = from[i].m && loaded.weight.blocks[i].w.data == from[i].m.data;
    if (!in_place) release_pages(blocks[i]);
  }
  if (loaded.memory.data() != nullptr) memory_.push_back(std::move(loaded.memory));
  return std::move(loaded.weight);
}

}  // namespace lariat
