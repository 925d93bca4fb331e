#pragma once
#include <optional>
#include <span>
#include <string>

#include "models/load/split.h"
#include "models/load/weights.h"
#include "models/spec/spec.h"

namespace lariat {

// kSensitive: small projection with costly errors: 8 bits where others get 4. kPerExpert: one vector per
// expert. kPrefill: only for long steps; empty if quantised.
enum class Role { kEmbedding, kProjection, kSensitive, kPrefill, kRouter, kHead, kPerExpert, kVector, kNorm };

inline bool is_vector(Role role) { return role == Role::kVector || role == Role::kNorm; }

// Rows of a tensor of `of` rows: `run` rows from `first`, then from first + stride, and so on.
struct RowRange {
  int64_t of = 0, first = 0, run = 0, stride = 0;
  int64_t swap = 0;  // n > 0, with the whole tensor (of = 0): each n rows change places with the next n
};

// A matrix [out_features, in_features]; a vector has one row.
struct Parameter {
  std::string name;
  int64_t rows = 0, cols = 0;
  Role role = Role::kVector;
  RowRange part;            // if of > rows: rows within the tensor; of a vector: elements
  bool transposed = false;  // returned as [cols, rows]
  bool stacked = false;     // the tensor has a leading dimension of experts; `part` is one expert's rows
  bool ones = false;        // not stored: all values are 1
  // This rank's slice of rows (of a vector: elements) and columns; count 0: whole. Read by WeightLoader only.
  Share own_rows{}, own_cols{};
};

// Matrix without data.
inline Matrix shape_of(const Parameter& parameter, const WeightFormat& format) {
  return parameter.transposed ? Matrix(nullptr, format, parameter.cols, parameter.rows)
                              : Matrix(nullptr, format, parameter.rows, parameter.cols);
}

// Source of parameters: a checkpoint, a random generator, or none (shapes only).
class Source {
 public:
  virtual ~Source() = default;
  // Returns f32; kPerExpert: one vector per expert.
  virtual Matrix vector(const Parameter& parameter) = 0;
  // Blocks have one role. Empty for kPrefill with quantised weights.
  virtual Weight weight(std::span<const Parameter> blocks) = 0;
  // An embedding table: rows are gathered, never multiplied.
  virtual HostWeight table(const Parameter& parameter) { return weight({&parameter, 1}).blocks[0].w; }
};

// own: format of the source.
WeightFormat stored_format(const Parameter& parameter, std::optional<WeightFormat> requested,
                           const WeightFormat& own);
// The head's rows are divided by their length (Baichuan 2).
inline bool has_unit_rows(const Parameter& parameter, const ModelSpec& spec) {
  return spec.unit_head_rows && parameter.role == Role::kHead;
}
// Format of a block before conversion. A transposed block is read as floats: its groups of inputs would be
// groups of outputs. A head with unit rows is computed in floats.
inline WeightFormat own_format(const Parameter& parameter, const WeightFormat& own, const ModelSpec& spec) {
  const bool floats = parameter.transposed || has_unit_rows(parameter, spec);
  return floats && is_quantized(own.dtype) ? WeightFormat(spec.dtype) : own;
}
inline bool left_out(Role role, const WeightFormat& stored) {
  return role == Role::kPrefill && is_quantized(stored.dtype);
}

// Loads the rows of host() to a backend and keeps the memory.
class WeightLoader : public Source {
 public:
  WeightLoader(const ModelSpec& spec, Backend& backend, std::optional<WeightFormat> requested);

  Matrix vector(const Parameter& parameter) override { return load({&parameter, 1}).blocks[0].w; }
  Weight weight(std::span<const Parameter> blocks) override;
  // Quantised rows are read from the file on demand if the backend runs in host memory.
  HostWeight table(const Parameter& parameter) override;
  Weights finish(Weights weights);

 protected:
  // once: the matrix is read once, in order.
  virtual HostWeight host(const Parameter& parameter, bool once) = 0;
  // Called after the last read.
  virtual void release_pages(const Parameter&) {}

 private:
  Weight load(std::span<const Parameter> blocks, std::optional<DType> compute = {});
  HostWeight own_part(const Parameter& parameter, bool once);

  const ModelSpec& spec_;
  Backend& backend_;
  std::optional<WeightFormat> requested_;
  std::vector<Buffer> memory_;
};

// All weights of a model, under the checkpoint's tensor names, if any. requested: format of the projections.
// split: the parts of a rank; the embedding table stays whole.
Weights read_weights(const ModelSpec& spec, const Tensors* checkpoint, Source& source,
                     std::optional<WeightFormat> requested, const Split& split = {});

struct Layout;  // tensor_names.h
LayerWeights read_layer(const ModelSpec& spec, size_t index, const Layout& layout, Source& source,
                        const Split& split = {});
Norm read_norm(const ModelSpec& spec, const std::string& name, int64_t size, Source& source);

}  // namespace lariat
