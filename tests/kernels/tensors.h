#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/convert.h"
#include "kernels/kv_values.h"

// Deterministic data, matrices in backend memory (accessed only through Backend), comparisons.
namespace lariat::test {

// The splitmix64 generator.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  // Nearly normal with variance 1: twelve uniforms from the 16-bit parts of three numbers, because drawing
  // twelve takes half of the tests' time.
  float normal() {
    constexpr uint64_t kEven = 0x0000ffff0000ffffU;
    const uint64_t a = next(), b = next(), c = next();
    const uint64_t sums =
        (a & kEven) + (a >> 16 & kEven) + (b & kEven) + (b >> 16 & kEven) + (c & kEven) + (c >> 16 & kEven);
    const uint64_t sum = (sums & 0xffffffffU) + (sums >> 32);
    const double below = static_cast<double>((a ^ b ^ c) * 0x9e3779b97f4a7c15U >> 40) * 0x1p-24;
    return static_cast<float>((static_cast<double>(sum) + below - 12 * 32767.5 - 0.5) * 0x1p-16);
  }
  std::vector<float> normals(int64_t n, float scale = 1.0F) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = scale * normal();
    return values;
  }

 private:
  uint64_t state_;
};

// Quantized dtypes keep the value.
inline float rounded_to(DType dtype, float value) {
  return dtype == DType::kF16 ? round_to_f16(value) : dtype == DType::kBF16 ? round_to_bf16(value) : value;
}

// Rows are `gap` elements apart; NaN in the gap reveals reads.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Backend& backend, const std::vector<float>& values, int64_t rows, int64_t cols,
         DType dtype = DType::kF32, int64_t gap = 0)
      : backend_(&backend),
        memory_(backend.allocate(static_cast<size_t>((cols + gap) * std::max<int64_t>(rows, 1)) *
                                 size_of(dtype))),
        view_(memory_.data(), dtype, rows, cols, cols + gap) {
    std::vector<char> bytes(memory_.bytes());
    for (int64_t i = 0; i < rows * (cols + gap); ++i) {
      const int64_t r = i / (cols + gap), c = i % (cols + gap);
      const float value =
          c < cols ? values[static_cast<size_t>(r * cols + c)] : std::numeric_limits<float>::quiet_NaN();
      store_f32(bytes.data(), dtype, i, value);
    }
    backend.copy_in(memory_.data(), bytes.data(), bytes.size());
  }
  Tensor(Backend& backend, int64_t rows, int64_t cols, int64_t gap = 0, DType dtype = DType::kF32)
      : Tensor(backend,
               std::vector<float>(static_cast<size_t>(rows * cols), std::numeric_limits<float>::quiet_NaN()),
               rows, cols, dtype, gap) {}

  const Matrix& view() const { return view_; }
  std::vector<float> values() const {
    std::vector<char> bytes(memory_.bytes());
    backend_->copy_out(bytes.data(), memory_.data(), bytes.size());
    std::vector<float> result;
    for (int64_t r = 0; r < view_.rows; ++r) {
      for (int64_t c = 0; c < view_.cols; ++c) {
        result.push_back(load_f32(bytes.data(), view_.dtype, r * view_.stride + c));
      }
    }
    return result;
  }

 private:
  Backend* backend_ = nullptr;
  Buffer memory_;
  Matrix view_;
};

struct Loaded {
  Matrix matrix;
  Buffer memory;
};
inline Loaded load_one(Backend& backend, const Matrix& host, const WeightFormat& format,
                       DType compute = DType::kF32) {
  const HostWeight from(host);
  LoadedWeight loaded = backend.load_weight({&from, 1}, {&format, 1}, compute);
  return {loaded.weight.blocks[0].w, std::move(loaded.memory)};
}

inline void multiply(Backend& backend, const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
                     const Matrix& out) {
  backend.linear(x, {{{w, bias}}, compute}, {}, out);
}

// |actual - expected| <= absolute + relative * |expected|; names the worst element.
inline void expect_close(const std::vector<float>& actual, const std::vector<float>& expected,
                         double absolute, double relative, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], e = expected[i];
    if (std::memcmp(&actual[i], &expected[i], sizeof(float)) == 0 || a == e) continue;
    double excess = std::abs(a - e) / (absolute + relative * std::abs(e));
    if (std::isnan(excess)) excess = std::isnan(a) && std::isnan(e) ? 0 : HUGE_VAL;
    if (excess > worst) {
      worst = excess;
      at = i;
    }
  }
  EXPECT_LE(worst, 1.0) << what << ": element " << at << " is " << actual[at] << ", expected "
                        << expected[at];
}

inline double largest_magnitude(const std::vector<float>& values) {
  double largest = 0;
  for (float value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

// Half a unit in the last place, relative to the value.
inline double half_ulp(DType dtype) {
  return dtype == DType::kF32 ? 0x1p-24 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

// Values of f32 precision, rounded to `dtype`: equal but for a few near ties, which differ by one ulp.
inline void expect_same_rounding(const std::vector<float>& actual, const std::vector<float>& expected,
                                 DType dtype, double size, const std::string& what) {
  const double f32_error = 4e-7 * size;
  if (dtype == DType::kF32) return expect_close(actual, expected, f32_error, 0, what);
  const bool q8 = dtype == DType::kQ8;  // steps of the largest value (4/3 of `size`) / 127
  const double smallest = dtype == DType::kF16 ? 0x1p-24 : q8 ? size / 90 : 0;
  expect_close(actual, expected, f32_error + smallest, q8 ? 0 : 2.01 * half_ulp(dtype), what);
  size_t different = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    different += q8 ? std::abs(actual[i] - expected[i]) > f32_error : actual[i] != expected[i];
  }
  EXPECT_LE(different, 1 + actual.size() / 50) << what << ": too many values round differently";
}

// One sequence in the engine's page layout. All bits start set: NaN in every dtype.
class Cache {
 public:
  Cache(Backend& backend, int64_t capacity, KvGeometry geometry)
      : backend_(&backend), geometry_(std::move(geometry)) {
    const std::vector<char> pattern(geometry_.page_bytes, '\xff');
    for (int64_t first = 0; first < capacity; first += kKvPage) {
      memory_.push_back(backend.allocate(pattern.size()));
      backend.copy_in(memory_.back().data(), pattern.data(), pattern.size());
      pages_.push_back(memory_.back().data());
    }
  }
  Cache(Backend& backend, int64_t capacity, int64_t n_kv_heads, int64_t head_dim, DType k_dtype,
        DType v_dtype, int64_t n_layers = 1)
      : Cache(backend, capacity, same_layers(n_kv_heads, head_dim, k_dtype, v_dtype, n_layers)) {}

  const KvLayer& layer(size_t index = 0) const { return geometry_.layers[index]; }
  std::span<const KvLayer> layers() const { return geometry_.layers; }
  void* const* pages() const { return pages_.data(); }
  StepSequence sequence(int64_t first_position, int64_t n_tokens) const {
    return {first_position, n_tokens, pages()};
  }

  // [position][head][d] of one layer.
  std::vector<float> keys(int64_t count, size_t index = 0) const { return read(count, index, true); }
  std::vector<float> values(int64_t count, size_t index = 0) const { return read(count, index, false); }
  void set_keys(const std::vector<float>& keys, size_t index = 0) { write(keys, index, true); }
  void set_values(const std::vector<float>& values, size_t index = 0) { write(values, index, false); }

 private:
  static KvGeometry same_layers(int64_t n_kv_heads, int64_t head_dim, DType k_dtype, DType v_dtype,
                                int64_t n_layers) {
    KvGeometry result;
    for (int64_t i = 0; i < n_layers; ++i) result.add_layer(n_kv_heads, head_dim, k_dtype, v_dtype);
    return result;
  }

  // visit(host keys or values of a page, index in the page, index in [position][head][d]).
  template <class Visit>
  void for_each(int64_t count, size_t index, bool keys, bool back, const Visit& visit) const {
    const KvLayer& layer = geometry_.layers[index];
    const int64_t per_position = layer.n_kv_heads * layer.head_dim;
    std::vector<char> bytes(geometry_.page_bytes);
    for (int64_t first = 0; first < count; first += kKvPage) {
      void* const page = pages_[static_cast<size_t>(first / kKvPage)];
      backend_->copy_out(bytes.data(), page, bytes.size());
      void* const part = keys ? layer.keys(bytes.data()) : layer.values(bytes.data());
      for (int64_t p = first; p < std::min(count, first + kKvPage); ++p) {
        for (int64_t i = 0; i < per_position; ++i) {
          visit(part, kv_index(i / layer.head_dim, p, i % layer.head_dim, layer.head_dim),
                static_cast<size_t>(p * per_position + i));
        }
      }
      if (back) backend_->copy_in(page, bytes.data(), bytes.size());
    }
  }

  std::vector<float> read(int64_t count, size_t index, bool keys) const {
    const KvLayer& layer = geometry_.layers[index];
    const DType dtype = keys ? layer.k_dtype : layer.v_dtype;
    std::vector<float> result(static_cast<size_t>(count * layer.n_kv_heads * layer.head_dim));
    for_each(count, index, keys, false, [&](void* part, int64_t at, size_t i) {
      result[i] = dtype == DType::kQ8 ? load_quantized(layer, part, at) : load_f32(part, dtype, at);
    });
    return result;
  }

  void write(const std::vector<float>& values, size_t index, bool keys) {
    const KvLayer& layer = geometry_.layers[index];
    const DType dtype = keys ? layer.k_dtype : layer.v_dtype;
    const int64_t count = static_cast<int64_t>(values.size()) / (layer.n_kv_heads * layer.head_dim);
    for_each(count, index, keys, true, [&](void* part, int64_t at, size_t i) {
      if (dtype != DType::kQ8) return store_f32(part, dtype, at, values[i]);
      if (at % layer.head_dim != 0) return;
      const int64_t vector = at / layer.head_dim;
      store_quantized_value(layer, part, vector / kKvPage, vector % kKvPage, &values[i]);
    });
  }

  static float load_quantized(const KvLayer& layer, void* values, int64_t at) {
    const int64_t vector = at / layer.head_dim;
    return load_value(layer, values, vector / kKvPage, vector % kKvPage, at % layer.head_dim);
  }

  Backend* backend_;
  KvGeometry geometry_;
  std::vector<Buffer> memory_;
  std::vector<void*> pages_;
};

struct Rope {
  Tensor cos, sin, q_scale, whole_q_scale;
  RopeTable table;

  // Tables of a step with `rows` tokens.
  Rope(Backend& backend, const Step& step, int64_t rows, std::span<const SequenceRope> ropes,
       bool interleaved)
      : Rope(backend, rows, static_cast<int64_t>(ropes[0].inv_freq.size()), interleaved) {
    for (const SequenceRope& rope : ropes) {
      if (!rope.whole_q_scale.empty()) table.whole_q_scale = whole_q_scale.view();
    }
    backend.rope_table(step, ropes, table);
  }
  // Tables of positions [first, first + count), without a cache.
  Rope(Backend& backend, int64_t first, int64_t count, const std::vector<double>& inv_freq, bool interleaved,
       float scale = 1.0F)
      : Rope(backend, count, static_cast<int64_t>(inv_freq.size()), interleaved) {
    const std::vector<void*> pages(static_cast<size_t>((first + count) / kKvPage + 1));
    const StepSequence sequence{first, count, pages.data()};
    const SequenceRope rope{inv_freq, scale};
    backend.rope_table({.sequences = {&sequence, 1}}, {&rope, 1}, table);
  }

 private:
  Rope(Backend& backend, int64_t rows, int64_t pairs, bool interleaved)
      : cos(backend, rows, pairs),
        sin(backend, rows, pairs),
        q_scale(backend, rows, 1),
        whole_q_scale(backend, rows, 1),
        table{cos.view(), sin.view(), q_scale.view(), {}, 2 * pairs, interleaved} {}
};

inline std::array<KeyRange, 1> causal(const Rope& rope, int64_t window = 0) {
  return {KeyRange::causal(rope.table, window)};
}

inline std::vector<double> frequencies(int64_t rotary_dim, double theta = 10000.0) {
  std::vector<double> inv_freq;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    inv_freq.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(rotary_dim)));
  }
  return inv_freq;
}

}  // namespace lariat::test
