#include <algorithm>
#include <bit>

#include "kernels/integers.h"
#include "models/decoder.h"

// Decoder: latent attention (LatentSpec). Each head has products of its own, which are those of experts: the
// head is the expert that its row goes to.
namespace lariat {
namespace {

// Positions whose rows are read, multiplied and stored at a time: at most so many, and for all heads together
// no more memory than this.
constexpr int64_t kMadeRows = 1024;
constexpr int64_t kMadeRowBytes = int64_t{32} << 20;
constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Row t of [tokens, heads * size] as rows t * heads + h of [tokens * heads, size].
Matrix by_head(const Matrix& matrix, int64_t n_heads) {
  return {matrix.data, matrix.dtype, matrix.rows * n_heads, matrix.cols / n_heads};
}

// Rows t * heads + h belong to head h. Nothing is combined, so there are no weights.
Routing head_routing(const Buffer& head_ids, int64_t rows, int64_t n_heads) {
  return {static_cast<int32_t*>(head_ids.data()), Matrix(nullptr, DType::kF32, rows, n_heads)};
}

int64_t n_pages(const StepSequence& sequence) {
  return ceil_div(sequence.first_position + sequence.n_tokens, kKvPage);
}

int64_t n_pages(const Step& step) {
  int64_t pages = 0;
  for (const StepSequence& sequence : step.sequences) pages += n_pages(sequence);
  return pages;
}

// Of keys and values of `n` heads.
KvGeometry geometry_of(const AttentionSpec& spec, int64_t n, DType dtype) {
  KvGeometry geometry;
  geometry.add_layer(n, spec.latent.query_dim(), dtype, dtype);
  return geometry;
}

// Makes `buffer` at least so large, by powers of two, since a prompt's chunks want more each time.
bool make_larger(Buffer& buffer, int64_t bytes, Backend& backend) {
  if (buffer.bytes() >= static_cast<size_t>(bytes)) return false;
  buffer = Buffer();  // the old memory goes first
  buffer = backend.allocate(std::bit_ceil(static_cast<size_t>(bytes)));
  return true;
}

}  // namespace

// Queries to q: of each head the part that is rotated, then the other one, as it is or,
// absorbed, multiplied by U_h^T.
void Decoder::latent_query(size_t index, const Matrix& in, const Matrix& q, bool absorbed) {
  const AttentionSpec& spec = spec_.layers[index].attention;
  const LatentSpec& latent = spec.latent;
  const LatentWeights& weights = weights_.layers[index].latent;
  const Matrix shared_q = f32(current_->latent_q, n_tokens_, latent.q_rank);
  if (latent.q_rank > 0) {
    backend_.matmul(in, weights.q_a, {}, compute_, shared_q);
    backend_.norm(shared_q, weights.q_a_norm, shared_q);
  }
  const Matrix& from = latent.q_rank > 0 ? shared_q : in;
  const Routing heads = head_routing(current_->head_ids, n_tokens_, spec.n_heads);
  const Matrix q_heads = by_head(q, spec.n_heads);
  const Matrix rest = q_heads.column_range(latent.rope_dim, q_heads.cols - latent.rope_dim);
  backend_.expert_matmul(from, weights.q_rope, heads, compute_, q_heads.column_range(0, latent.rope_dim));
  if (!absorbed) return backend_.expert_matmul(from, weights.q_nope, heads, compute_, rest);
  const Matrix nope = f32(current_->heads, n_tokens_ * spec.n_heads, latent.nope_dim);
  backend_.expert_matmul(from, weights.q_nope, heads, compute_, nope);
  backend_.expert_matmul(nope, weights.k_absorb, heads, compute_, rest);
}

// The tokens' rows to the cache.
void Decoder::latent_to_cache(size_t index, const Step& step, const Matrix& in, const Matrix& k) {
  const AttentionSpec& spec = spec_.layers[index].attention;
  const LatentSpec& latent = spec.latent;
  const LatentWeights& weights = weights_.layers[index].latent;
  const Matrix row = k.column_range(latent.rope_dim, latent.kv_rank);
  backend_.matmul(in, weights.kv_a_rope, {}, compute_, k.column_range(0, latent.rope_dim));
  backend_.matmul(in, weights.kv_a, {}, compute_, row);
  backend_.norm(row, weights.kv_a_norm, row);
  backend_.qkv_to_cache(step, {}, k, {}, {}, table_of(spec.rope), geometry_.layers[index]);
}

// What absorbed attention gives, a sum of cached rows for each head, as the heads' values.
Matrix Decoder::latent_values(size_t index, const Matrix& attended) {
  const AttentionSpec& spec = spec_.layers[index].attention;
  const Matrix values = f32(current_->heads, n_tokens_, spec.n_heads * spec.latent.v_dim);
  const Matrix rows = by_head(attended, spec.n_heads).column_range(spec.latent.rope_dim, spec.latent.kv_rank);
  backend_.expert_matmul(rows, weights_.layers[index].latent.v_up,
                         head_routing(current_->head_ids, n_tokens_, spec.n_heads), compute_,
                         by_head(values, spec.n_heads));
  return values;
}

// Whether keys and values made for each head cost a step fewer multiply-adds. Absorbed attention works on
// whole rows, twice, and applies U_h and V_h to each new token; the other way they are applied to each
// position. Quantised weights stay absorbed: U_h and U_h^T are rounded in groups of their own, and a prompt
// is to see the weights that decoding sees. The two forms round differently: one the sums that queries are
// multiplied into, the other, to the cache's dtype, keys and values.
bool Decoder::heads_are_cheaper(size_t index, const Step& step) const {
  const AttentionSpec& spec = spec_.layers[index].attention;
  const LatentSpec& latent = spec.latent;
  if (n_tokens_ <= few_.rows || trace_ || latent.v_dim > latent.query_dim()) return false;
  if (!weights_.layers[index].latent.k_up[0]) return false;
  const KvGeometry one_head = geometry_of(spec, 1, geometry_.layers[index].k_dtype);
  if (n_pages(step) * static_cast<int64_t>(one_head.page_bytes) > latent_workspace_) return false;
  double pairs = 0, positions = 0;
  for (const StepSequence& sequence : step.sequences) {
    const auto first = static_cast<double>(sequence.first_position),
               n = static_cast<double>(sequence.n_tokens);
    pairs += n * (first + (n + 1) / 2);
    positions += first + n;
  }
  const auto saved = static_cast<double>(2 * spec.head_dim - latent.query_dim() - latent.v_dim);
  const auto made = static_cast<double>(latent.kv_rank * (latent.nope_dim + latent.v_dim));
  return pairs * saved > (positions - static_cast<double>(n_tokens_)) * made;
}

// Memory for the keys and values of as many heads as fit, and for what they are made of.
void Decoder::make_room(size_t index, const Step& step) {
  const AttentionSpec& spec = spec_.layers[index].attention;
  const DType dtype = geometry_.layers[index].k_dtype;
  const int64_t pages = n_pages(step);
  int64_t n_heads = spec.n_heads;  // halved and so on: always a divisor
  const auto bytes = [&] {
    return pages * static_cast<int64_t>(geometry_of(spec, n_heads, dtype).page_bytes);
  };
  for (int64_t parts = 2; bytes() > latent_workspace_ && n_heads > 1; ++parts) {
    if (spec.n_heads % parts == 0) n_heads = spec.n_heads / parts;
  }
  made_.geometry = geometry_of(spec, n_heads, dtype);
  make_larger(made_.pages, bytes(), backend_);
  const int64_t cols = n_heads * spec.latent.query_dim();
  const int64_t rows = std::clamp<int64_t>(kMadeRowBytes / (2 * cols * kFloat), 1, kMadeRows);
  make_larger(made_.rows, rows * spec.latent.kv_rank * kFloat, backend_);
  make_larger(made_.k, rows * cols * kFloat, backend_);
  // A value is shorter than a key: what fills it up is never written, nor wanted, but not to be NaN.
  if (make_larger(made_.v, rows * cols * kFloat, backend_)) {
    const std::vector<std::byte> zeros(made_.v.bytes());
    backend_.copy_in(made_.v.data(), zeros.data(), zeros.size());
  }
  if (make_larger(made_.head_ids, rows * n_heads * kFloat, backend_) || made_.n_heads != n_heads) {
    std::vector<int32_t> ids(static_cast<size_t>(rows * n_heads));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % static_cast<size_t>(n_heads));
    backend_.copy_in(made_.head_ids.data(), ids.data(), ids.size() * sizeof(int32_t));
  }
  made_.n_heads = n_heads;
  made_.n_rows = rows;
  made_.tables.clear();
  for (int64_t page = 0; page < pages; ++page) {
    made_.tables.push_back(static_cast<std::byte*>(made_.pages.data()) +
                           page * static_cast<int64_t>(made_.geometry.page_bytes));
  }
  made_.sequences.assign(step.sequences.begin(), step.sequences.end());
  void* const* table = made_.tables.data();
  for (StepSequence& sequence : made_.sequences) {
    sequence.pages = table;
    table += n_pages(sequence);
  }
}

// Keys (rotated values, U_h row) and values V_h row of heads [first_head, first_head + made_.n_heads), at
// every position of the step's sequences. What is rotated has been rotated when it went to the cache.
void Decoder::make_heads(size_t index, int64_t first_head, const Step& step) {
  const LatentSpec& latent = spec_.layers[index].attention.latent;
  const LatentWeights& weights = weights_.layers[index].latent;
  const KvLayer& cache = geometry_.layers[index];
  const int64_t n_heads = made_.n_heads, cols = n_heads * latent.query_dim();
  const auto some = [&](const std::vector<Matrix>& heads) {
    return std::span(heads).subspan(static_cast<size_t>(first_head), static_cast<size_t>(n_heads));
  };
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const int64_t end = step.sequences[s].first_position + step.sequences[s].n_tokens;
    for (int64_t first = 0; first < end; first += made_.n_rows) {
      const int64_t count = std::min(made_.n_rows, end - first);
      const Matrix rows = f32(made_.rows, count, latent.kv_rank), k = f32(made_.k, count, cols),
                   v = f32(made_.v, count, cols);
      const Matrix k_heads = by_head(k, n_heads);
      const Routing routing = head_routing(made_.head_ids, count, n_heads);
      const StepSequence cached{first, count, step.sequences[s].pages},
          made{first, count, made_.sequences[s].pages};
      const Step from{.sequences = {&cached, 1}}, to{.sequences = {&made, 1}};
      backend_.keys_from_cache(from, cache, latent.rope_dim, rows);
      backend_.keys_from_cache(from, cache, 0, k_heads.column_range(0, latent.rope_dim));
      backend_.expert_matmul(rows, some(weights.k_up), routing, compute_,
                             k_heads.column_range(latent.rope_dim, latent.nope_dim));
      backend_.expert_matmul(rows, some(weights.v_up), routing, compute_,
                             by_head(v, n_heads).column_range(0, latent.v_dim));
      backend_.qkv_to_cache(to, {}, k, v, {}, table_of(LayerRope::kNone), made_.geometry.layers[0]);
    }
  }
}

// Attention of each head over keys and values of its own.
Matrix Decoder::attend_by_head(size_t index, const Matrix& q, const AttentionParams& params,
                               const Step& step) {
  const AttentionSpec& spec = spec_.layers[index].attention;
  const int64_t head_dim = spec.latent.query_dim(), v_dim = spec.latent.v_dim;
  const Matrix values = f32(current_->heads, n_tokens_, spec.n_heads * v_dim);
  make_room(index, step);
  AttentionParams some = params;
  some.n_heads = made_.n_heads;
  for (int64_t head = 0; head < spec.n_heads; head += made_.n_heads) {
    make_heads(index, head, step);
    backend_.attention({.sequences = made_.sequences},
                       q.column_range(head * head_dim, made_.n_heads * head_dim), table_of(spec.rope),
                       made_.geometry.layers[0], some,
                       values.column_range(head * v_dim, made_.n_heads * v_dim));
  }
  return values;
}

}  // namespace lariat
