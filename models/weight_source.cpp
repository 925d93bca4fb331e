#include "models/weight_source.h"

#include <algorithm>
#include <cstring>

#include "kernels/error.h"
#include "kernels/search_quant.h"

namespace lariat {
namespace {

Matrix transposed(const Matrix& matrix, std::vector<std::byte>& storage) {
  const size_t element = size_of(matrix.dtype);
  std::vector<std::byte> out(static_cast<size_t>(matrix.rows * matrix.cols) * element);
  const auto* from = static_cast<const std::byte*>(matrix.data);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t col = 0; col < matrix.cols; ++col) {
      std::memcpy(out.data() + static_cast<size_t>(col * matrix.rows + row) * element,
                  from + static_cast<size_t>(row * matrix.stride + col) * element, element);
    }
  }
  storage = std::move(out);
  return {storage.data(), matrix.dtype, matrix.cols, matrix.rows};
}

Matrix floats_of(const HostWeight& codes, std::vector<std::byte>& storage) {
  storage.resize(static_cast<size_t>(codes.m.rows * codes.m.cols) * sizeof(float));
  const Matrix floats(storage.data(), DType::kF32, codes.m.rows, codes.m.cols);
  read_floats(codes, 0, floats);
  return floats;
}

// Throws Error where the backend takes no weights of this dtype, with what to do.
void check_quantizes(const Backend& backend, DType dtype, const char* instead) {
  if (!is_quantized(dtype) || backend.traits().quantizes) return;
  throw Error("weights in " + std::string(name_of(dtype)) + " do not run on " + backend.name() +
              " yet; use `device` cpu, or " + instead);
}

// The dtype that the inputs of a weight of these blocks are rounded to. A router's are not: that would choose
// other experts.
DType compute_of(Role role, std::span<const Form> stored) {
  if (role == Role::kRouter) return DType::kF32;
  const bool bf16 =
      std::all_of(stored.begin(), stored.end(), [](const Form& form) { return form.dtype == DType::kBF16; });
  return bf16 ? DType::kBF16 : DType::kF32;
}

}  // namespace

Form stored_form(const Parameter& parameter, std::optional<Form> asked, const Form& own) {
  const Role role = parameter.role;
  if (is_vector(role) || role == Role::kRows)
    return DType::kF32;  // tiny and read by f32 code: f32 once and for all
  // A router is small, and an error in it chooses another expert.
  if (role == Role::kRouter) return is_quantized(own.dtype) ? Form(DType::kF32) : own;
  if (!asked || !is_quantized(asked->dtype)) return asked.value_or(own);
  const bool is_searched = !asked->grouping.plain();
  if (role == Role::kEmbedding) return own;
  if (role == Role::kHead || (role == Role::kSensitive && is_searched)) return DType::kQ8;
  return is_searched ? searched_form(asked->dtype, parameter.transposed ? parameter.rows : parameter.cols)
                     : *asked;
}

WeightLoader::WeightLoader(const ModelSpec& spec, Backend& backend, std::optional<Form> asked)
    : spec_(spec), backend_(backend), asked_(asked) {
  if (asked) check_quantizes(backend, asked->dtype, "leave `quantize` out");
}

Weight WeightLoader::weight(std::span<const Parameter> blocks) {
  const Form own = own_form(blocks[0]);
  return left_out(blocks[0].role, stored_form(blocks[0], asked_, own)) ? Weight() : load(blocks);
}

HostWeight WeightLoader::table(const Parameter& parameter) {
  const Form own = own_form(parameter);
  const bool stays = is_quantized(own.dtype) && stored_form(parameter, asked_, own) == own;
  if (!stays || !backend_.traits().host_memory) return Source::table(parameter);
  std::vector<std::byte> made;
  HostWeight rows = host(parameter, false, made);
  give_back(parameter);
  return rows;
}

Weights WeightLoader::finish(Weights weights) {
  weights.memory = std::move(memory_);
  weights.host = std::move(host_);
  return weights;
}

Weight WeightLoader::load(std::span<const Parameter> blocks) {
  std::vector<HostWeight> from;
  std::vector<Form> stored;
  std::vector<std::vector<std::byte>> made(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Parameter& block = blocks[i];
    from.push_back(host(block, true, made[i]));
    Form own = from[i].m.form();
    if (block.transposed) {
      if (from[i].read_codes) {  // groups of inputs would be of outputs
        own = spec_.dtype;
        from[i] = floats_of(from[i], made[i]);
      }
      from[i] = transposed(from[i].m, made[i]);
    }
    stored.push_back(stored_form(block, asked_, own));
    check_quantizes(backend_, stored[i].dtype, "`dtype` bf16");
  }
  LoadedWeight loaded = backend_.load_weight(from, stored, compute_of(blocks[0].role, stored));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool in_place = from[i].m && loaded.weight.blocks[i].w.data == from[i].m.data;
    if (!in_place || !made[i].empty()) give_back(blocks[i]);
    if (in_place && !made[i].empty()) host_.push_back(std::move(made[i]));
  }
  if (loaded.memory.data() != nullptr) memory_.push_back(std::move(loaded.memory));
  return std::move(loaded.weight);
}

}  // namespace lariat
