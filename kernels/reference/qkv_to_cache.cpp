#include "kernels/kv_values.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

// Head `head` of row `token` after the optional bias, clip and norm.
std::vector<double> prepared_head(const Matrix& x, int64_t token, int64_t head, int64_t head_dim,
                                  const Matrix& bias, const Matrix& norm, const QkvEpilogue& epilogue) {
  std::vector<double> values(static_cast<size_t>(head_dim));
  for (int64_t d = 0; d < head_dim; ++d) {
    const int64_t column = head * head_dim + d;
    values[static_cast<size_t>(d)] =
        reference::get(x, token, column) + (bias ? reference::get(bias, 0, column) : 0.0);
  }
  for (double& value : values) {
    if (epilogue.clip > 0.0F) value = std::clamp<double>(value, -epilogue.clip, epilogue.clip);
  }
  if (norm) reference::normalise(values, norm, epilogue.norm_eps);
  return values;
}

}  // namespace

void ReferenceBackend::qkv_to_cache(const Step& step, const Matrix& q, const Matrix& k, const Matrix& v,
                                    const QkvEpilogue& epilogue, const RopeTable& rope,
                                    const KvLayer& layer) {
  const int64_t head_dim = layer.head_dim;
  int64_t row = 0;
  for (const StepSequence& sequence : step.sequences) {
    for (int64_t i = 0; i < sequence.n_tokens; ++i, ++row) {
      for (int64_t head = 0; head < q.cols / head_dim; ++head) {
        const auto values = prepared_head(q, row, head, head_dim, epilogue.q_bias, epilogue.q_norm, epilogue);
        for (int64_t d = 0; d < head_dim; ++d) {
          reference::put(q, row, head * head_dim + d, values[static_cast<size_t>(d)]);
        }
      }
      const int64_t position = sequence.first_position + i;
      void* page = sequence.pages[position / kKvPage];
      if (page == nullptr) continue;
      for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
        const auto store = [&](const RopeTable& by, void* keys) {
          auto key = prepared_head(k, row, head, head_dim, epilogue.k_bias, epilogue.k_norm, epilogue);
          for (int64_t pair = 0; pair < by.rotary_dim / 2; ++pair) {
            reference::rotate_pair(key.data(), pair, by.rotary_dim, by.interleaved,
                                   reference::get(by.cos, row, pair), reference::get(by.sin, row, pair));
          }
          saturated_.keys += reference::store_head(key, keys, layer.k_dtype, head, position, head_dim);
        };
        store(rope, layer.keys(page));
        if (epilogue.second_rope != nullptr)
          store(*epilogue.second_rope, layer.with_second_keys().keys(page));
        if (!v) continue;
        const auto value = prepared_head(v, row, head, head_dim, epilogue.v_bias, Matrix(), epilogue);
        if (layer.v_dtype == DType::kQ8) {
          store_quantized_value(layer, layer.values(page), head, position,
                                std::vector<float>(value.begin(), value.end()).data());
        } else {
          saturated_.values +=
              reference::store_head(value, layer.values(page), layer.v_dtype, head, position, head_dim);
        }
      }
    }
  }
}

void ReferenceBackend::keys_from_cache(const Step& step, const KvLayer& layer, int64_t first,
                                       const Matrix& out) {
  int64_t tokens = 0, token = 0;
  for (const StepSequence& sequence : step.sequences) tokens += sequence.n_tokens;
  for (const StepSequence& sequence : step.sequences) {
    for (int64_t i = 0; i < sequence.n_tokens; ++i, ++token) {
      const int64_t position = sequence.first_position + i, copies = out.rows / tokens;
      const void* keys = layer.keys(sequence.pages[position / kKvPage]);
      for (int64_t row = token * copies; row < (token + 1) * copies; ++row) {
        for (int64_t d = 0; d < out.cols; ++d) {
          const int64_t at = kv_index(0, position, first + d, layer.head_dim);
          reference::put(out, row, d, load_f32(keys, layer.k_dtype, at));
        }
      }
    }
  }
}

}  // namespace lariat
