#pragma once
#include <ostream>

#include "tests/kernels/attention_cases.h"
#include "tests/kernels/rerotate_cases.h"

// Several sequences per step vs the reference and vs separate steps.
namespace lariat::test {

struct StepCase {
  struct Piece {
    int64_t first_position, n;
    double theta = 10000.0;
    float q_scale = 1.0F;
    float whole_q_scale = 1.0F;  // first token; each further one has a twentieth more; 1: none
    bool multi_axis = false;
  };
  std::vector<Piece> pieces;
  int64_t n_heads = 4, n_kv_heads = 2, head_dim = 64, rotary_dim = 64;
  DType k_dtype = DType::kF16, v_dtype = DType::kF16;
  int64_t window = 0;
  bool interleaved = false;
  int64_t n_layers = 3;  // attention reads the last, qkv_to_cache writes the first
  bool alibi = false;

  int64_t rows() const {
    int64_t total = 0;
    for (const Piece& piece : pieces) total += piece.n;
    return total;
  }
  AttentionCase attention_case(size_t piece) const {
    return {pieces[piece].n,
            pieces[piece].first_position,
            n_heads,
            n_kv_heads,
            head_dim,
            rotary_dim,
            k_dtype,
            v_dtype,
            window,
            interleaved,
            1.0F,
            Fill::kRandom,
            0.0F,
            alibi};
  }
};

inline void PrintTo(const StepCase& c, std::ostream* out) {
  for (const auto& piece : c.pieces) *out << piece.n << " at " << piece.first_position << ", ";
  PrintTo(c.attention_case(0), out);
}

inline std::vector<StepCase> step_cases() {
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16;
  return {
      // decode: one sequence, equal and mixed lengths, across page ends
      {{{77, 1}}},
      {{{40, 1}, {40, 1}}},
      {{{0, 1}, {255, 1}, {256, 1}, {1000, 1}, {63, 1}, {64, 1}, {5000, 1}, {511, 1}}},
      {{{3000, 1, 1e6, 1.44F}, {9, 1}, {700, 1, 5e5, 1.1F}}, 8, 2, 128, 128, f16, bf16},
      {{{800, 1}, {1, 1}, {2100, 1}}, 7, 1, 80, 20, bf16, f16, 0, true},
      {{{300, 1}, {0, 40}, {255, 2}}, 4, 2, 64, 64, f16, DType::kQ8},
      {{{300, 1, 1e6}, {600, 1}}, 6, 3, 34, 34, f32, f32, 0, false, 1},
      // query factors; no RoPE
      {{{255, 1, 1e4, 1.0F, 1.1F}, {1300, 1, 1e4, 1.2F, 0.6F}, {9, 1}}},
      {{{60, 70, 1e6, 1.0F, 0.3F}, {900, 3, 1e4, 1.4F, 1.5F}, {0, 20}}, 4, 2, 64, 48, f16, bf16},
      {{{60, 40, 1e6, 1.3F, 0.3F}, {900, 3}}, 3, 1, 34, 8, f32, f32},
      {{{200, 60, 1e4, 1.44F}, {700, 1}, {0, 3}}, 4, 2, 64, 0},
      {{{900, 1}, {30, 1}, {129, 1}}, 4, 2, 64, 64, f16, f16, 100},
      // M-RoPE; ALiBi
      {{{900, 1, 1e4, 1.0F, 1.0F, true}, {256, 1}, {70, 1, 1e6, 1.2F, 1.0F, true}}},
      {{{10, 40, 1e4, 1.0F, 1.0F, true}, {300, 1, 1e4, 1.0F, 1.2F, true}}, 4, 2, 80, 48},
      {{{900, 1}, {30, 1}, {129, 1}}, 6, 2, 64, 0, f16, f16, 0, false, 3, true},
      {{{100, 60}, {700, 1}, {0, 3}}, 5, 5, 64, 0, f16, bf16, 100, false, 3, true},
      {{{100, 9}, {500, 1}}, 3, 1, 34, 0, f32, f32, 0, false, 2, true},
      // prefill with decode; short pieces
      {{{0, 150}, {400, 1}}},
      {{{512, 1, 1e6, 1.2F}, {100, 230}, {0, 3}, {2000, 1}}, 6, 2, 64, 32, f16, bf16},
      {{{0, 7}, {250, 9}, {60, 2}}, 5, 5, 40, 40, bf16, bf16, 0, true},
      {{{20, 200}, {0, 210, 1e6}, {700, 1}}, 4, 2, 64, 64, f16, bf16, 64},
      {{{10, 120}, {333, 1}}, 3, 1, 12, 12, f32, f32},
      {{{0, 120, 1e5}, {90, 100}}, 14, 2, 256, 256, bf16, f32, 0, true},
  };
}

// Rows are in step order. Attention's table is built first; qkv_to_cache's has fewer dimensions.
struct StepResult {
  std::vector<float> cos, sin, q_scale, q, out;
  std::vector<std::vector<float>> keys, values;  // per sequence: new tokens, first layer
};

// Caches before the step, and rows of new tokens.
struct StepData {
  std::vector<std::vector<float>> keys, values;  // per sequence, last layer
  std::vector<float> q, k, v;

  explicit StepData(const StepCase& c) {
    Rng rng(51);
    const int64_t per_position = c.n_kv_heads * c.head_dim;
    for (const auto& piece : c.pieces) {
      keys.push_back(rng.normals((piece.first_position + piece.n) * per_position));
      values.push_back(rng.normals((piece.first_position + piece.n) * per_position));
    }
    q = rng.normals(c.rows() * c.n_heads * c.head_dim);
    k = rng.normals(c.rows() * per_position);
    v = rng.normals(c.rows() * per_position);
  }
};

// Runs sequences [first, first + count).
inline StepResult run_step(Backend& backend, const StepCase& c, size_t first, size_t count) {
  const StepData data(c);
  const auto last_layer = static_cast<size_t>(c.n_layers - 1);
  std::vector<Cache> caches;
  std::vector<StepSequence> sequences;
  std::vector<std::vector<double>> inv_freq, local_inv_freq;
  std::vector<std::vector<double>> positions;
  std::vector<std::vector<float>> whole;
  const std::vector<uint8_t> axes = axes_of(static_cast<size_t>(c.rotary_dim / 2), c.n_heads % 2 == 0);
  std::vector<SequenceRope> ropes, local_ropes;
  int64_t skipped = 0, rows = 0;
  for (size_t i = 0; i < first; ++i) skipped += c.pieces[i].n;
  for (size_t i = first; i < first + count; ++i) {
    const auto& piece = c.pieces[i];
    caches.emplace_back(backend, piece.first_position + piece.n, c.n_kv_heads, c.head_dim, c.k_dtype,
                        c.v_dtype, c.n_layers);
    caches.back().set_keys(data.keys[i], last_layer);
    caches.back().set_values(data.values[i], last_layer);
    sequences.push_back(caches.back().sequence(piece.first_position, piece.n));
    inv_freq.push_back(frequencies(c.rotary_dim, piece.theta));
    positions.push_back(axis_positions(piece.first_position, piece.n));
    ropes.push_back({.inv_freq = inv_freq.back(), .q_scale = piece.q_scale});
    whole.emplace_back();
    for (int64_t t = 0; piece.whole_q_scale != 1.0F && t < piece.n; ++t)
      whole.back().push_back(piece.whole_q_scale * (1.0F + 0.05F * static_cast<float>(t)));
    ropes.back().whole_q_scale = whole.back();
    if (piece.multi_axis) ropes.back().positions = positions.back(), ropes.back().axes = axes;
    local_inv_freq.push_back(frequencies(c.rotary_dim / 4 * 2, piece.theta / 10));
    local_ropes.push_back({local_inv_freq.back()});
    rows += piece.n;
  }
  const auto tensor = [&](const std::vector<float>& all, int64_t cols, int64_t gap) {
    const auto from = all.begin() + skipped * cols;
    return Tensor(backend, {from, from + rows * cols}, rows, cols, DType::kF32, gap);
  };
  const int64_t q_cols = c.n_heads * c.head_dim, kv_cols = c.n_kv_heads * c.head_dim;
  const Tensor q = tensor(data.q, q_cols, 6), k = tensor(data.k, kv_cols, 0), v = tensor(data.v, kv_cols, 2);
  const Tensor out(backend, rows, q_cols, 4);  // aligned, as in run_attention

  const Step step{.sequences = sequences};
  const Rope rope(backend, step, rows, ropes, c.interleaved),
      local(backend, step, rows, local_ropes, c.interleaved);
  // With one layer qkv_to_cache changes attention's input: it runs after.
  const Tensor slopes(backend, alibi_slopes(c.n_heads), 1, c.n_heads);
  const AttentionParams params{c.n_heads, 1.0F / std::sqrt(static_cast<float>(c.head_dim)), 0.0F,
                               c.alibi ? slopes.view() : Matrix()};
  backend.attention(step, q.view(), causal(rope, c.window), caches[0].layer(last_layer), params, out.view());
  backend.qkv_to_cache(step, q.view(), k.view(), v.view(), QkvEpilogue(), local.table, caches[0].layer());

  StepResult result{
      rope.cos.values(), rope.sin.values(), rope.q_scale.values(), q.values(), out.values(), {}, {}};
  for (size_t i = 0; i < count; ++i) {
    const auto& piece = c.pieces[first + i];
    const auto skip = piece.first_position * c.n_kv_heads * c.head_dim;
    const auto keys = caches[i].keys(piece.first_position + piece.n);
    const auto values = caches[i].values(piece.first_position + piece.n);
    result.keys.emplace_back(keys.begin() + skip, keys.end());
    result.values.emplace_back(values.begin() + skip, values.end());
  }
  return result;
}

// tolerance: for one sequence's attention.
inline void check_step_attention(Backend& tested, Backend& reference, const StepCase& c,
                                 double (*tolerance)(const AttentionCase&) = attention_tolerance) {
  const StepResult actual = run_step(tested, c, 0, c.pieces.size());
  const StepResult expected = run_step(reference, c, 0, c.pieces.size());
  expect_close(actual.cos, expected.cos, 0x1p-24, 0, "cos");
  expect_close(actual.sin, expected.sin, 0x1p-24, 0, "sin");
  // rotary_dim 0 reads no table: it may stay unwritten.
  if (c.rotary_dim > 0) expect_close(actual.q_scale, expected.q_scale, 0, 0, "q_scale");
  expect_close(actual.q, expected.q, 0, 0, "q, which has neither bias nor norm");
  int64_t row = 0;
  for (size_t i = 0; i < c.pieces.size(); ++i) {
    const std::string name = " of sequence " + std::to_string(i);
    expect_same_rounding(actual.keys[i], expected.keys[i], c.k_dtype, 4.0, "keys" + name);
    expect_same_rounding(actual.values[i], expected.values[i], c.v_dtype, 4.0, "values" + name);
    const int64_t cols = c.n_heads * c.head_dim, begin = row * cols, end = begin + c.pieces[i].n * cols;
    expect_close({actual.out.begin() + begin, actual.out.begin() + end},
                 {expected.out.begin() + begin, expected.out.begin() + end}, tolerance(c.attention_case(i)),
                 0, "attention" + name);
    row += c.pieces[i].n;
  }
}

// A shared step is bitwise identical to separate steps.
inline void check_step_alone(Backend& backend, const StepCase& c) {
  const StepResult together = run_step(backend, c, 0, c.pieces.size());
  StepResult apart;
  const auto append = [](std::vector<float>& all, const std::vector<float>& part) {
    all.insert(all.end(), part.begin(), part.end());
  };
  for (size_t i = 0; i < c.pieces.size(); ++i) {
    const StepResult alone = run_step(backend, c, i, 1);
    append(apart.cos, alone.cos);
    append(apart.sin, alone.sin);
    append(apart.out, alone.out);
    expect_close(together.keys[i], alone.keys[0], 0, 0, "keys");
    expect_close(together.values[i], alone.values[0], 0, 0, "values");
  }
  expect_close(together.cos, apart.cos, 0, 0, "cos");
  expect_close(together.sin, apart.sin, 0, 0, "sin");
  expect_close(together.out, apart.out, 0, 0, "attention");
}

// Frequencies change per sequence, up to its first new token.
inline void check_step_rerotation(Backend& tested, Backend& reference, const StepCase& c) {
  const int64_t per_position = c.n_kv_heads * c.head_dim;
  const auto run = [&](Backend& backend) {
    Rng rng(52);
    std::vector<Cache> caches;
    std::vector<std::vector<double>> deltas;
    const std::vector<double> none(static_cast<size_t>(c.rotary_dim / 2));
    std::vector<std::vector<double>> positions;
    const std::vector<uint8_t> axes = axes_of(static_cast<size_t>(c.rotary_dim / 2), c.n_heads % 2 == 0);
    std::vector<KeyRotation> rotations;
    for (size_t i = 0; i < c.pieces.size(); ++i) {
      const int64_t held = c.pieces[i].first_position, capacity = held + c.pieces[i].n;
      caches.emplace_back(backend, capacity, c.n_kv_heads, c.head_dim, c.k_dtype, c.v_dtype, c.n_layers);
      for (size_t layer = 0; layer < caches.back().layers().size(); ++layer) {
        caches.back().set_keys(rng.normals(capacity * per_position), layer);
      }
      deltas.push_back(frequency_change(c.rotary_dim));
      for (double& delta : deltas.back()) delta *= static_cast<double>(i) - 0.5;
      rotations.push_back({caches.back().pages(), held, {none}, {deltas.back()}});
      positions.push_back(axis_positions(0, held));
      KeyRotation& last = rotations.back();
      if (c.pieces[i].multi_axis) last.from.positions = positions.back(), last.axes = axes;
    }
    backend.rerotate_keys(rotations, caches[0].layers(), c.interleaved);
    std::vector<std::vector<float>> keys;  // [sequence][layer], then unchanged keys
    for (size_t i = 0; i < caches.size(); ++i) {
      const int64_t held = c.pieces[i].first_position;
      for (size_t layer = 0; layer < caches[i].layers().size(); ++layer) {
        keys.push_back(caches[i].keys(held + c.pieces[i].n, layer));
        keys.emplace_back(keys.back().begin() + held * per_position, keys.back().end());
        keys[keys.size() - 2].resize(static_cast<size_t>(held * per_position));
      }
    }
    return keys;
  };
  const auto actual = run(tested), expected = run(reference);
  for (size_t i = 0; i < actual.size(); i += 2) {
    expect_same_rounding(actual[i], expected[i], c.k_dtype, 4.0, "keys " + std::to_string(i / 2));
    expect_close(actual[i + 1], expected[i + 1], 0, 0, "keys behind n_positions");
  }
}

}  // namespace lariat::test
