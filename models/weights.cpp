#include "models/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/error.h"
#include "kernels/quant.h"
#include "models/families/gate.h"
#include "models/weight_source.h"

namespace lariat {
namespace {

// What a matrix is stored as when projections are `dtype` and the checkpoint holds `own`.
DType stored_dtype(Role role, std::optional<DType> dtype, DType own) {
  if (is_vector(role)) return DType::kF32;  // tiny and read by f32 code: f32 once and for all
  if (role == Role::kRouter) return own;    // small, and an error in it chooses another expert
  if (!dtype || (role == Role::kEmbedding && is_quantized(*dtype))) return own;
  return role == Role::kHead && is_quantized(*dtype) ? DType::kQ8 : *dtype;
}

bool left_out(Role role, DType stored) { return role == Role::kLongSteps && is_quantized(stored); }

Matrix keep(Weight weight, std::vector<Buffer>& memory) {
  if (weight.memory.data() != nullptr) memory.push_back(std::move(weight.memory));
  return weight.matrix;
}

// A weight whose host memory goes away.
Matrix keep_copy(const Matrix& host, DType dtype, Backend& backend, std::vector<Buffer>& memory) {
  Weight weight = backend.load_weight(host, dtype);
  if (weight.memory.data() == nullptr) {
    weight.memory = backend.allocate(stored_bytes(host));
    backend.copy_in(weight.memory.data(), host.data, stored_bytes(host));
    weight.matrix.data = weight.memory.data();
  }
  return keep(std::move(weight), memory);
}

// Puts weights of one dtype and width one behind the other; for that while they are in memory twice.
void join_weights(std::initializer_list<Matrix*> weights, Backend& backend, std::vector<Buffer>& memory) {
  const Matrix& first = **weights.begin();
  size_t bytes = 0;
  for (const Matrix* w : weights) {
    if (!*w || is_quantized(w->dtype) || w->dtype != first.dtype || w->cols != first.cols) return;
    bytes += stored_bytes(*w);
  }
  Buffer block = backend.allocate(bytes);
  auto* to = static_cast<std::byte*>(block.data());
  for (Matrix* w : weights) {
    backend.copy(to, w->data, stored_bytes(*w));
    std::erase_if(memory, [&](const Buffer& buffer) { return buffer.data() == w->data; });
    w->data = to;
    to += stored_bytes(*w);
  }
  memory.push_back(std::move(block));
}

// What a layer multiplies one x with (Backend::joins_products).
void join_layer(LayerWeights& layer, Backend& backend, std::vector<Buffer>& memory) {
  if (!backend.joins_products()) return;
  join_weights({&layer.q_proj, &layer.k_proj, &layer.v_proj}, backend, memory);
  join_weights({&layer.gate_proj, &layer.up_proj}, backend, memory);
}

// A matrix of which a token reads the part chosen / of.
void count(const Matrix& m, Weights& weights, int64_t chosen = 1, int64_t of = 1) {
  weights.bytes += stored_bytes(m);
  weights.token_bytes += stored_bytes(m) * static_cast<size_t>(chosen) / static_cast<size_t>(of);
  weights.values += m.rows * m.cols * chosen / of;
}

void count_layer(const LayerSpec& spec, const LayerWeights& layer, Weights& weights) {
  const LatentWeights& latent = layer.latent;
  const ExpertWeights& experts = layer.experts;
  for (const Matrix* m :
       {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj, &layer.gate_proj, &layer.up_proj,
        &layer.down_proj, &latent.q_a, &latent.kv_a_rope, &latent.kv_a, &experts.router}) {
    count(*m, weights);
  }
  for (const auto* heads : {&latent.q_rope, &latent.q_nope, &latent.k_absorb, &latent.v_up}) {
    for (const Matrix& m : *heads) count(m, weights);
  }
  for (const Matrix& m : latent.k_up) count(m, weights, 0);  // of long steps alone
  for (const auto* all : {&experts.gate, &experts.up, &experts.down}) {
    for (const Matrix& m : *all)
      count(m, weights, spec.feed_forward.experts.router.n_chosen, spec.feed_forward.experts.n);
  }
}

// Full names of the tensors outside the layers, and what those of the layers begin with.
struct Layout {
  std::string root, embed, head;
  std::string own_head;  // the head's name where embedding and head are two; else as `head`
};

// AutoModelForCausalLM saves behind "model.", AutoModel behind nothing, models with an image part behind one
// of the rest. Where embedding and head are one matrix, a checkpoint may hold it under either name.
Layout layout_of(const ModelSpec& spec, const Checkpoint* checkpoint) {
  const TensorNames& names = spec.names;
  const auto stored = [&](const std::string& name) {
    return checkpoint != nullptr && checkpoint->find(name) != nullptr;
  };
  Layout layout;
  layout.root = names.root;
  for (const char* root : {"", "model.language_model.", "language_model.model."}) {
    if (stored(root + names.embed + ".weight") || stored(root + names.norm + ".weight")) layout.root = root;
  }
  layout.embed = layout.root + names.embed + ".weight";
  layout.own_head =
      (layout.root.starts_with("language_model.") ? "language_model." : "") + names.head + ".weight";
  layout.head = layout.own_head;
  if (spec.tie_word_embeddings) {
    if (!stored(layout.embed) && stored(layout.own_head)) layout.embed = layout.own_head;
    layout.head = layout.embed;
  }
  return layout;
}

float embedding_multiplier(const ModelSpec& spec, DType dtype) {
  if (!spec.round_embedding_multiplier) return spec.embedding_multiplier;
  float rounded = 0.0F;
  store_f32(&rounded, dtype, 0, spec.embedding_multiplier);
  return load_f32(&rounded, dtype, 0);
}

using LayerRead = std::function<void(LayerWeights& layer)>;

// read: what is done with each layer as soon as all of it is there; may be empty.
Weights all_weights(const ModelSpec& spec, const Layout& layout, const Source& source,
                    const LayerRead& read = {}) {
  Weights weights;
  weights.embed = source({layout.embed, spec.vocab_size, spec.hidden_size, Role::kEmbedding, {}});
  weights.embedding_multiplier = embedding_multiplier(spec, weights.embed.dtype);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    weights.layers.push_back(read_layer(spec, i, layout.root, source));
    if (read) read(weights.layers.back());
  }
  weights.norm = read_norm(spec, layout.root + spec.names.norm, spec.hidden_size, source);
  if (spec.embedding_norm)
    weights.embedding_norm =
        read_norm(spec, layout.root + spec.names.embedding_norm, spec.hidden_size, source);
  weights.dtype = weights.layers[0].o_proj.dtype;
  if (spec.tie_word_embeddings && !is_quantized(weights.dtype)) {
    weights.head = weights.embed;
  } else {
    weights.head = source({layout.head, spec.vocab_size, spec.hidden_size, Role::kHead, {}});
  }
  count(weights.head, weights);
  for (size_t i = 0; i < weights.layers.size(); ++i) count_layer(spec.layers[i], weights.layers[i], weights);
  return weights;
}

// The shape of the tensor that a wanted matrix is, or is rows of.
std::vector<int64_t> stored_shape(const Wanted& wanted) {
  if (is_vector(wanted.role)) return {std::max(wanted.cols, wanted.part.of)};
  return {std::max(wanted.rows, wanted.part.of), wanted.cols};
}

// The wanted rows of a tensor: in place where they are neighbours, else put together in `gathered`.
Matrix rows_of(const StoredTensor& tensor, const Wanted& wanted, std::vector<std::byte>& gathered) {
  const RowRange& part = wanted.part;
  const DType dtype = tensor.float_dtype();
  if (is_vector(wanted.role) && part.of > 0) {  // a column of rows of one element
    const Matrix column = rows_of(tensor, {wanted.name, wanted.cols, 1, Role::kProjection, part}, gathered);
    return {column.data, dtype, 1, wanted.cols};
  }
  const Matrix whole(const_cast<std::byte*>(tensor.data), dtype, std::max(wanted.rows, part.of), wanted.cols);
  if (part.of == 0 || part.run == wanted.rows) return whole.row_range(part.first, wanted.rows);
  const size_t run_bytes = static_cast<size_t>(part.run * wanted.cols) * size_of(dtype);
  for (int64_t row = part.first, taken = 0; taken < wanted.rows; row += part.stride, taken += part.run) {
    const auto* from = static_cast<const std::byte*>(whole.row_range(row, part.run).data);
    gathered.insert(gathered.end(), from, from + run_bytes);
  }
  return {gathered.data(), dtype, wanted.rows, wanted.cols};
}

// A matrix whose place and dtype are known, in the shape that is handed out.
Matrix shaped(const Wanted& wanted, void* data, DType dtype) {
  return wanted.transposed ? Matrix(data, dtype, wanted.cols, wanted.rows)
                           : Matrix(data, dtype, wanted.rows, wanted.cols);
}

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

// The norm's weight as f32, plus one.
std::vector<float> plus_one(const StoredTensor& tensor, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i)
    values[static_cast<size_t>(i)] = 1.0F + load_f32(tensor.data, tensor.float_dtype(), i);
  return values;
}

// A tied model whose checkpoint holds a head as well: where the two differ, transformers 5 leaves them apart
// (modeling_utils.py, tie_weights). Returns the head's name where they are equal, so that it needs no
// reading.
std::string compare_tied(ModelSpec& spec, const Checkpoint& checkpoint) {
  if (!spec.tie_word_embeddings) return "";
  const Layout layout = layout_of(spec, &checkpoint);
  const StoredTensor* embed = checkpoint.find(layout.embed);
  const StoredTensor* head = checkpoint.find(layout.own_head);
  if (embed == nullptr || head == nullptr || embed == head) return "";
  if (embed->dtype == head->dtype && embed->shape == head->shape &&
      std::memcmp(embed->data, head->data, embed->bytes) == 0) {
    return head->name;
  }
  spec.tie_word_embeddings = false;
  spec.warnings.push_back(
      head->file.string() + ": tensor '" + head->name + "' differs from '" + embed->name +
      "', so the two are not tied, as in transformers, though \"tie_word_embeddings\" of " +
      spec.file.string() + ", or its default, says so");
  return "";
}

// A checkpoint without norms of q and k is of the kind that has none.
void forget_absent_qk_norms(ModelSpec& spec, const Layout& layout, const Checkpoint& checkpoint) {
  const std::string name = layout.root + fmt::format(fmt::runtime(spec.names.layer), 0) + spec.names.q_norm;
  if (checkpoint.find(name + ".weight") != nullptr) return;
  for (LayerSpec& layer : spec.layers) layer.attention.qk_norm = QkNorm::kNone;
}

// splitmix64 (public domain, Vigna): fast enough to fill gigabytes, and the same everywhere. Its state is a
// counter, so that any of its numbers can be had at once: number `ahead`, from 1 on, behind `state`.
uint64_t random_behind(uint64_t state, uint64_t ahead) {
  uint64_t z = state + ahead * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Values of either sign below 2^-exponent: random sign and mantissa, and one of four exponents with equal
// chances, put together from bits, so that each dtype is filled at memory speed, by all cores.
void fill_random(std::byte* out, size_t count, DType dtype, int exponent, uint64_t state) {
  const int bias = dtype == DType::kF16 ? 15 : 127;
  const int mantissa_bits = dtype == DType::kF32 ? 23 : dtype == DType::kBF16 ? 7 : 10;
  const int sign_bit = dtype == DType::kF32 ? 31 : 15;
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < count; ++i) {
    const uint64_t random = random_behind(state, i + 1);
    const uint32_t mantissa = static_cast<uint32_t>(random) & ((1U << mantissa_bits) - 1);
    const uint32_t biased =
        static_cast<uint32_t>(std::max(1, bias - exponent - static_cast<int>(random >> 62)));
    const uint32_t bits =
        (static_cast<uint32_t>(random >> 40) & 1U) << sign_bit | biased << mantissa_bits | mantissa;
    if (dtype == DType::kF32) {
      std::memcpy(out + i * 4, &bits, 4);
    } else {
      const auto half = static_cast<uint16_t>(bits);
      std::memcpy(out + i * 2, &half, 2);
    }
  }
}

// Heads of latent attention are multiplied as experts are.
bool needs_experts(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return layer.feed_forward.experts.n > 0 || layer.attention.latent.kv_rank > 0;
  });
}

void check_quantizes(const ModelSpec& spec, const Backend& backend, std::optional<DType> dtype) {
  if (!dtype || !is_quantized(*dtype)) return;
  if (backend.quantizes() && !backend.quantizes_experts() && needs_experts(spec)) {
    throw Error("experts and latent attention in " + std::string(name_of(*dtype)) + " do not run on " +
                    backend.name() + " yet",
                Remedy::kNotQuantized);
  }
  if (!backend.quantizes()) {
    throw Error("weights in " + std::string(name_of(*dtype)) + " do not run on " + backend.name() + " yet",
                Remedy::kNotQuantized);
  }
}

// NaN and infinity have every bit of the exponent set. The file may hold its elements on any byte.
template <class Bits>
int64_t count_not_finite(const StoredTensor& tensor, Bits exponent) {
  int64_t count = 0;
  for (size_t at = 0; at + sizeof(Bits) <= tensor.bytes; at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, tensor.data + at, sizeof bits);
    count += (bits & exponent) == exponent ? 1 : 0;
  }
  return count;
}

}  // namespace

std::set<std::string> check_weights(ModelSpec& spec, const Checkpoint& checkpoint) {
  refuse_foreign_tensors(checkpoint);
  const std::string equal_head = compare_tied(spec, checkpoint);
  std::set<std::string> names;
  const Source source = [&](const Wanted& wanted) {
    const StoredTensor& tensor = checkpoint.check(wanted.name, stored_shape(wanted));
    names.insert(wanted.name);
    return shaped(wanted, nullptr, tensor.float_dtype());
  };
  const Layout layout = layout_of(spec, &checkpoint);
  if (spec.qk_norm_if_stored) forget_absent_qk_norms(spec, layout, checkpoint);
  all_weights(spec, layout, source);
  std::set<std::string> accounted = names;
  accounted.insert(equal_head);
  check_unread_tensors(spec, checkpoint, accounted);
  return names;
}

Weights load_weights(const ModelSpec& spec, const Checkpoint& checkpoint, Backend& backend,
                     std::optional<DType> dtype) {
  check_quantizes(spec, backend, dtype);
  std::vector<Buffer> memory;
  const Source source = [&](const Wanted& wanted) {
    const StoredTensor& tensor = checkpoint.get(wanted.name, stored_shape(wanted));
    if (wanted.role == Role::kNorm && spec.norm_plus_one) {
      std::vector<float> values = plus_one(tensor, wanted.cols);
      return keep_copy(Matrix(values.data(), DType::kF32, 1, wanted.cols), DType::kF32, backend, memory);
    }
    std::vector<std::byte> gathered;
    Matrix host = rows_of(tensor, wanted, gathered);
    const DType stored = stored_dtype(wanted.role, dtype, host.dtype);
    if (left_out(wanted.role, stored)) return Matrix();
    if (wanted.transposed) host = transposed(host, gathered);
    const Matrix weight = gathered.empty() ? keep(backend.load_weight(host, stored), memory)
                                           : keep_copy(host, stored, backend, memory);
    if (weight.data != host.data) checkpoint.give_back(tensor);
    return weight;
  };
  Weights weights = all_weights(spec, layout_of(spec, &checkpoint), source,
                                [&](LayerWeights& layer) { join_layer(layer, backend, memory); });
  weights.memory = std::move(memory);
  return weights;
}

std::optional<NotFinite> find_not_finite(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.ends_with(".attention.masked_bias")) continue;  // of old GPT-NeoX files: -inf in f16, and unread
    int64_t found = 0;
    size_t element = 2;
    if (tensor.dtype == "F32") {
      found = count_not_finite<uint32_t>(tensor, 0x7F800000U);
      element = 4;
    } else if (tensor.dtype == "BF16") {
      found = count_not_finite<uint16_t>(tensor, 0x7F80U);
    } else if (tensor.dtype == "F16") {
      found = count_not_finite<uint16_t>(tensor, 0x7C00U);
    }
    if (found > 0) return NotFinite{name, tensor.file, found, static_cast<int64_t>(tensor.bytes / element)};
  }
  return std::nullopt;
}

Weights planned_weights(const ModelSpec& spec, DType dtype) {
  const Source source = [&](const Wanted& wanted) {
    const DType stored = stored_dtype(wanted.role, dtype, spec.dtype);
    return left_out(wanted.role, stored) ? Matrix() : shaped(wanted, nullptr, stored);
  };
  return all_weights(spec, layout_of(spec, nullptr), source);
}

Weights random_weights(const ModelSpec& spec, Backend& backend, DType dtype, uint64_t seed,
                       std::vector<std::vector<std::byte>>& storage) {
  check_quantizes(spec, backend, dtype);
  std::vector<Buffer> memory;
  const Source source = [&](const Wanted& wanted) {
    const DType stored = stored_dtype(wanted.role, dtype, spec.dtype);
    if (left_out(wanted.role, stored)) return Matrix();
    const DType drawn = is_quantized(stored) ? spec.dtype : stored;
    const auto size = static_cast<size_t>(wanted.rows * wanted.cols);
    auto& bytes = storage.emplace_back(size * size_of(drawn));
    const double width = std::sqrt(static_cast<double>(wanted.cols));
    // Of a tensor's rows always the same ones, however often and in what shape they are asked for.
    uint64_t state = seed + static_cast<uint64_t>(wanted.part.first);
    for (const char c : wanted.name) state = random_behind(state, 1) ^ static_cast<uint64_t>(c);
    fill_random(bytes.data(), size, drawn,
                is_vector(wanted.role) ? 0 : static_cast<int>(std::lround(std::log2(width))), state);
    Matrix host(bytes.data(), drawn, wanted.rows, wanted.cols);
    if (wanted.transposed) host = transposed(host, bytes);
    Weight weight = backend.load_weight(host, stored);
    if (weight.matrix.data != bytes.data()) storage.pop_back();
    return keep(std::move(weight), memory);
  };
  Weights weights = all_weights(spec, layout_of(spec, nullptr), source,
                                [&](LayerWeights& layer) { join_layer(layer, backend, memory); });
  weights.memory = std::move(memory);
  return weights;
}

}  // namespace lariat
