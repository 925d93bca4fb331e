#include "models/positions/parse_position_method.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/error.h"
#include "models/positions/position_row.h"

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

// nullopt: not a number of type T.
template <class T>
std::optional<double> read_number(std::string_view text) {
  T number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional<double>(number) : std::nullopt;
}

std::vector<double> read_factors(std::string_view list, std::string_view text) {
  std::vector<double> factors;
  for (size_t at = 0; at <= list.size();) {
    const std::string_view part = list.substr(at, list.find(',', at) - at);
    const double factor = read_number<double>(part).value_or(0);
    if (!(factor >= 1 && factor <= kMostValue))
      fail(text, fmt::format("\"{}\" is not a factor; give numbers from 1 to {}", part, kMostValue));
    factors.push_back(factor);
    at += part.size() + 1;
  }
  return factors;
}

PositionValue read_value(const PositionKey& key, std::string_view given, std::string_view text) {
  using enum PositionKey::Kind;
  if (key.kind == kList) return {.numbers = read_factors(given, text)};
  if (const auto word = std::ranges::find(key.words, given); word != key.words.end()) return {.word = *word};
  if (key.kind == kWord) fail(text, fmt::format("expected {}={}", key.name, fmt::join(key.words, " or ")));
  const double number =
      (key.kind == kReal ? read_number<double>(given) : read_number<int64_t>(given)).value_or(0);
  if (!(number >= 1 && number <= kMostValue)) {
    fail(text,
         fmt::format("expected {}=N, a {}number from 1 to {}{}", key.name, key.kind == kReal ? "" : "whole ",
                     kMostValue, key.words.empty() ? "" : ", or auto"));
  }
  return {.numbers = {number}};
}

void add_value(const PositionRow& row, std::string_view part, std::string_view text, PositionValues& values) {
  const size_t equals = std::min(part.find('='), part.size());
  const auto key = std::ranges::find(row.keys, part.substr(0, equals), &PositionKey::name);
  if (key == row.keys.end()) {
    fail(text, fmt::format("\"{}\" is not a setting of {}; expected NAME=N with one of {}, temperature", part,
                           row.name, names_of(row.keys, ", ")));
  }
  if (!values.add(key->name, read_value(*key, part.substr(std::min(equals + 1, part.size())), text)))
    fail(text, fmt::format("{} is given twice; remove one", key->name));
}

// Adds the defaults of keys without a value; returns the name of the method with all values.
std::string add_defaults(const PositionRow& row, int64_t trained, int64_t longest, PositionValues& values) {
  std::string name(row.name);
  for (size_t i = 0; i < row.keys.size(); ++i) {
    const PositionKey& key = row.keys[i];
    const bool replaced = i + 1 < row.keys.size() && row.keys[i + 1].kind == PositionKey::Kind::kList &&
                          values.has(row.keys[i + 1].name);
    if (key.usual != nullptr && !replaced) {
      const int64_t usual = key.usual(trained, longest);
      PositionValue value;
      if (usual == kFirstWord && !key.words.empty()) {
        value.word = key.words[0];
      } else {
        value.numbers = {static_cast<double>(std::clamp(usual, int64_t{1}, kMostValue))};
      }
      values.add(key.name, std::move(value));
    }
    if (!values.has(key.name)) continue;
    const PositionValue& value = values.of(key.name);
    name += fmt::format("/{}={}{}", key.name, value.word, fmt::join(value.numbers, ","));
  }
  return name;
}

// Factor of queries by position, so that it does not depend on chunks. "log": ReRoPE's for Llama 2; "length":
// YaRN's, squared (q and k); a number: constant.
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
  const double factor = read_number<double>(given).value_or(0);
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
  PositionValues values;
  std::optional<std::string_view> temperature;
  while (at < text.size()) {
    const size_t next = std::min(text.find('/', at + 1), text.size());
    const std::string_view part = text.substr(at + 1, next - at - 1);
    at = next;
    if (!part.starts_with(kTemperature)) {
      add_value(row, part, text, values);
    } else if (std::exchange(temperature, part.substr(kTemperature.size()))) {
      fail(text, "temperature is given twice; remove one");
    }
  }
  const std::string name = add_defaults(row, trained, longest, values);
  PositionMethod method;
  try {
    method = row.make(values, trained);
  } catch (const UsageError& e) {
    fail(name, e.what());
  }
  method.name = name;
  if (temperature) {
    method.name += fmt::format("/{}{}", kTemperature, *temperature);
    method.temperature = read_temperature(*temperature, trained, method.name);
  }
  return method;
}

std::function<double(double length)> far_divisor(int64_t window, const PositionValue& value,
                                                 int64_t trained) {
  if (value.word.empty()) return [number = value.numbers.at(0)](double) { return number; };
  if (window >= trained)
    throw UsageError(
        fmt::format("auto needs a window below the trained length, {}; use a smaller window", trained));
  const auto w = static_cast<double>(window), room = static_cast<double>(trained - window);
  return [=](double length) { return std::max((length - w) / room, 1.0); };
}

}  // namespace lariat
