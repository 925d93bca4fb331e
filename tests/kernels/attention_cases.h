#pragma once
#include <ostream>

#include "kernels/integers.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {

enum class Fill {
  kRandom,
  kIdenticalKeys,
  kZeroQueries,
  kHuge,      // scores of about 10^4: one key dominates
  kDenormal,  // below f16's normal range
};

struct AttentionCase {
  int64_t n, first_position, n_heads, n_kv_heads, head_dim, rotary_dim;
  DType k_dtype = DType::kF16, v_dtype = DType::kF16;
  int64_t window = 0;
  bool interleaved = false;
  float q_scale = 1.0F;
  Fill fill = Fill::kRandom;
  float softcap = 0.0F;
  bool alibi = false;
  bool latent = false;           // values are a key's prefix
  int64_t value_dim = 0;         // 0: all
  std::vector<KeyEdge> edges{};  // begin and end of each key range, which replace the window
  bool sinks = false;
  bool second = false;  // every other range
  bool weight = false;  // of q
};

inline void PrintTo(const AttentionCase& c, std::ostream* out) {
  *out << "n " << c.n << " at " << c.first_position << " heads " << c.n_heads << "/" << c.n_kv_heads
       << " dim " << c.head_dim << "/" << c.rotary_dim << " " << name_of(c.k_dtype) << "/"
       << name_of(c.v_dtype) << " window " << c.window << (c.interleaved ? " interleaved" : "") << " q_scale "
       << c.q_scale << " fill " << static_cast<int>(c.fill) << " softcap " << c.softcap
       << (c.alibi ? " alibi" : "") << (c.latent ? " latent" : "") << " values of " << c.value_dim;
  for (const KeyEdge& edge : c.edges) *out << " " << edge.offset << "/" << edge.chunk << "<" << edge.most;
  *out << (c.sinks ? " sinks" : "") << (c.second ? " second keys" : "") << (c.weight ? " weight" : "");
}

// A window and everything before; a window and sinks; the current, previous and earlier chunks; an empty
// range next to two others.
inline std::vector<std::vector<KeyEdge>> several_ranges(int32_t n) {
  constexpr KeyEdge kStart{.most = 0}, kThree{.least = 3, .most = 3}, kSelf{.offset = 1};
  const KeyEdge window{.offset = 1 - n}, chunk{.chunk = n}, last_chunk{.offset = -n, .chunk = n};
  return {{window, kSelf, kStart, window},
          {kStart, {.offset = 1 - n, .most = 4}, window, kSelf},
          {chunk, kSelf, last_chunk, chunk, kStart, last_chunk},
          {kStart, kStart, kThree, kSelf, kStart, kThree}};
}

inline void add_range_cases(std::vector<AttentionCase>& cases) {
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16, q8 = DType::kQ8;
  size_t i = 0;
  for (AttentionCase c : std::vector<AttentionCase>{{1, 700, 4, 2, 64, 64, f16, bf16},
                                                    {1, 1500, 7, 1, 128, 128, bf16, bf16},
                                                    {3, 300, 6, 3, 34, 34, f32, f16},
                                                    {150, 130, 4, 2, 64, 32, f16, f16},
                                                    {130, 30, 8, 2, 128, 128, f16, bf16, 0, true},
                                                    {70, 250, 2, 2, 256, 256, f16, q8},
                                                    {40, 30, 3, 1, 34, 34, f32, f32}}) {
    for (const int32_t n : {70, 128}) {
      for (const std::vector<KeyEdge>& edges : several_ranges(n)) {
        c.edges = edges;
        c.softcap = i % 3 == 2 ? 2.0F : 0.0F;
        c.alibi = i % 5 == 2;
        c.second = n == 128;
        c.weight = i % 3 == 1;
        c.sinks = i++ % 2 == 1;
        cases.push_back(c);
      }
    }
  }
  for (AttentionCase c : std::vector<AttentionCase>{
           {1, 0, 4, 2, 64, 64}, {1, 900, 4, 4, 80, 80, f16, f32}, {90, 0, 4, 2, 64, 64, f16, bf16, 30}}) {
    c.sinks = c.weight = true;
    cases.push_back(c);
  }
}

inline void add_bias_and_latent_cases(std::vector<AttentionCase>& cases) {
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16;
  // ALiBi: grouped heads, windows, every kernel path, far positions
  for (AttentionCase c : std::vector<AttentionCase>{{1, 0, 4, 4, 64, 0},
                                                    {1, 700, 4, 2, 64, 0},
                                                    {1, 700, 12, 3, 128, 0, f16, bf16},
                                                    {1, 5000, 7, 1, 80, 0, bf16, bf16},
                                                    {1, 1000, 6, 6, 256, 0, f16, bf16},
                                                    {1, 100000, 2, 1, 8, 0, f16, f16, 300},
                                                    {3, 400, 5, 5, 34, 0, f32, f32},
                                                    {5, 300, 4, 4, 12, 0, bf16, f32, 64},
                                                    {2, 60, 3, 1, 64, 64, f16, bf16},  // with RoPE
                                                    {150, 130, 12, 4, 64, 0, f16, bf16},
                                                    {150, 130, 4, 2, 64, 0, f16, f16, 100},
                                                    {70, 250, 2, 2, 256, 0, bf16, bf16},
                                                    {90, 0, 7, 7, 96, 0},
                                                    {100, 200, 3, 1, 34, 0, f32, f16, 17}}) {
    c.alibi = true;
    cases.push_back(c);
    c.softcap = 2.0F;
    if (c.n == 2 || c.n == 90) cases.push_back(c);
  }
  // MLA: one row for all heads, keys and values; 64 elements are rotated
  for (AttentionCase c : std::vector<AttentionCase>{{1, 0, 1, 1, 576, 64, f16, f16},
                                                    {1, 300, 16, 1, 576, 64, f16, f16},
                                                    {2, 255, 40, 1, 576, 64, bf16, bf16},
                                                    {1, 140, 4, 1, 288, 32, f32, f32},
                                                    {9, 60, 3, 1, 576, 64, f32, f32},
                                                    {5, 250, 8, 1, 64, 16, f16, f16},
                                                    {40, 30, 4, 1, 64, 16, bf16, bf16}}) {
    c.interleaved = c.latent = true;
    cases.push_back(c);
  }
  // MLA with expanded heads: values are shorter than keys
  for (AttentionCase c : std::vector<AttentionCase>{{1, 300, 4, 4, 192, 64, f16, f16},
                                                    {1, 3000, 2, 2, 192, 64, f16, f16},
                                                    {30, 250, 5, 5, 96, 32, bf16, bf16},
                                                    {150, 130, 3, 3, 192, 64, f16, f16},
                                                    {70, 250, 2, 2, 192, 64, f32, f32}}) {
    c.interleaved = true;
    c.value_dim = c.head_dim == 96 ? 60 : 128;  // 60: no multiple of 8
    cases.push_back(c);
  }
}

// Streamed and in blocks, whole-vector rows and others, all key dtypes.
inline void add_quantized_value_cases(std::vector<AttentionCase>& cases) {
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16, q8 = DType::kQ8;
  for (const AttentionCase& c : std::vector<AttentionCase>{{1, 0, 1, 1, 64, 64, f16, q8},
                                                           {1, 700, 8, 2, 64, 64, f16, q8},
                                                           {1, 3000, 7, 1, 128, 64, bf16, q8},
                                                           {2, 255, 4, 2, 24, 24, f32, q8},
                                                           {3, 300, 6, 3, 34, 34, f16, q8, 0, true},
                                                           {150, 130, 4, 2, 64, 64, f16, q8, 100},
                                                           {130, 0, 8, 2, 128, 128, bf16, q8},
                                                           {90, 10, 3, 1, 12, 12, f32, q8},
                                                           {70, 250, 2, 2, 256, 256, f16, q8}}) {
    cases.push_back(c);
  }
  AttentionCase denormal{1, 900, 4, 2, 64, 64, f16, q8};
  denormal.fill = Fill::kDenormal;
  cases.push_back(denormal);
}

inline std::vector<AttentionCase> attention_cases() {
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16;
  std::vector<AttentionCase> cases = {
      // decode
      {1, 0, 1, 1, 64, 64},
      {1, 1, 8, 2, 64, 64},
      {1, 63, 8, 1, 64, 64, f16, bf16},
      {1, 64, 6, 2, 128, 128, bf16, bf16},
      {1, 255, 4, 4, 128, 128, f32, f32},
      {1, 256, 5, 5, 80, 80, f16, f32},
      {1, 1000, 12, 4, 96, 96, f32, f16},
      {1, 5000, 32, 4, 64, 64},
      {1, 5000, 7, 1, 256, 256, f16, bf16},
      {1, 3000, 3, 1, 8, 8},
      {1, 777, 2, 1, 34, 34, bf16, f16},
      {1, 777, 6, 3, 10, 4, f32, bf16, 0, true},
      {2, 511, 8, 2, 64, 64},
      {3, 200, 9, 3, 40, 40, f16, bf16, 0, true},
      {5, 1022, 4, 1, 128, 64, bf16, bf16},
      // prefill, also after a cache
      {7, 0, 4, 2, 64, 64},
      {65, 0, 4, 4, 64, 64, f32, f32},
      {130, 0, 8, 2, 128, 128, f16, bf16},
      {257, 0, 6, 1, 64, 64, bf16, bf16},
      {200, 333, 4, 2, 80, 20, f16, f16, 0, true},
      {100, 1000, 3, 3, 34, 34, f32, f16},
      {64, 64, 14, 2, 64, 64},
      {70, 250, 2, 2, 256, 256, bf16, f32},
      {33, 5, 5, 1, 8, 8},
      {150, 0, 3, 1, 12, 12, f16, f16, 0, true},
  };
  // windows shorter than a block, across blocks, longer than the sequence
  for (int64_t window : {1, 2, 17, 64, 100, 4096}) {
    cases.push_back({1, 700, 4, 2, 64, 64, f16, f16, window});
    cases.push_back({150, 130, 4, 2, 64, 64, f16, bf16, window});
  }
  // YaRN's factor, on all or only the rotated dimensions
  cases.push_back({1, 400, 4, 2, 64, 64, f16, f16, 0, false, 1.44F});
  cases.push_back({80, 0, 4, 2, 64, 32, f16, f16, 0, false, 1.44F});
  for (Fill fill : {Fill::kIdenticalKeys, Fill::kZeroQueries, Fill::kHuge, Fill::kDenormal}) {
    cases.push_back({1, 900, 4, 2, 64, 64, f16, f16, 0, false, 1.0F, fill});
    cases.push_back({90, 10, 4, 2, 64, 64, f32, f32, 0, false, 1.0F, fill});
  }
  cases.push_back({1, 32767, 2, 1, 64, 64, f16, f16, 0, false, 1.0F, Fill::kIdenticalKeys});
  // no RoPE
  cases.push_back({1, 300, 4, 2, 64, 0, f16, f16, 0, false, 1.44F});
  cases.push_back({3, 250, 4, 2, 34, 0, f32, bf16, 0, true, 1.44F});
  cases.push_back({70, 20, 4, 2, 128, 0, f16, bf16, 0, false, 1.44F});
  // soft caps above, within and below the scores
  for (float softcap : {50.0F, 2.0F}) {
    cases.push_back({1, 700, 4, 2, 64, 64, f16, f16, 0, false, 1.0F, Fill::kRandom, softcap});
    cases.push_back({2, 300, 8, 4, 256, 256, f16, bf16, 100, false, 1.0F, Fill::kRandom, softcap});
    cases.push_back({100, 130, 4, 2, 64, 64, bf16, bf16, 0, false, 1.0F, Fill::kRandom, softcap});
    cases.push_back({90, 0, 2, 1, 256, 256, f16, bf16, 40, false, 1.0F, Fill::kRandom, softcap});
    cases.push_back({40, 250, 3, 1, 34, 34, f32, f32, 64, false, 1.0F, Fill::kRandom, softcap});
    cases.push_back({1, 900, 4, 2, 64, 64, f32, f32, 0, false, 1.0F, Fill::kHuge, softcap});
  }
  add_bias_and_latent_cases(cases);
  add_range_cases(cases);
  add_quantized_value_cases(cases);
  return cases;
}

// The ALiBi paper's 2^(-8 (h + 1) / n_heads), for any number of heads.
inline std::vector<float> alibi_slopes(int64_t n_heads) {
  std::vector<float> slopes;
  for (int64_t h = 1; h <= n_heads; ++h) {
    slopes.push_back(
        static_cast<float>(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(n_heads))));
  }
  return slopes;
}

struct AttentionData {
  std::vector<float> q, keys, values;

  explicit AttentionData(const AttentionCase& c) {
    Rng rng(41);
    const int64_t positions = c.first_position + c.n, per_position = c.n_kv_heads * c.head_dim;
    const bool huge = c.fill == Fill::kHuge, denormal = c.fill == Fill::kDenormal;
    q = rng.normals(c.n * c.n_heads * c.head_dim, c.fill == Fill::kZeroQueries ? 0.0F : huge ? 100.0F : 1.0F);
    keys = rng.normals(positions * per_position, huge ? 100.0F : denormal ? 1e-5F : 1.0F);
    values = rng.normals(positions * per_position, denormal ? 1e-6F : 1.0F);
    if (c.fill == Fill::kIdenticalKeys) {
      for (size_t i = static_cast<size_t>(per_position); i < keys.size(); ++i) {
        keys[i] = keys[i - static_cast<size_t>(per_position)];
      }
    }
  }
};

// A chunk sees the cache up to its end. Output rows of a multiple of 8 elements are 16-byte aligned for
// tensor cores.
// log_sums: keeps every third page only; receives the log of each head's sum of exp(score), 0 of a sum of 0.
inline std::vector<float> run_attention(Backend& backend, const AttentionCase& c,
                                        const std::vector<int64_t>& chunks, DType out_dtype = DType::kF32,
                                        std::vector<float>* log_sums = nullptr) {
  const AttentionData data(c);
  KvGeometry geometry;
  if (c.latent) {
    geometry.add_latent_layer(c.head_dim, c.k_dtype);
  } else {
    geometry.add_layer(c.n_kv_heads, c.head_dim, c.k_dtype, c.v_dtype, c.second);
  }
  if (c.second) geometry.layers.push_back(geometry.layers[0].with_second_keys());
  Cache cache(backend, c.first_position + c.n, geometry);
  cache.set_keys(data.keys);
  if (c.second) cache.set_keys({data.keys.rbegin(), data.keys.rend()}, 1);
  if (!c.latent) cache.set_values(data.values);
  const Tensor slopes(backend, alibi_slopes(c.n_heads), 1, c.n_heads);
  std::vector<float> of_heads;
  for (int64_t h = 0; h < c.n_heads; ++h) of_heads.push_back(static_cast<float>(3 * h % 7) - 2.0F);
  const Tensor sinks(backend, of_heads, 1, c.n_heads);
  std::vector<float> factors;
  for (int64_t d = 0; d < c.head_dim; ++d) factors.push_back(0.25F * static_cast<float>(3 * d % 7) + 0.25F);
  const Tensor q_weight(backend, factors, 1, c.head_dim);
  const int64_t cols = c.n_heads * c.head_dim;
  const int64_t out_cols = c.value_dim > 0 ? c.n_heads * c.value_dim : cols;
  const Tensor q(backend, data.q, c.n, cols, DType::kF32, 6), out(backend, c.n, out_cols, 8, out_dtype);
  const Tensor state(backend, c.n, 2 * c.n_heads);
  AttentionParams params{c.n_heads, 1.0F / std::sqrt(static_cast<float>(c.head_dim)), c.softcap,
                         c.alibi ? slopes.view() : Matrix(), c.sinks ? sinks.view() : Matrix()};
  if (c.weight) params.q_weight = q_weight.view();
  int64_t done = 0;
  for (int64_t chunk : chunks) {
    const int64_t first = c.first_position + done;
    std::vector<Rope> ropes;  // at shifted positions
    std::vector<KeyRange> ranges;
    for (size_t i = 0; i < std::max<size_t>(c.edges.size(), 1); i += 2) {
      ropes.emplace_back(backend, first + static_cast<int64_t>(37 * i), chunk, frequencies(c.rotary_dim),
                         c.interleaved, c.q_scale);
      ranges.push_back(KeyRange::causal(ropes.back().table, c.window));
      if (!c.edges.empty()) ranges.back().begin = c.edges[i], ranges.back().end = c.edges[i + 1];
      ranges.back().second = c.second && i % 4 == 2;
    }
    StepSequence step = cache.sequence(first, chunk);
    std::vector<void*> pages(step.pages, step.pages + ceil_div(first + chunk, kKvPage));
    if (log_sums != nullptr) {
      for (size_t i = 0; i < pages.size(); ++i) pages[i] = i % 3 == 0 ? pages[i] : nullptr;
      step.pages = pages.data();
      params.state = state.view().row_range(done, chunk);
    }
    backend.attention({.sequences = {&step, 1}}, q.view().row_range(done, chunk), ranges, cache.layer(),
                      params, out.view().row_range(done, chunk));
    done += chunk;
  }
  const std::vector<float> states = state.values();
  for (int64_t i = 0; log_sums != nullptr && i < c.n * c.n_heads; ++i) {
    const float* of = &states[static_cast<size_t>(i / c.n_heads * 2 * c.n_heads + i % c.n_heads)];
    log_sums->push_back(of[c.n_heads] == 0.0F ? 0.0F : of[0] + std::log(of[c.n_heads]));
  }
  return out.values();
}

// A score up to S is a sum of head_dim f32 products, with an error of a few S * 2^-24: the relative error of
// its weight, hence (times the largest |v|, 4) of the result. S is about 5 for normals, 5 * 10^4 for kHuge.
// The weighted sum adds a few 2^-24. A soft cap adds 8 * 2^-24 of itself: 5 (check_soft_cap), and 3 where the
// quotient is good to 2 ulp. An ALiBi bias b adds b * 2^-24, but the weight falls by exp(-b).
inline double attention_tolerance(const AttentionCase& c) {
  const double largest_value = c.fill == Fill::kDenormal ? 4e-6 : 4.0;
  const double largest_score = c.fill == Fill::kHuge ? 5e4 : 5.0;
  return largest_value * (1e-6 + 0x1p-24 * (4 * largest_score + 8 * c.softcap));
}

inline void check_attention(Backend& tested, Backend& reference, const AttentionCase& c,
                            double (*tolerance)(const AttentionCase&) = attention_tolerance) {
  expect_close(run_attention(tested, c, {c.n}), run_attention(reference, c, {c.n}), tolerance(c), 0,
               "attention");
}

inline void check_attention_chunks(Backend& backend, const AttentionCase& c,
                                   double (*tolerance)(const AttentionCase&) = attention_tolerance) {
  std::vector<int64_t> chunks;
  int64_t left = c.n;
  for (int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{64}, c.n}) {
    if (left == 0) break;
    chunks.push_back(std::min(chunk, left));
    left -= chunks.back();
  }
  expect_close(run_attention(backend, c, chunks), run_attention(backend, c, {c.n}), tolerance(c), 0,
               "attention in chunks");
}

// Values are weighted by exp(-slope * distance), normalised.
inline void check_alibi_weights(Backend& backend, DType dtype, double tolerance) {
  const int64_t n = 90, heads = 3, head_dim = 8;
  std::vector<float> one_hot;
  for (int64_t i = 0; i < n * head_dim; ++i) {
    one_hot.push_back(i / head_dim % head_dim == i % head_dim ? 1.0F : 0.0F);
  }
  const std::vector<float> slopes = {1.0F, 0.0625F, 0.00390625F};
  const Tensor q(backend, std::vector<float>(static_cast<size_t>(n * heads * head_dim)), n, heads * head_dim);
  const Tensor out(backend, n, heads * head_dim), slope(backend, slopes, 1, heads);
  Cache cache(backend, n, 1, head_dim, dtype, dtype);
  cache.set_keys(one_hot);
  cache.set_values(one_hot);
  const Rope rope(backend, 0, n, {}, false);
  const StepSequence step = cache.sequence(0, n);
  backend.attention({.sequences = {&step, 1}}, q.view(), causal(rope), cache.layer(),
                    {.n_heads = heads, .scale = 0.125F, .slopes = slope.view()}, out.view());
  std::vector<float> expected;
  for (int64_t p = 0; p < n; ++p) {
    for (const float m : slopes) {
      double sum = 0, of_dim[head_dim] = {};
      for (int64_t j = 0; j <= p; ++j) {
        const double weight = std::exp(-static_cast<double>(m) * static_cast<double>(p - j));
        sum += weight;
        of_dim[j % head_dim] += weight;
      }
      for (const double weight : of_dim) expected.push_back(static_cast<float>(weight / sum));
    }
  }
  expect_close(out.values(), expected, tolerance, 0, "ALiBi's weights");
}

// Without RoPE, angles and factor are ignored.
inline void check_attention_without_rope(Backend& backend) {
  const int64_t n = 70, heads = 4, kv_heads = 2, head_dim = 64;
  Rng rng(43);
  const auto q_data = rng.normals(n * heads * head_dim), k_data = rng.normals(n * kv_heads * head_dim);
  const auto v_data = rng.normals(n * kv_heads * head_dim);
  const auto run = [&](const std::vector<double>& inv_freq, float q_scale, int64_t rotary_dim, DType dtype) {
    const Tensor q(backend, q_data, n, heads * head_dim), out(backend, n, heads * head_dim);
    const Tensor k(backend, k_data, n, kv_heads * head_dim), v(backend, v_data, n, kv_heads * head_dim);
    Rope rope(backend, 0, n, inv_freq, false, q_scale);
    rope.table.rotary_dim = rotary_dim;
    const Cache cache(backend, n, kv_heads, head_dim, dtype, dtype);
    const StepSequence step = cache.sequence(0, n);
    backend.qkv_to_cache({.sequences = {&step, 1}}, q.view(), k.view(), v.view(), QkvEpilogue(), rope.table,
                         cache.layer());
    backend.attention({.sequences = {&step, 1}}, q.view(), causal(rope), cache.layer(),
                      {.n_heads = heads, .scale = 0.125F}, out.view());
    return std::pair(cache.keys(n), out.values());
  };
  for (DType dtype : {DType::kF32, DType::kF16}) {
    const auto expected = run(std::vector<double>(head_dim / 2, 0.0), 1.0F, head_dim, dtype);
    const auto actual = run(frequencies(head_dim), 1.7F, 0, dtype);
    expect_close(actual.first, expected.first, 0, 0, "keys");
    expect_close(actual.second, expected.second, 1e-6, 0, "attention");
  }
}

// Shifting the rotations of queries and keys changes nothing: masks follow the cache index.
inline void check_attention_is_relative(Backend& backend) {
  const int64_t n = 40, heads = 2, head_dim = 64;
  Rng rng(42);
  const auto q_data = rng.normals(n * heads * head_dim), k_data = rng.normals(n * head_dim);
  const auto v_data = rng.normals(n * head_dim);
  const auto run = [&](int64_t shift) {
    const Tensor q(backend, q_data, n, heads * head_dim), out(backend, n, heads * head_dim);
    const Tensor k(backend, k_data, n, head_dim), v(backend, v_data, n, head_dim);
    const Rope rope(backend, shift, n, frequencies(head_dim), false);
    const Cache cache(backend, n, 1, head_dim, DType::kF32, DType::kF32);
    const StepSequence step = cache.sequence(0, n);
    backend.qkv_to_cache({.sequences = {&step, 1}}, q.view(), k.view(), v.view(), QkvEpilogue(), rope.table,
                         cache.layer());
    backend.attention({.sequences = {&step, 1}}, q.view(), causal(rope), cache.layer(),
                      {.n_heads = heads, .scale = 0.125F}, out.view());
    return out.values();
  };
  const std::vector<float> expected = run(0);
  for (int64_t shift : {1, 511, 8191, 131071, 1000000}) {
    expect_close(run(shift), expected, 1e-5, 0, "shift " + std::to_string(shift));
  }
}

}  // namespace lariat::test
