#include "models/run/latent_attention.h"

#include <algorithm>
#include <bit>

#include "kernels/integers.h"

namespace lariat {
namespace {

// Steps of at most this many tokens (decoding) stay absorbed.
constexpr int64_t kDecodeTokens = 16;
// Limits of positions expanded at a time: number, and bytes for all heads.
constexpr int64_t kHeadRows = 1024;
constexpr int64_t kHeadRowBytes = int64_t{32} << 20;
constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// [tokens, heads * size] as [tokens * heads, size].
Matrix by_head(const Matrix& matrix, int64_t n_heads) {
  return {matrix.data, matrix.dtype, matrix.rows * n_heads, matrix.cols / n_heads};
}

// Rows t * heads + h belong to head h.
Routing head_routing(const Buffer& head_ids, int64_t rows, int64_t n_heads) {
  return {static_cast<int32_t*>(head_ids.data()), Matrix(nullptr, DType::kF32, rows, n_heads)};
}

Weight some_heads(const Weight& all, int64_t first, int64_t count) {
  return {{all.blocks.begin() + first, all.blocks.begin() + first + count}, all.compute};
}

int64_t n_pages(const StepSequence& sequence) {
  return ceil_div(sequence.first_position + sequence.n_tokens, kKvPage);
}

int64_t n_pages(const Step& step) {
  int64_t pages = 0;
  for (const StepSequence& sequence : step.sequences) pages += n_pages(sequence);
  return pages;
}

KvGeometry geometry_of(const AttentionSpec& spec, int64_t n, DType dtype) {
  KvGeometry geometry;
  geometry.add_layer(n, spec.latent.query_dim(), dtype, dtype);
  return geometry;
}

// Grows by powers of two: each chunk of a prompt needs more.
bool make_larger(Buffer& buffer, int64_t bytes, Backend& backend) {
  if (buffer.bytes() >= static_cast<size_t>(bytes)) return false;
  buffer = Buffer();  // freed first
  buffer = backend.allocate(std::bit_ceil(static_cast<size_t>(bytes)));
  return true;
}

void write_head_ids(const Buffer& to, int64_t n_heads, Backend& backend) {
  std::vector<int32_t> ids(to.bytes() / sizeof(int32_t));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % static_cast<size_t>(n_heads));
  backend.copy_in(to.data(), ids.data(), ids.size() * sizeof(int32_t));
}

}  // namespace

Matrix LatentAttention::attend(const Layer& layer, const Matrix& in, const Pass& pass) {
  const AttentionSpec& spec = layer.spec.attention;
  const LatentSpec& latent = spec.latent;
  if (make_larger(head_ids_, pass.activations.room * spec.n_heads * kFloat, backend_))
    write_head_ids(head_ids_, spec.n_heads, backend_);
  const bool by_head = heads_are_cheaper(layer, pass);
  const int64_t q_cols = spec.n_heads * (by_head ? latent.query_dim() : spec.head_dim);
  const QkvBlock block = latent_qkv_of(pass.activations, spec, q_cols);
  make_query(layer, in, block.q, !by_head, pass);
  const LatentWeights& weights = layer.weights.latent;
  const Matrix row = block.k.column_range(latent.rope_dim, latent.kv_rank);
  backend_.linear(in, weights.kv_a_rope, {}, block.k.column_range(0, latent.rope_dim));
  backend_.linear(in, weights.kv_a, {}, row);
  backend_.norm(row, weights.kv_a_norm, row);
  backend_.qkv_to_cache(pass.step, {}, block.k, {}, {}, pass.activations.rope(spec.rope), layer.cache);
  return by_head ? attend_by_head(layer, block.q, pass) : attend_absorbed(layer, block, pass);
}

// Writes each head's query: the rotated part, then the rest, multiplied by U_h^T if absorbed.
void LatentAttention::make_query(const Layer& layer, const Matrix& in, const Matrix& q, bool absorbed,
                                 const Pass& pass) {
  const AttentionSpec& spec = layer.spec.attention;
  const LatentSpec& latent = spec.latent;
  const LatentWeights& weights = layer.weights.latent;
  const Matrix shared_q = f32(pass.activations.latent_row, in.rows, latent.q_rank);
  if (latent.q_rank > 0) {
    backend_.linear(in, weights.q_a, {}, shared_q);
    backend_.norm(shared_q, weights.q_a_norm, shared_q);
  }
  const Matrix& from = latent.q_rank > 0 ? shared_q : in;
  const Routing heads = head_routing(head_ids_, in.rows, spec.n_heads);
  const Matrix q_heads = by_head(q, spec.n_heads);
  const Matrix rest = q_heads.column_range(latent.rope_dim, q_heads.cols - latent.rope_dim);
  backend_.grouped_linear(from, weights.q_rope, heads, q_heads.column_range(0, latent.rope_dim));
  if (!absorbed) return backend_.grouped_linear(from, weights.q_nope, heads, rest);
  const Matrix nope = f32(pass.activations.latent_heads, in.rows * spec.n_heads, latent.nope_dim);
  backend_.grouped_linear(from, weights.q_nope, heads, nope);
  backend_.grouped_linear(nope, weights.k_absorb, heads, rest);
}

Matrix LatentAttention::attend_absorbed(const Layer& layer, const QkvBlock& block, const Pass& pass) {
  const AttentionSpec& spec = layer.spec.attention;
  const KeyRange seen = KeyRange::causal(pass.activations.rope(spec.rope), spec.sliding_window);
  if (pass.trace) {
    trace_attention(backend_, pass.trace, layer.name,
                    {block.q, seen, pass.step.sequences, layer.cache, layer.attention});
  }
  pass.attention(layer, pass.step, block.q, {&seen, 1}, block.attended);
  const Matrix values = f32(pass.activations.latent_heads, block.q.rows, spec.n_heads * spec.latent.v_dim);
  const Matrix rows =
      by_head(block.attended, spec.n_heads).column_range(spec.latent.rope_dim, spec.latent.kv_rank);
  backend_.grouped_linear(rows, layer.weights.latent.v_up,
                          head_routing(head_ids_, block.q.rows, spec.n_heads), by_head(values, spec.n_heads));
  return values;
}

// True if expansion costs fewer multiply-adds. Absorbed attention reads whole rows twice and applies U_h and
// V_h to each new token; expansion applies them to each position. Quantised weights stay absorbed: U_h and
// U_h^T are rounded in different groups, and prefill must use the weights of decoding. Absorbed attention
// rounds the multiplied sums, expansion rounds keys and values, to the cache's dtype.
bool LatentAttention::heads_are_cheaper(const Layer& layer, const Pass& pass) const {
  const AttentionSpec& spec = layer.spec.attention;
  const LatentSpec& latent = spec.latent;
  const int64_t n_tokens = pass.activations.n_tokens();
  if (n_tokens <= kDecodeTokens || pass.trace || latent.v_dim > latent.query_dim()) return false;
  if (!layer.weights.latent.k_up || pass.cache != nullptr) return false;
  const KvGeometry one_head = geometry_of(spec, 1, layer.cache.k_dtype);
  if (n_pages(pass.step) * static_cast<int64_t>(one_head.page_bytes) > workspace_) return false;
  double pairs = 0, positions = 0;
  for (const StepSequence& sequence : pass.step.sequences) {
    const auto first = static_cast<double>(sequence.first_position),
               n = static_cast<double>(sequence.n_tokens);
    pairs += n * (first + (n + 1) / 2);
    positions += first + n;
  }
  const auto saved = static_cast<double>(2 * spec.head_dim - latent.query_dim() - latent.v_dim);
  const auto made = static_cast<double>(latent.kv_rank * (latent.nope_dim + latent.v_dim));
  return pairs * saved > (positions - static_cast<double>(n_tokens)) * made;
}

// Allocates memory for the largest number of heads that fits.
void LatentAttention::make_room(const Layer& layer, const Pass& pass) {
  const AttentionSpec& spec = layer.spec.attention;
  const DType dtype = layer.cache.k_dtype;
  const int64_t pages = n_pages(pass.step);
  int64_t n_heads = spec.n_heads;  // always a divisor of spec.n_heads
  const auto bytes = [&] {
    return pages * static_cast<int64_t>(geometry_of(spec, n_heads, dtype).page_bytes);
  };
  for (int64_t parts = 2; bytes() > workspace_ && n_heads > 1; ++parts) {
    if (spec.n_heads % parts == 0) n_heads = spec.n_heads / parts;
  }
  head_cache_.geometry = geometry_of(spec, n_heads, dtype);
  make_larger(head_cache_.pages, bytes(), backend_);
  const int64_t cols = n_heads * spec.latent.query_dim();
  const int64_t rows = std::clamp<int64_t>(kHeadRowBytes / (2 * cols * kFloat), 1, kHeadRows);
  make_larger(head_cache_.rows, rows * spec.latent.kv_rank * kFloat, backend_);
  make_larger(head_cache_.k, rows * cols * kFloat, backend_);
  // A value is shorter than a key: its padding is never written, but must not be NaN.
  if (make_larger(head_cache_.v, rows * cols * kFloat, backend_)) {
    const std::vector<std::byte> zeros(head_cache_.v.bytes());
    backend_.copy_in(head_cache_.v.data(), zeros.data(), zeros.size());
  }
  if (make_larger(head_cache_.head_ids, rows * n_heads * kFloat, backend_) || head_cache_.n_heads != n_heads)
    write_head_ids(head_cache_.head_ids, n_heads, backend_);
  head_cache_.n_heads = n_heads;
  head_cache_.n_rows = rows;
  head_cache_.tables.clear();
  for (int64_t page = 0; page < pages; ++page) {
    head_cache_.tables.push_back(static_cast<std::byte*>(head_cache_.pages.data()) +
                                 page * static_cast<int64_t>(head_cache_.geometry.page_bytes));
  }
  head_cache_.sequences.assign(pass.step.sequences.begin(), pass.step.sequences.end());
  void* const* table = head_cache_.tables.data();
  for (StepSequence& sequence : head_cache_.sequences) {
    sequence.pages = table;
    table += n_pages(sequence);
  }
}

// Expands keys (rotated values, U_h l) and values V_h l of n_heads heads from first_head on, at every
// position of the step's sequences.
void LatentAttention::make_heads(const Layer& layer, int64_t first_head, const Pass& pass) {
  const LatentSpec& latent = layer.spec.attention.latent;
  const LatentWeights& weights = layer.weights.latent;
  const RopeTable not_rotated = pass.activations.rope(-1);
  const int64_t n_heads = head_cache_.n_heads, cols = n_heads * latent.query_dim();
  const Weight k_up = some_heads(weights.k_up, first_head, n_heads),
               v_up = some_heads(weights.v_up, first_head, n_heads);
  for (size_t s = 0; s < pass.step.sequences.size(); ++s) {
    const int64_t end = pass.step.sequences[s].first_position + pass.step.sequences[s].n_tokens;
    for (int64_t first = 0; first < end; first += head_cache_.n_rows) {
      const int64_t count = std::min(head_cache_.n_rows, end - first);
      const Matrix rows = f32(head_cache_.rows, count, latent.kv_rank), k = f32(head_cache_.k, count, cols),
                   v = f32(head_cache_.v, count, cols);
      const Matrix k_heads = by_head(k, n_heads);
      const Routing routing = head_routing(head_cache_.head_ids, count, n_heads);
      const StepSequence cached{first, count, pass.step.sequences[s].pages},
          made{first, count, head_cache_.sequences[s].pages};
      const Step from{.sequences = {&cached, 1}}, to{.sequences = {&made, 1}};
      backend_.keys_from_cache(from, layer.cache, latent.rope_dim, rows);
      backend_.keys_from_cache(from, layer.cache, 0, k_heads.column_range(0, latent.rope_dim));
      backend_.grouped_linear(rows, k_up, routing, k_heads.column_range(latent.rope_dim, latent.nope_dim));
      backend_.grouped_linear(rows, v_up, routing, by_head(v, n_heads).column_range(0, latent.v_dim));
      backend_.qkv_to_cache(to, {}, k, v, {}, not_rotated, head_cache_.geometry.layers[0]);
    }
  }
}

Matrix LatentAttention::attend_by_head(const Layer& layer, const Matrix& q, const Pass& pass) {
  const AttentionSpec& spec = layer.spec.attention;
  const int64_t head_dim = spec.latent.query_dim(), v_dim = spec.latent.v_dim;
  const Matrix values = f32(pass.activations.latent_heads, q.rows, spec.n_heads * v_dim);
  make_room(layer, pass);
  const KeyRange seen = KeyRange::causal(pass.activations.rope(spec.rope), spec.sliding_window);
  AttentionParams some = layer.attention;
  some.n_heads = head_cache_.n_heads;
  for (int64_t head = 0; head < spec.n_heads; head += head_cache_.n_heads) {
    make_heads(layer, head, pass);
    backend_.attention({.sequences = head_cache_.sequences},
                       q.column_range(head * head_dim, head_cache_.n_heads * head_dim), {&seen, 1},
                       head_cache_.geometry.layers[0], some,
                       values.column_range(head * v_dim, head_cache_.n_heads * v_dim));
  }
  return values;
}

}  // namespace lariat
