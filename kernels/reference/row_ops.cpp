#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {

void ReferenceBackend::embed(std::span<const int32_t> tokens, const HostWeight& table, float scale,
                             const Matrix& out) {
  for (size_t t = 0; t < tokens.size(); ++t) {
    const int32_t token =
        tokens[t] < 0 ? token_of(drawn_.at(static_cast<size_t>(-1 - tokens[t]))) : tokens[t];
    const Matrix row = out.row_range(static_cast<int64_t>(t), 1);
    if (table.read_row) read_floats(table, token, row);
    for (int64_t i = 0; i < out.cols; ++i) {
      reference::put(
          row, 0, i,
          scale * (table.read_row ? reference::get(row, 0, i) : reference::get(table.m, token, i)));
    }
  }
}

void ReferenceBackend::norm(const Matrix& x, const Norm& norm, const Matrix& out) {
  std::vector<double> row(static_cast<size_t>(x.cols));
  for (int64_t t = 0; t < x.rows; ++t) {
    double mean = 0;
    for (int64_t i = 0; norm.centred && i < x.cols; ++i) {
      mean += reference::get(x, t, i) / static_cast<double>(x.cols);
    }
    for (int64_t i = 0; i < x.cols; ++i) row[static_cast<size_t>(i)] = reference::get(x, t, i) - mean;
    reference::normalise(row, norm.weight, norm.eps);
    for (int64_t i = 0; i < x.cols; ++i) {
      const double bias = norm.bias ? reference::get(norm.bias, 0, i) : 0.0;
      reference::put(out, t, i, row[static_cast<size_t>(i)] + bias);
    }
  }
}

void ReferenceBackend::add_norm(const Matrix& residual, const Matrix& delta, float scale, const Norm& norm,
                                const Matrix& out) {
  for (int64_t t = 0; t < residual.rows; ++t) {
    for (int64_t i = 0; i < residual.cols; ++i) {
      reference::put(residual, t, i, reference::get(residual, t, i) + scale * reference::get(delta, t, i));
    }
  }
  if (norm) this->norm(residual, norm, out);
}

void ReferenceBackend::glu(const Matrix& gate, const Matrix& up, Activation activation, const Matrix& out) {
  const bool clamped = activation == Activation::kClamped;
  const double limit = kClampedLimit, slope = static_cast<double>(kClampedSlope);
  const auto activate = [&](double x) {
    if (clamped && x > limit) x = limit;
    if (clamped) return x / (1.0 + std::exp(-slope * x));
    if (activation == Activation::kRelu2) return x < 0.0 ? 0.0 : x * x;
    if (activation == Activation::kGelu) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), accurate where tanh(u) is close to -1.
    const double z = activation == Activation::kSilu
                         ? x
                         : 2.0 * std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return x / (1.0 + std::exp(-z));
  };
  for (int64_t t = 0; t < gate.rows; ++t) {
    for (int64_t i = 0; i < gate.cols; ++i) {
      double factor = up ? reference::get(up, t, i) : 1.0;
      if (clamped) factor = 1.0 + std::clamp(factor, -limit, limit);
      reference::put(out, t, i, activate(reference::get(gate, t, i)) * factor);
    }
  }
}

void ReferenceBackend::xielu(const Matrix& x, const Xielu& parameters) {
  const double positive = parameters.positive, negative = parameters.negative, beta = parameters.beta;
  const double eps = parameters.eps;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < x.cols; ++i) {
      const double value = reference::get(x, t, i);
      const double curve =
          value > 0.0 ? positive * value * value : negative * (std::expm1(std::min(value, eps)) - value);
      reference::put(x, t, i, curve + beta * value);
    }
  }
}

void ReferenceBackend::token_nll(const Matrix& logits, std::span<const int32_t> targets,
                                 std::span<double> nll) {
  for (int64_t t = 0; t < logits.rows; ++t) {
    double largest = -HUGE_VAL;
    for (int64_t v = 0; v < logits.cols; ++v) largest = std::max(largest, reference::get(logits, t, v));
    double sum = 0;
    for (int64_t v = 0; v < logits.cols; ++v) sum += std::exp(reference::get(logits, t, v) - largest);
    const auto token = static_cast<size_t>(t);
    nll[token] = largest + std::log(sum) - reference::get(logits, t, targets[token]);
  }
}

}  // namespace lariat
