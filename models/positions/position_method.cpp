#include "models/positions/position_method.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/error.h"
#include "models/positions/position_row.h"
#include "models/spec.h"

namespace lariat {
namespace {

// Sums of a few are still valid positions.
constexpr int64_t kMostValue = KeyEdge::kUnbounded / 8;
constexpr double kMostTemperature = 100;
constexpr std::string_view kTemperature = "temperature=";

const std::vector<PositionRow>& rows() {
  static const std::vector<PositionRow> all{dca_row(),         string_row(),       sinks_row(),
                                            self_extend_row(), rerope_row(),       lm_infinite_row(),
                                            jet_long_row(),    jet_long_freq_row()};
  return all;
}

std::string names_of(const auto& all, std::string_view separator) {
  std::string names;
  for (const auto& one : all) names += (names.empty() ? "" : std::string(separator)) + std::string(one.name);
  return names;
}

[[noreturn]] void fail(std::string_view text, const std::string& what) {
  throw UsageError(fmt::format("`position_method` {}: {}", text, what));
}

const PositionRow& row_named(std::string_view name, std::string_view text) {
  const auto row = std::ranges::find(rows(), name, &PositionRow::name);
  if (row == rows().end())
    fail(text, fmt::format("unknown method \"{}\"; known: {}", name, known_position_methods(", ")));
  return *row;
}

std::optional<double> read_number(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

std::vector<double> read_factors(std::string_view list, std::string_view text) {
  std::vector<double> factors;
  for (size_t at = 0; at <= list.size();) {
    const std::string_view part = list.substr(at, list.find(',', at) - at);
    const double factor = read_number(part).value_or(0);
    if (!(factor >= 1 && factor <= kMostValue))
      fail(text, fmt::format("\"{}\" is not a factor; give numbers from 1 to {}", part, kMostValue));
    factors.push_back(factor);
    at += part.size() + 1;
  }
  return factors;
}

void read_value(const PositionRow& row, std::string_view part, std::string_view text,
                std::vector<std::optional<int64_t>>& values, std::vector<double>& factors) {
  const size_t equals = std::min(part.find('='), part.size());
  const auto key = std::ranges::find(row.keys, part.substr(0, equals), &PositionKey::name);
  if (key == row.keys.end()) {
    fail(text, fmt::format("\"{}\" is not a setting of {}; expected NAME=N with one of {}, temperature", part,
                           row.name, names_of(row.keys, ", ")));
  }
  std::optional<int64_t>& value = values[static_cast<size_t>(key - row.keys.begin())];
  if (value) fail(text, fmt::format("{} is given twice; remove one", key->name));
  const std::string_view digits = part.substr(std::min(equals + 1, part.size()));
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value.emplace());
  const auto word = std::ranges::find(key->words, digits);
  if (key->factors) {
    factors = read_factors(digits, text);
    value = std::ssize(factors);
  } else if (word != key->words.end()) {
    value = kAuto - (word - key->words.begin());
  } else if (!key->numbers) {
    fail(text, fmt::format("expected {}={}", key->name, fmt::join(key->words, " or ")));
  } else if (read.ec != std::errc() || read.ptr != end || *value < 1 || *value > kMostValue) {
    fail(text, fmt::format("expected {}=N, a whole number from 1 to {}{}", key->name, kMostValue,
                           key->words.empty() ? "" : ", or auto"));
  }
}

// Depends on the token's position only, hence not on steps: as for Llama 2 in ReRoPE, as YaRN on queries and
// keys, or a constant.
std::function<double(int64_t, double)> read_temperature(std::string_view given, int64_t trained,
                                                        std::string_view text) {
  const double l0 = std::max(static_cast<double>(trained), 2.0);
  if (given == "log")
    return [l0](int64_t p, double) {
      return std::max(std::log(static_cast<double>(p + 1)) / std::log(l0), 1.0);
    };
  if (given == "length") {
    return [l0](int64_t p, double) {
      return std::pow(std::max(0.1 * std::log(static_cast<double>(p + 1) / l0) + 1, 1.0), 2);
    };
  }
  const double factor = read_number(given).value_or(0);
  if (!(factor > 0 && factor <= kMostTemperature)) {
    fail(text,
         fmt::format("expected temperature=log, =length or a factor above 0 and up to {}", kMostTemperature));
  }
  return [factor](int64_t, double) { return factor; };
}

}  // namespace

std::string known_position_methods(std::string_view separator) {
  return fmt::format("none{}{}", separator, names_of(rows(), separator));
}

bool is_position_method(std::string_view text) {
  return std::ranges::count(rows(), text.substr(0, text.find('/')), &PositionRow::name) > 0;
}

PositionMethod parse_position_method(std::string_view text, int64_t trained, int64_t longest) {
  size_t at = std::min(text.find('/'), text.size());
  if (text.empty() || text == "none") return {};
  const PositionRow& row = row_named(text.substr(0, at), text);
  std::vector<std::optional<int64_t>> given(row.keys.size());
  std::vector<double> factors;
  std::optional<std::string_view> temperature;
  while (at < text.size()) {
    const size_t next = std::min(text.find('/', at + 1), text.size());
    const std::string_view part = text.substr(at + 1, next - at - 1);
    at = next;
    if (!part.starts_with(kTemperature)) {
      read_value(row, part, text, given, factors);
    } else if (std::exchange(temperature, part.substr(kTemperature.size()))) {
      fail(text, "temperature is given twice; remove one");
    }
  }
  std::vector<int64_t> values;
  for (size_t i = 0; i < given.size(); ++i) {
    const PositionKey& key = row.keys[i];
    const bool replaced = i + 1 < given.size() && row.keys[i + 1].factors && given[i + 1];
    const int64_t usual =
        key.usual == nullptr || replaced
            ? 0
            : std::clamp(key.usual(trained, longest), key.words.empty() ? int64_t{1} : kAuto, kMostValue);
    values.push_back(given[i].value_or(usual));
  }
  return make_position_method(row.name, values, temperature, trained, factors);
}

PositionMethod make_position_method(std::string_view name, std::span<const int64_t> values,
                                    std::optional<std::string_view> temperature, int64_t trained,
                                    std::span<const double> factors) {
  const PositionRow& row = row_named(name, name);
  std::string text(name);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0)
      text +=
          fmt::format("/{}={}", row.keys[i].name, row.keys[i].words[static_cast<size_t>(kAuto - values[i])]);
    if (values[i] > 0 && row.keys[i].factors) {
      text += fmt::format("/{}={}", row.keys[i].name, fmt::join(factors, ","));
    } else if (values[i] > 0) {
      text += fmt::format("/{}={}", row.keys[i].name, values[i]);
    }
  }
  PositionMethod method;
  try {
    method = row.make(values, trained, factors);
  } catch (const UsageError& e) {
    fail(text, e.what());
  }
  method.name = text;
  if (temperature) {
    method.name += fmt::format("/{}{}", kTemperature, *temperature);
    method.temperature = read_temperature(*temperature, trained, method.name);
  }
  return method;
}

std::function<double(double length)> stretch_behind(int64_t window, int64_t value, int64_t trained) {
  if (value != kAuto) return [value](double) { return static_cast<double>(value); };
  if (window >= trained)
    throw UsageError(
        fmt::format("auto needs a window below the trained length, {}; use a smaller window", trained));
  const auto w = static_cast<double>(window), room = static_cast<double>(trained - window);
  return [=](double length) { return std::max((length - w) / room, 1.0); };
}

void check_position_method(const PositionMethod& method, const ModelSpec& spec) {
  if (method.ranges.empty()) return;
  const auto refuse = [&](std::string_view what) {
    fail(method.name, fmt::format("not supported: a {} has {}; use none", spec.family, what));
  };
  if (!spec.has_rope()) refuse("ALiBi");
  if (!spec.mrope_axes.empty()) refuse("positions of three parts (M-RoPE)");
  for (const LayerSpec& layer : spec.layers) {
    if (layer.attention.latent) refuse("latent attention");
    if (layer.attention.sliding_window > 0) refuse("sliding windows");
    if (layer.attention.rope > 0) refuse("layers with a second RoPE");
  }
  try {
    if (method.far) method.far(rope_unscaled(spec.rope()).inv_freq, spec.rope(), 1);
  } catch (const UsageError& e) {
    fail(method.name, e.what());
  }
}

PositionMethod::Places PositionMethod::unseen(int64_t p) const {
  Places places{0, KeyEdge::kUnbounded};
  for (const VisibleRange& range : ranges) {
    if (range.end.most < KeyEdge::kUnbounded) {
      places.first = std::max<int64_t>(places.first, range.end.most);
    } else {
      places.last = std::min(places.last, range.begin.at(p));
    }
  }
  return places;
}

}  // namespace lariat
