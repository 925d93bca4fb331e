#pragma once
#include <ostream>

#include "tests/kernels/tensors.h"

namespace lariat::test {

// --- rope_table vs 80-bit arithmetic ---

struct RopeTableCase {
  int64_t first_position, count, rotary_dim;
  double theta = 10000.0;
};

inline void PrintTo(const RopeTableCase& c, std::ostream* out) {
  *out << "position " << c.first_position << " count " << c.count << " dim " << c.rotary_dim << " theta "
       << c.theta;
}

inline std::vector<RopeTableCase> rope_table_cases() {
  std::vector<RopeTableCase> cases;
  for (int64_t position : {0, 1, 511, 8191, 131071, 1000000, 1048575}) {
    cases.push_back({position, 1, 128});
    cases.push_back({position, 37, 6, 500000.0});
    cases.push_back({position, 600, 64});
  }
  cases.push_back({255, 2, 2});
  cases.push_back({15, 1, 256, 1e6});
  return cases;
}

// The angle is a double product: 2^-33 at position 2^20 is negligible vs the f32 rounding of cos and sin
// (2^-25).
inline void check_rope_table(Backend& backend, const RopeTableCase& c) {
  const std::vector<double> inv_freq = frequencies(c.rotary_dim, c.theta);
  const Rope rope(backend, c.first_position, c.count, inv_freq, false);
  const std::vector<float> cos = rope.cos.values(), sin = rope.sin.values();
  double worst = 0;
  for (size_t i = 0; i < cos.size(); ++i) {
    const auto position =
        static_cast<long double>(c.first_position + static_cast<int64_t>(i / inv_freq.size()));
    const long double angle = position * static_cast<long double>(inv_freq[i % inv_freq.size()]);
    worst =
        std::max(worst, static_cast<double>(std::abs(std::cos(angle) - static_cast<long double>(cos[i]))));
    worst =
        std::max(worst, static_cast<double>(std::abs(std::sin(angle) - static_cast<long double>(sin[i]))));
  }
  EXPECT_LE(worst, 0x1p-25 + 1e-9);
}

inline void check_rope_table_split(Backend& backend) {
  const std::vector<double> inv_freq = frequencies(80);
  const int64_t first = 1000, count = 530;
  const std::vector<float> whole = Rope(backend, first, count, inv_freq, false).cos.values();
  for (int64_t at : {0, 1, 23, 24, 255, 256, 300, 529}) {
    const std::vector<float> row = Rope(backend, first + at, 1, inv_freq, false).cos.values();
    EXPECT_TRUE(std::equal(row.begin(), row.end(), whole.begin() + at * 40)) << at;
  }
}

// M-RoPE positions: text, an image of 5 x 7 patches, and so on.
inline std::vector<double> axis_positions(int64_t first, int64_t count) {
  std::vector<double> positions;
  for (int64_t p = first; p < first + count; ++p) {
    const auto token = static_cast<int32_t>(p), in_image = token % 50;
    const int32_t start = in_image < 35 ? token - in_image : token;
    for (const int32_t at :
         {start, in_image < 35 ? start + in_image / 7 : token, in_image < 35 ? start + in_image % 7 : token})
      positions.push_back(at);
  }
  return positions;
}

// Sections as in Qwen2-VL, or interleaved as in Qwen3-VL.
inline std::vector<uint8_t> axes_of(size_t pairs, bool in_turn) {
  std::vector<uint8_t> axes;
  for (size_t j = 0; j < pairs; ++j) {
    axes.push_back(static_cast<uint8_t>(in_turn ? j % 3 : j < pairs / 4 ? 0 : j < pairs * 5 / 8 ? 1 : 2));
  }
  return axes;
}

// A step with M-RoPE and query factors, a sequence without M-RoPE and one with explicit positions.
inline void check_rope_table_axes(Backend& backend) {
  const std::vector<double> inv_freq = frequencies(96);
  const size_t pairs = inv_freq.size();
  for (const bool in_turn : {false, true}) {
    const std::vector<uint8_t> axes = axes_of(pairs, in_turn);
    const std::vector<void*> pages(2000);
    const std::vector<StepSequence> step = {
        {300, 5, pages.data()}, {90001, 123, pages.data()}, {50, 3, pages.data()}};
    const std::vector<double> positions = axis_positions(90001, 123);
    const std::vector<float> whole = Rng(3).normals(123);
    const std::vector<double> one_each = {0.5, 7, 4e5}, phases = frequencies(96, 50.0);
    const std::vector<SequenceRope> ropes = {{inv_freq, 1.5F},
                                             {inv_freq, 1.25F, positions, axes, whole},
                                             {inv_freq, 1.0F, one_each, {}, {}, phases}};
    const Rope rope(backend, {.sequences = step}, 131, ropes, false);
    const std::vector<float> cos = rope.cos.values(), sin = rope.sin.values();
    const std::vector<float> q_scale = rope.q_scale.values(), whole_q_scale = rope.whole_q_scale.values();
    for (size_t row = 0; row < 131; ++row) {
      for (size_t j = 0; j < pairs; ++j) {
        const double at = row < 5     ? static_cast<double>(300 + row)
                          : row < 128 ? positions[3 * (row - 5) + axes[j]]
                                      : one_each[row - 128];
        const long double angle = static_cast<long double>(at) * static_cast<long double>(inv_freq[j]) +
                                  (row < 128 ? 0.0L : static_cast<long double>(phases[j]));
        ASSERT_NEAR(cos[row * pairs + j], static_cast<double>(std::cos(angle)), 0x1p-25 + 1e-9) << row;
        ASSERT_NEAR(sin[row * pairs + j], static_cast<double>(std::sin(angle)), 0x1p-25 + 1e-9) << row;
      }
      ASSERT_EQ(q_scale[row], row < 5 ? 1.5F : row < 128 ? 1.25F : 1.0F) << row;
      ASSERT_EQ(whole_q_scale[row], row < 5 || row >= 128 ? 1.0F : whole[row - 5]) << row;
    }
  }
}

struct QkvCase {
  int64_t n, first_position, n_heads, n_kv_heads, head_dim, rotary_dim;
  bool interleaved = false, bias = false, norm = false;
  DType k_dtype = DType::kF16, v_dtype = DType::kF16;
  float scale = 1.0F;   // of k and v
  bool latent = false;  // one row is key and value
  float clip = 0.0F;
  bool second = false;  // stored twice
};

inline void PrintTo(const QkvCase& c, std::ostream* out) {
  *out << "n " << c.n << " at " << c.first_position << " heads " << c.n_heads << "/" << c.n_kv_heads
       << " dim " << c.head_dim << "/" << c.rotary_dim << (c.interleaved ? " interleaved" : "")
       << (c.bias ? " bias" : "") << (c.norm ? " norm" : "") << " " << name_of(c.k_dtype) << "/"
       << name_of(c.v_dtype) << " scale " << c.scale << (c.latent ? " latent" : "") << " clip " << c.clip
       << (c.second ? " second keys" : "");
}

inline std::vector<QkvCase> qkv_cases() {
  std::vector<QkvCase> cases;
  for (bool interleaved : {false, true}) {
    cases.push_back({1, 0, 1, 1, 8, 8, interleaved});
    cases.push_back({3, 254, 4, 2, 64, 64, interleaved, true, false, DType::kF32, DType::kF32});
    cases.push_back({300, 100, 6, 2, 128, 128, interleaved, false, true, DType::kF16, DType::kBF16});
    cases.push_back({5, 511, 3, 3, 80, 20, interleaved, true, true, DType::kBF16, DType::kF16});
    cases.push_back({2, 8191, 2, 1, 256, 64, interleaved, true, true});
    cases.push_back({3, 255, 4, 2, 64, 0, interleaved, true, true});
    cases.push_back({7, 30, 5, 1, 34, 34, interleaved, true, true, DType::kF32, DType::kBF16});
    cases.push_back({4, 9, 2, 2, 10, 2, interleaved, false, true, DType::kBF16, DType::kBF16});
    cases.push_back({40, 0, 2, 2, 48, 48, interleaved, false, false, DType::kF16, DType::kF16, 1e-6F});
    cases.push_back({40, 0, 2, 2, 48, 48, interleaved, false, false, DType::kF16, DType::kF16, 5e4F});
    cases.push_back(
        {9, 250, 6, 3, 50, 20, interleaved, false, false, DType::kF32, DType::kF16, 1.0F, false, 0.5F});
    cases.push_back(
        {3, 250, 4, 2, 64, 64, interleaved, true, true, DType::kF32, DType::kF32, 1.0F, false, 1.5F});
    cases.push_back({5, 254, 4, 2, 64, 64, interleaved, true, true, DType::kF16, DType::kQ8});
    cases.push_back({40, 0, 6, 3, 50, 20, interleaved, false, false, DType::kF32, DType::kQ8, 5e4F});
    for (DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
      cases.push_back({3, 254, 16, 1, 576, 64, interleaved, false, false, dtype, dtype, 1.0F, true});
      cases.push_back({5, 254, 6, 3, 50, 20, interleaved, true, true, dtype, dtype, 1.0F, false, 0.0F, true});
    }
  }
  return cases;
}

struct QkvResult {
  std::vector<float> q, keys, second_keys, values;
  std::vector<float> read;  // one KV head: elements [1, head_dim) of keys, three times
  Saturation saturated;
};

template <class Op>
Saturation saturated_by(Backend& backend, const Op& op) {
  const Saturation before = backend.saturated();
  op();
  const Saturation after = backend.saturated();
  return {after.keys - before.keys, after.values - before.values};
}

inline void expect_same_saturation(const Saturation& actual, const Saturation& expected) {
  EXPECT_EQ(actual.keys, expected.keys);
  EXPECT_EQ(actual.values, expected.values);
}

inline QkvResult run_qkv(Backend& backend, const QkvCase& c) {
  Rng rng(21);
  const int64_t q_cols = c.n_heads * c.head_dim, kv_cols = c.n_kv_heads * c.head_dim;
  const Tensor q(backend, rng.normals(c.n * q_cols), c.n, q_cols, DType::kF32, 4);
  const Tensor k(backend, rng.normals(c.n * kv_cols, c.scale), c.n, kv_cols, DType::kF32, 2);
  const Tensor v(backend, rng.normals(c.n * kv_cols, c.scale), c.n, kv_cols);
  const Tensor q_bias(backend, rng.normals(q_cols), 1, q_cols, DType::kBF16);
  const Tensor k_bias(backend, rng.normals(kv_cols), 1, kv_cols, DType::kF16);
  const Tensor v_bias(backend, rng.normals(kv_cols), 1, kv_cols);
  const Tensor q_norm(backend, rng.normals(c.head_dim), 1, c.head_dim, DType::kBF16);
  const Tensor k_norm(backend, rng.normals(c.head_dim), 1, c.head_dim);
  QkvEpilogue epilogue;
  if (c.bias)
    epilogue.q_bias = q_bias.view(), epilogue.k_bias = k_bias.view(), epilogue.v_bias = v_bias.view();
  if (c.norm) epilogue.q_norm = q_norm.view(), epilogue.k_norm = k_norm.view(), epilogue.norm_eps = 1e-6F;
  epilogue.clip = c.clip;
  const Rope rope(backend, c.first_position, c.n, frequencies(c.rotary_dim), c.interleaved, 1.7F);
  const Rope other(backend, c.first_position / 3, c.n, frequencies(c.rotary_dim), c.interleaved, 1.7F);
  const int64_t end = c.first_position + c.n;
  KvGeometry geometry;
  if (c.latent) {
    geometry.add_latent_layer(c.head_dim, c.k_dtype);
  } else {
    geometry.add_layer(c.n_kv_heads, c.head_dim, c.k_dtype, c.v_dtype, c.second);
  }
  if (c.second) {
    geometry.layers.push_back(geometry.layers[0].with_second_keys());
    epilogue.second_rope = &other.table;
  }
  const Cache cache(backend, end, geometry);
  const StepSequence sequence = cache.sequence(c.first_position, c.n);
  const Step step{.sequences = {&sequence, 1}};
  const Saturation saturated = saturated_by(backend, [&] {
    backend.qkv_to_cache(step, q.view(), k.view(), c.latent ? Matrix() : v.view(), epilogue, rope.table,
                         cache.layer());
  });
  std::vector<float> read;
  if (c.n_kv_heads == 1) {
    const Tensor out(backend, 3 * c.n, c.head_dim - 1, 5);
    backend.keys_from_cache(step, cache.layer(), 1, out.view());
    read = out.values();
  }
  return {q.values(), cache.keys(end), cache.keys(end, cache.layers().size() - 1), cache.values(end),
          read,       saturated};
}

// Session's on_not_finite reports NaN.
inline void check_clip_keeps_nan(Backend& backend) {
  const Tensor x(backend, {1.0F, std::nanf(""), -3.0F, 3.0F}, 1, 4);
  KvGeometry geometry;
  geometry.add_layer(1, 4, DType::kF32, DType::kF32);
  const Cache cache(backend, 1, geometry);
  const Rope rope(backend, 0, 1, frequencies(4), false, 1.0F);
  const StepSequence step = cache.sequence(0, 1);
  QkvEpilogue epilogue;
  epilogue.clip = 2.0F;
  const Tensor k(backend, {1.0F, 2.0F, 3.0F, 4.0F}, 1, 4), v(backend, {1.0F, 2.0F, 3.0F, 4.0F}, 1, 4);
  backend.qkv_to_cache({.sequences = {&step, 1}}, x.view(), k.view(), v.view(), epilogue, rope.table,
                       cache.layer());
  const std::vector<float> q = x.values();
  EXPECT_TRUE(std::isnan(q[1]));
  EXPECT_EQ((std::vector<float>{q[0], q[2], q[3]}), (std::vector<float>{1.0F, -2.0F, 2.0F}));
}

inline void check_qkv_to_cache(Backend& tested, Backend& reference, const QkvCase& c) {
  const QkvResult actual = run_qkv(tested, c), expected = run_qkv(reference, c);
  expect_close(actual.q, expected.q, 1e-6, 2e-6, "q");  // absolute: the bias may cancel
  // Positions before first_position stay NaN.
  const auto skip = c.first_position * c.n_kv_heads * c.head_dim;
  const auto written = [&](const std::vector<float>& x) {
    return std::vector<float>(x.begin() + skip, x.end());
  };
  const auto before = [&](const std::vector<float>& x) {
    return std::vector<float>(x.begin(), x.begin() + skip);
  };
  expect_close(before(actual.keys), before(expected.keys), 0, 0, "earlier keys");
  const double size = c.norm ? 4.0 : 4.0 * c.scale + (c.bias ? 4.0 : 0.0);
  expect_same_rounding(written(actual.keys), written(expected.keys), c.k_dtype, size, "keys");
  expect_same_rounding(written(actual.second_keys), written(expected.second_keys), c.k_dtype, size,
                       "second keys");
  expect_same_rounding(written(actual.values), written(expected.values), c.v_dtype, size, "values");
  for (size_t i = 0, cols = static_cast<size_t>(c.head_dim - 1); i < actual.read.size(); ++i) {
    const size_t token = i / cols / 3;
    ASSERT_EQ(actual.read[i], written(actual.keys)[token * (cols + 1) + 1 + i % cols]) << i;
  }
  expect_same_saturation(actual.saturated, expected.saturated);
  const bool large = c.scale > 1.0F;
  EXPECT_EQ(expected.saturated.keys > 0, large && c.k_dtype == DType::kF16);
  EXPECT_EQ(expected.saturated.values > 0, large && c.v_dtype == DType::kF16);
  EXPECT_LE(largest_magnitude(written(actual.keys)), c.k_dtype == DType::kF16 ? 65504.0 : HUGE_VAL);
  EXPECT_LE(largest_magnitude(written(actual.values)), c.v_dtype == DType::kF16 ? 65504.0 : HUGE_VAL);
}

}  // namespace lariat::test
