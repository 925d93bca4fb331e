#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/convert.h"

// What every op test needs: deterministic data, matrices in any backend's memory, comparisons. Memory is
// touched through Backend alone, so that the cases of op_cases.h run on any backend.
namespace lariat::test {

// splitmix64: the same numbers on every platform.
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
  // Close to normal with variance 1: the sum of twelve uniforms.
  float normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return static_cast<float>(sum);
  }
  std::vector<float> normals(int64_t n, float scale = 1.0F) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = scale * normal();
    return values;
  }

 private:
  uint64_t state_;
};

// A matrix in a backend's memory, its rows `gap` elements apart from each other; the gap is filled with NaN,
// so that an op that reads it shows.
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
  Tensor(Backend& backend, int64_t rows, int64_t cols, int64_t gap = 0)
      : Tensor(backend,
               std::vector<float>(static_cast<size_t>(rows * cols), std::numeric_limits<float>::quiet_NaN()),
               rows, cols, DType::kF32, gap) {}

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

// |actual - expected| <= absolute + relative * |expected|, element by element; names the worst one.
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

// Half a unit in the last place of a stored value, relative.
inline double half_ulp(DType dtype) {
  return dtype == DType::kF32 ? 0x1p-24 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

// Values that both sides rounded to `dtype` after computing them to within f32's precision: equal but for
// the few whose exact value is so close to a tie that the two fall on different sides (one ulp apart).
inline void expect_same_rounding(const std::vector<float>& actual, const std::vector<float>& expected,
                                 DType dtype, double size, const std::string& what) {
  const double f32_error = 4e-7 * size;
  if (dtype == DType::kF32) return expect_close(actual, expected, f32_error, 0, what);
  const double smallest = dtype == DType::kF16 ? 0x1p-24 : 0;
  expect_close(actual, expected, f32_error + smallest, 2.01 * half_ulp(dtype), what);
  size_t different = 0;
  for (size_t i = 0; i < actual.size(); ++i) different += actual[i] != expected[i] ? 1 : 0;
  EXPECT_LE(different, 1 + actual.size() / 50) << what << ": too many values round differently";
}

// The KV cache of one layer, in blocks, as the engine lays it out.
class Cache {
 public:
  Cache(Backend& backend, int64_t capacity, int64_t n_kv_heads, int64_t head_dim, DType k_dtype,
        DType v_dtype)
      : backend_(&backend) {
    const auto elements = static_cast<size_t>(n_kv_heads * kKvPage * head_dim);
    for (int64_t first = 0; first < capacity; first += kKvPage) {
      k_.push_back(filled(elements * size_of(k_dtype)));
      v_.push_back(filled(elements * size_of(v_dtype)));
      k_pointers_.push_back(k_.back().data());
      v_pointers_.push_back(v_.back().data());
    }
    layer_ = {k_pointers_.data(), v_pointers_.data(), k_dtype, v_dtype, n_kv_heads, head_dim};
  }
  Cache(const Cache&) = delete;  // layer() points into this object
  Cache& operator=(const Cache&) = delete;

  const KvLayer& layer() const { return layer_; }

  // [position][head][d], for positions [0, count).
  std::vector<float> keys(int64_t count) const { return read(k_, layer_.k_dtype, count); }
  std::vector<float> values(int64_t count) const { return read(v_, layer_.v_dtype, count); }
  void set_keys(const std::vector<float>& keys) { write(k_, layer_.k_dtype, keys); }
  void set_values(const std::vector<float>& values) { write(v_, layer_.v_dtype, values); }

 private:
  // All bits set: a NaN in every dtype, for positions that nothing may read.
  Buffer filled(size_t bytes) {
    const std::vector<char> pattern(bytes, '\xff');
    Buffer buffer = backend_->allocate(bytes);
    backend_->copy_in(buffer.data(), pattern.data(), bytes);
    return buffer;
  }

  int64_t per_position() const { return layer_.n_kv_heads * layer_.head_dim; }

  template <class Visit>
  void for_each(int64_t block, int64_t count, const Visit& visit) const {
    for (int64_t p = block * kKvPage; p < std::min(count, (block + 1) * kKvPage); ++p) {
      for (int64_t i = 0; i < per_position(); ++i) {
        visit(kv_index(i / layer_.head_dim, p, i % layer_.head_dim, layer_.head_dim),
              static_cast<size_t>(p * per_position() + i));
      }
    }
  }

  std::vector<float> read(const std::vector<Buffer>& blocks, DType dtype, int64_t count) const {
    std::vector<float> result(static_cast<size_t>(count * per_position()));
    for (size_t b = 0; b < blocks.size(); ++b) {
      std::vector<char> bytes(blocks[b].bytes());
      backend_->copy_out(bytes.data(), blocks[b].data(), bytes.size());
      for_each(static_cast<int64_t>(b), count,
               [&](int64_t at, size_t i) { result[i] = load_f32(bytes.data(), dtype, at); });
    }
    return result;
  }

  void write(const std::vector<Buffer>& blocks, DType dtype, const std::vector<float>& values) {
    const int64_t count = static_cast<int64_t>(values.size()) / per_position();
    for (size_t b = 0; b < blocks.size(); ++b) {
      std::vector<char> bytes(blocks[b].bytes());
      backend_->copy_out(bytes.data(), blocks[b].data(), bytes.size());
      for_each(static_cast<int64_t>(b), count,
               [&](int64_t at, size_t i) { store_f32(bytes.data(), dtype, at, values[i]); });
      backend_->copy_in(blocks[b].data(), bytes.data(), bytes.size());
    }
  }

  Backend* backend_;
  std::vector<Buffer> k_, v_;
  std::vector<void*> k_pointers_, v_pointers_;
  KvLayer layer_;
};

// cos and sin in a backend's memory for positions [first, first + count).
struct Rope {
  Tensor cos, sin;
  RopeTable table;

  Rope(Backend& backend, int64_t first, int64_t count, const std::vector<double>& inv_freq, bool interleaved,
       float q_scale = 1.0F)
      : cos(backend, count, static_cast<int64_t>(inv_freq.size())),
        sin(backend, count, static_cast<int64_t>(inv_freq.size())),
        table{cos.view(), sin.view(), static_cast<int64_t>(2 * inv_freq.size()), interleaved, q_scale} {
    backend.rope_table(first, inv_freq, table);
  }
};

inline std::vector<double> frequencies(int64_t rotary_dim, double theta = 10000.0) {
  std::vector<double> inv_freq;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    inv_freq.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(rotary_dim)));
  }
  return inv_freq;
}

}  // namespace lariat::test
