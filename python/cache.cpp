#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/kv_values.h"
#include "python/session.h"

// Frequencies, keys and values of a session.
namespace lariat::python {
namespace {

struct Rows {
  std::vector<float> values{};
  std::array<size_t, 3> shape{};  // heads, length, head_dim
  Array<float, 3> array() { return to_array<float, 3>(std::move(values), shape); }
};

const KvLayer& layer_of(const SessionState& state, int64_t layer) {
  return state.runner().session.pool().geometry().layers[static_cast<size_t>(layer)];
}

// Keys or values of a layer; NaN in dropped pages.
Rows cached(const SessionState& state, const KvLayer& layer, bool keys) {
  const KvCache& cache = state.context.sequence.cache();
  const int64_t n = cache.length(), width = layer.head_dim;
  std::vector<float> rows(static_cast<size_t>(layer.n_kv_heads * n * width),
                          std::numeric_limits<float>::quiet_NaN());
  std::vector<char> page(static_cast<size_t>(kKvPage * layer.n_kv_heads) *
                         kv_bytes(keys ? layer.k_dtype : layer.v_dtype, width));
  for (int64_t p = 0; p < n; ++p) {
    const KvPool::Page* const held = cache.held_pages()[static_cast<size_t>(p / kKvPage)].get();
    if (held == nullptr) continue;
    if (p % kKvPage == 0)
      state.runner().session.backend().copy_out(
          page.data(), keys ? layer.keys(held->data()) : layer.values(held->data()), page.size());
    for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
      for (int64_t d = 0; d < width; ++d) {
        rows[static_cast<size_t>((head * n + p) * width + d)] =
            keys ? load_f32(page.data(), layer.k_dtype, kv_index(head, p, d, width))
                 : load_value(layer, page.data(), head, p, d);
      }
    }
  }
  return {std::move(rows),
          {static_cast<size_t>(layer.n_kv_heads), static_cast<size_t>(n), static_cast<size_t>(width)}};
}

// Rotates keys back to position 0. `first`: dimension where the rotated part begins.
void unrotate(std::vector<float>& rows, int64_t n, int64_t width, const RopeScaling& rope,
              std::span<const double> inv_freq, const std::function<double(int64_t)>& position_of) {
  const auto pairs = static_cast<int64_t>(inv_freq.size());
  for (size_t row = 0; row * static_cast<size_t>(width) < rows.size(); ++row) {
    float* const key = rows.data() + row * static_cast<size_t>(width);
    const double position = position_of(static_cast<int64_t>(row) % n);
    for (int64_t i = 0; i < pairs; ++i) {
      float& a = key[rope.interleaved ? 2 * i : i];
      float& b = key[rope.interleaved ? 2 * i + 1 : i + pairs];
      const double angle = position * inv_freq[static_cast<size_t>(i)], x = a, y = b;
      a = static_cast<float>(x * std::cos(angle) + y * std::sin(angle));
      b = static_cast<float>(y * std::cos(angle) - x * std::sin(angle));
    }
  }
}

}  // namespace

nb::object PySession::set_rope(nb::handle scaling) {
  RopeScaling before, after;
  const ModelSpec& spec = model().engine.model.spec;
  use([&](SessionState& state, const Flag&) { before = state.context.sequence.rope(); });
  after = to_rope(scaling, before, spec.rope());
  check_rope(after, spec);
  use([&](SessionState& state, const Flag&) {
    Session& session = state.runner().session;
    Sequence& sequence = state.context.sequence;
    if (!sequence.cache().consistent())
      throw UsageError(
          "`rope_cache` stale: the keys have several RoPE frequencies; set the scaling of a consistent "
          "cache");
    try {
      session.set_rope(sequence, after);
    } catch (...) {  // no memory to copy shared pages
      session.set_rope(sequence, before);
      throw;
    }
  });
  return to_python(rope_json(before));
}

nb::dict PySession::rope() {
  RopeScaling rope;
  RopeFrequencies frequencies;
  double scale = 1;
  use([&](SessionState& state, const Flag&) {
    const Sequence& sequence = state.context.sequence;
    rope = sequence.rope();
    frequencies = sequence.cache().frequencies();
    const int64_t length = std::max(sequence.length(), sequence.expected());
    scale = rope_scale(rope, rope_step_length(rope, length, state.runner().session.options().rope_steps));
  });
  auto result = nb::cast<nb::dict>(to_python(rope_json(rope)));
  result["scale"] = scale;
  result["attention_factor"] = frequencies.attention_factor;
  result["inv_freq"] = to_array(std::move(frequencies.inv_freq));
  return result;
}

void PySession::check_layer(int64_t layer) const {
  const int64_t n = std::ssize(model().engine.model.spec.layers);
  if (layer < 0 || layer >= n) throw UsageError(fmt::format("`layer`: found {}; use 0 to {}", layer, n - 1));
}

Array<float, 3> PySession::keys(int64_t layer, bool rotated) {
  check_layer(layer);
  Rows rows;
  use([&](SessionState& state, const Flag&) {
    Sequence& sequence = state.context.sequence;
    const KvLayer& kv = layer_of(state, layer);
    const int64_t n = sequence.length();
    rows = cached(state, kv, true);
    const ModelSpec& spec = state.runner().session.model().spec;
    const int which = spec.layers[static_cast<size_t>(layer)].attention.rope;
    if (rotated || n == 0 || which < 0 || !spec.has_rope()) return;
    if (which == 0 && !sequence.cache().consistent())
      throw UsageError(
          "`rotated` False: the keys of a stale cache have several RoPE frequencies; use rotated=True");
    const RopeScaling& rope = which == 0 ? sequence.rope() : spec.ropes[static_cast<size_t>(which)];
    const auto frequencies =
        which == 0 ? sequence.cache().frequencies() : rope_frequencies(rope, static_cast<double>(n));
    const auto& tables = sequence.method().positions;
    unrotate(rows.values, n, kv.head_dim, rope, frequencies.inv_freq, [&](int64_t p) {
      const bool own = tables.empty() || !tables.front();
      return own ? static_cast<double>(p) : tables.front()(p, sequence.positions().stretch());
    });
  });
  return rows.array();
}

Array<float, 3> PySession::values(int64_t layer) {
  check_layer(layer);
  Rows rows;
  use([&](SessionState& state, const Flag&) { rows = cached(state, layer_of(state, layer), false); });
  return rows.array();
}

void PySession::save(const std::filesystem::path& file) {
  std::error_code ec;
  if (std::filesystem::is_regular_file(file, ec) && std::filesystem::file_size(file, ec) > 0 &&
      !is_saved_context(file))
    throw Error(file.string() + ": exists and is no saved context; name another file");
  use([&](SessionState& state, const Flag&) {
    save_context(state.runner().session, state.context.sequence, state.context.tokens, file);
  });
}

}  // namespace lariat::python
