#pragma once
#include <ostream>

#include "tests/kernels/rope_cases.h"

namespace lariat::test {

struct RerotateCase {
  int64_t n_layers, n_positions, n_kv_heads, head_dim, rotary_dim;
  bool interleaved = false;
  DType k_dtype = DType::kF16;
  bool multi_axis = false;  // M-RoPE
  bool moved = false;       // to other positions
  float scale = 1.0F;       // keys saturate at 65504
};

inline void PrintTo(const RerotateCase& c, std::ostream* out) {
  *out << c.n_layers << " layers, " << c.n_positions << " positions, " << c.n_kv_heads << " heads, dim "
       << c.head_dim << "/" << c.rotary_dim << (c.interleaved ? " interleaved " : " ") << name_of(c.k_dtype)
       << (c.multi_axis ? " multi-axis" : "") << (c.moved ? " moved" : "") << " scale " << c.scale;
}

inline std::vector<RerotateCase> rerotate_cases() {
  std::vector<RerotateCase> cases;
  for (bool interleaved : {false, true}) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      cases.push_back({1, 1, 1, 2, 2, interleaved, dtype});
      cases.push_back({2, 255, 2, 64, 64, interleaved, dtype});
      cases.push_back({3, 257, 1, 128, 128, interleaved, dtype});
      cases.push_back({1, 2500, 2, 36, 36, interleaved, dtype});
      cases.push_back({5, 700, 3, 80, 20, interleaved, dtype});
      cases.push_back({2, 300, 1, 576, 64, interleaved, dtype});
      cases.push_back({2, 700, 2, 64, 64, interleaved, dtype, true});
      cases.push_back({1, 300, 1, 36, 30, interleaved, dtype, true});
      cases.push_back({2, 300, 2, 64, 48, interleaved, dtype, false, true});
      cases.push_back({1, 700, 1, 36, 30, interleaved, dtype, true, true});
      cases.push_back({3, 300, 2, 64, 48, interleaved, dtype, false, false, 5e4F});
    }
  }
  return cases;
}

// Dynamic NTK from scale 1 to 2 changes most pairs, by different amounts.
inline std::vector<double> frequency_change(int64_t rotary_dim) {
  const std::vector<double> before = frequencies(rotary_dim), after = frequencies(rotary_dim, 20221.0);
  std::vector<double> delta;
  for (size_t i = 0; i < before.size(); ++i) delta.push_back(after[i] - before[i]);
  return delta;
}

inline void rerotate(Backend& backend, const Cache& cache, int64_t n_positions,
                     const std::vector<double>& delta, bool interleaved) {
  const std::vector<double> none(delta.size());
  const KeyRotation rotation{cache.pages(), n_positions, {none}, {delta}};
  backend.rerotate_keys({&rotation, 1}, cache.layers(), interleaved);
}

inline void check_rerotate_keys(Backend& tested, Backend& reference, const RerotateCase& c) {
  const int64_t capacity = c.n_positions + 40, per_position = c.n_kv_heads * c.head_dim;
  const auto run = [&](Backend& backend) {
    Rng rng(31);
    Cache cache(backend, capacity, c.n_kv_heads, c.head_dim, c.k_dtype, c.k_dtype, c.n_layers);
    for (size_t i = 0; i < cache.layers().size(); ++i) {
      std::vector<float> keys = rng.normals(capacity * per_position, c.scale);
      for (float& x : keys) x = std::clamp(x, -65504.0F, 65504.0F);
      cache.set_keys(keys, i);
      cache.set_values(std::vector<float>(keys.size(), 65504.0F), i);  // not keys: not counted
    }
    const std::vector<double> before = frequencies(c.rotary_dim);
    std::vector<double> after = frequencies(c.rotary_dim, 20221.0);
    for (double& f : after) f *= 0.75;
    const std::vector<double> positions = axis_positions(0, c.n_positions);
    const std::vector<uint8_t> axes = axes_of(before.size(), c.interleaved);
    std::vector<void*> pages(cache.pages(), cache.pages() + capacity / kKvPage + 1);
    if (c.n_positions > 2 * kKvPage) pages[1] = nullptr;
    KeyRotation rotation{pages.data(), c.n_positions, {before}, {after}};
    if (c.multi_axis) rotation.from.positions = positions, rotation.axes = axes;
    std::vector<double> moved(static_cast<size_t>(c.multi_axis ? 3 * c.n_positions : c.n_positions));
    for (size_t i = 0; i < moved.size(); ++i) moved[i] = 0.25 * static_cast<double>(i / 5) + 40.0;
    if (c.moved) rotation.to.positions = moved;
    const Saturation saturated = saturated_by(backend, [&] {
      backend.rerotate_keys({&rotation, 1}, cache.layers(), c.interleaved);
    });
    std::vector<std::vector<float>> keys;
    for (size_t i = 0; i < cache.layers().size(); ++i) keys.push_back(cache.keys(capacity, i));
    return std::pair(keys, saturated);
  };
  const auto [actual, beyond] = run(tested);
  const auto [expected, expected_beyond] = run(reference);
  expect_same_saturation(beyond, expected_beyond);
  EXPECT_EQ(beyond.keys > 0, c.scale > 1.0F && c.k_dtype == DType::kF16);
  const auto split = c.n_positions * per_position;
  for (size_t layer = 0; layer < actual.size(); ++layer) {
    const auto &a = actual[layer], &e = expected[layer];
    expect_same_rounding({a.begin(), a.begin() + split}, {e.begin(), e.begin() + split}, c.k_dtype,
                         4.0 * c.scale, "keys");
    EXPECT_TRUE(std::equal(a.begin() + split, a.end(), e.begin() + split)) << "keys after n_positions";
  }
}

// f32 key of one head, written by qkv_to_cache with the angles of `angle_position`.
inline std::vector<float> rotated_key(Backend& backend, Cache& cache, const std::vector<float>& key,
                                      int64_t position, int64_t angle_position,
                                      const std::vector<double>& inv_freq, bool interleaved) {
  const auto head_dim = static_cast<int64_t>(key.size());
  const Tensor q(backend, key, 1, head_dim), k(backend, key, 1, head_dim), v(backend, key, 1, head_dim);
  const Rope rope(backend, angle_position, 1, inv_freq, interleaved);
  const StepSequence step = cache.sequence(position, 1);
  backend.qkv_to_cache({.sequences = {&step, 1}}, q.view(), k.view(), v.view(), QkvEpilogue(), rope.table,
                       cache.layer());
  const std::vector<float> keys = cache.keys(position + 1);
  return {keys.end() - head_dim, keys.end()};
}

// Rotation by p + 100, then -67, is p + 33: both ops agree on directions and pairing.
inline void check_composition(Backend& backend, bool interleaved, int64_t rotary_dim) {
  const int64_t head_dim = 64;
  const std::vector<double> inv_freq = frequencies(rotary_dim);
  for (int64_t position : {1, 511, 8191, 131071}) {
    Rng rng(static_cast<uint64_t>(position));
    const std::vector<float> key = rng.normals(head_dim);
    Cache cache(backend, position + 1, 1, head_dim, DType::kF32, DType::kF32);
    const auto expected = rotated_key(backend, cache, key, position, position + 33, inv_freq, interleaved);
    rotated_key(backend, cache, key, position, position + 100, inv_freq, interleaved);
    std::vector<double> delta;
    for (double f : inv_freq) delta.push_back(-67.0 / static_cast<double>(position) * f);
    rerotate(backend, cache, position + 1, delta, interleaved);
    std::vector<float> keys = cache.keys(position + 1);
    expect_close({keys.end() - head_dim, keys.end()}, expected, 1e-6, 0, "R(-67) R(p + 100)");
    // Rotates to other frequencies, at position 5.
    const std::vector<double> other = frequencies(rotary_dim, 700.0);
    const std::vector<double> from(static_cast<size_t>(position + 1), static_cast<double>(position + 33));
    const std::vector<double> to(from.size(), 5.0);
    const KeyRotation move{cache.pages(), position + 1, {inv_freq, from}, {other, to}};
    backend.rerotate_keys({&move, 1}, cache.layers(), interleaved);
    keys = cache.keys(position + 1);
    const auto moved = rotated_key(backend, cache, key, position, 5, other, interleaved);
    expect_close({keys.end() - head_dim, keys.end()}, moved, 1e-6, 0, "(p + 33, f) to (5, g)");
  }
}

inline void check_one_saturated_key(Backend& backend) {
  Cache cache(backend, 1, 1, 2, DType::kF16, DType::kF16);
  cache.set_keys({65504.0F, 0.0F});
  EXPECT_EQ(saturated_by(backend, [&] { rerotate(backend, cache, 1, {0.5}, false); }).keys, 1);
}

// Twenty steps forth and back keep norms and restore keys (f32: one rounding per step).
inline void check_isometry(Backend& backend, bool interleaved) {
  const int64_t head_dim = 64, count = 600;
  Cache cache(backend, count, 2, head_dim, DType::kF32, DType::kF32);
  Rng rng(33);
  const std::vector<float> before = rng.normals(count * 2 * head_dim);
  cache.set_keys(before);
  const std::vector<double> forth = frequency_change(head_dim);
  std::vector<double> back = forth;
  for (double& f : back) f = -f;
  for (int i = 0; i < 10; ++i) rerotate(backend, cache, count, forth, interleaved);
  const std::vector<float> away = cache.keys(count);
  for (size_t head = 0; head < before.size(); head += head_dim) {
    double a = 0, b = 0;
    for (size_t i = head; i < head + head_dim; ++i) {
      a += static_cast<double>(away[i]) * away[i];
      b += static_cast<double>(before[i]) * before[i];
    }
    EXPECT_NEAR(a / b, 1.0, 1e-6);
  }
  for (int i = 0; i < 10; ++i) rerotate(backend, cache, count, back, interleaved);
  expect_close(cache.keys(count), before, 5e-6, 0, "there and back");
}

}  // namespace lariat::test
