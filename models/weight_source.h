#pragma once
#include <optional>
#include <span>
#include <string>

#include "models/spec.h"
#include "models/weights.h"

// How a model asks for its matrices: what the files that read, plan and make weights share.
namespace lariat {

// kSensitive: a small projection whose errors cost more: 8 bits where others get 4. kPerExpert: a vector for
// each expert. kPrefill: used by long steps only; an empty matrix where weights are quantised.
enum class Role { kEmbedding, kProjection, kSensitive, kPrefill, kRouter, kHead, kPerExpert, kVector, kNorm };

inline bool is_vector(Role role) { return role == Role::kVector || role == Role::kNorm; }

// Rows of a tensor of `of` rows: `run` from `first` on, then from first + stride, and so on until there are
// as many as the parameter has.
struct RowRange {
  int64_t of = 0, first = 0, run = 0, stride = 0;
};

// A matrix of a model. rows x cols as [out_features, in_features]; a vector has one row.
struct Parameter {
  std::string name;
  int64_t rows = 0, cols = 0;
  Role role = Role::kVector;
  RowRange part;            // where of > rows: which of the tensor's rows; of a vector: which of its elements
  bool transposed = false;  // handed out as [cols, rows]
  bool stacked = false;     // the tensor has a dimension of experts in front; `part` has the rows of one
};

// Its shape as it is handed out, without data.
inline Matrix shape_of(const Parameter& parameter, const WeightFormat& form) {
  return parameter.transposed ? Matrix(nullptr, form, parameter.cols, parameter.rows)
                              : Matrix(nullptr, form, parameter.rows, parameter.cols);
}

// The origin of a model's parameters: a checkpoint, a random generator, or nowhere, for their shapes alone.
class Source {
 public:
  virtual ~Source() = default;
  // One row, or kPerExpert, as f32.
  virtual Matrix vector(const Parameter& parameter) = 0;
  // A weight of these blocks, which have one role; nothing where kPrefill says so.
  virtual Weight weight(std::span<const Parameter> blocks) = 0;
  // A matrix of which tokens read rows, and nobody all.
  virtual HostWeight table(const Parameter& parameter) { return weight({&parameter, 1}).blocks[0].w; }
};

// What a matrix is stored as when projections are asked to be of a form, and it is made from `own`.
WeightFormat stored_form(const Parameter& parameter, std::optional<WeightFormat> requested,
                         const WeightFormat& own);
inline bool left_out(Role role, const WeightFormat& stored) {
  return role == Role::kPrefill && is_quantized(stored.dtype);
}

// Has a backend load the rows that host() finds for each block, and keeps the memory that this takes.
class WeightLoader : public Source {
 public:
  // Throws Error where the backend does not quantise what is to be quantised.
  WeightLoader(const ModelSpec& spec, Backend& backend, std::optional<WeightFormat> requested);

  Matrix vector(const Parameter& parameter) override { return load({&parameter, 1}).blocks[0].w; }
  Weight weight(std::span<const Parameter> blocks) override;
  // Of codes a token's row is made from the file when it comes up, where the backend could.
  HostWeight table(const Parameter& parameter) override;
  // The weights that were read here, with the memory that they lie in.
  Weights finish(Weights weights);

 protected:
  // The matrix at its origin, to be read in order and `once`, or at any time.
  virtual HostWeight host(const Parameter& parameter, bool once) = 0;
  // Nobody will read the host's matrix any more.
  virtual void give_back(const Parameter&) {}

 private:
  Weight load(std::span<const Parameter> blocks, std::optional<DType> compute = {});

  const ModelSpec& spec_;
  Backend& backend_;
  std::optional<WeightFormat> requested_;
  std::vector<Buffer> memory_;
};

// All weights of a model, whose tensors have the names that the checkpoint, if there is one, has for them.
// requested: what projections are to be stored as.
Weights read_weights(const ModelSpec& spec, const Tensors* checkpoint, Source& source,
                     std::optional<WeightFormat> requested);

// A layer's weights, and the norm `name`.
struct Layout;  // of tensor_names.h
LayerWeights read_layer(const ModelSpec& spec, size_t index, const Layout& layout, Source& source);
Norm read_norm(const ModelSpec& spec, const std::string& name, int64_t size, Source& source);

}  // namespace lariat
