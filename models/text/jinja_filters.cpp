#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "models/text/jinja_eval.h"
#include "models/text/jinja_text.h"

namespace lariat::jinja {
namespace {

constexpr int64_t kMaxIndent = 256;

Value json_filter(Context& cx, const Call& call) {
  const Arguments args(call, "tojson", {"value", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonStyle style{.ascii = args.boolean(1, false), .sort_keys = args.boolean(4, false), .indent = {}};
  if (args[2] && !args[2]->is(Kind::kNone)) {
    if (is_text(*args[2])) {
      style.indent = text_of(*args[2]);
    } else {
      style.indent =
          std::string(static_cast<size_t>(std::clamp<int64_t>(args.integer(2, 0), 0, kMaxIndent + 1)), ' ');
    }
    if (style.indent->size() > kMaxIndent) throw Failure("tojson with an indent of more than 256 bytes");
    style.item_separator = ",";
  }
  if (args[3] && !args[3]->is(Kind::kNone)) {
    const Value both = to_sequence(cx, *args[3]);
    if (items_of(both).size() != 2 || !is_text(items_of(both)[0]) || !is_text(items_of(both)[1]))
      throw Failure("tojson: separators are two texts");
    style.item_separator = text_of(items_of(both)[0]);
    style.key_separator = text_of(items_of(both)[1]);
    if (style.item_separator.size() + style.key_separator.size() > kMaxIndent)
      throw Failure("tojson with separators of more than 256 bytes");
  }
  return make_text(cx, to_json(cx, *args[0], style));
}

// Python's float() of a text; nothing where it refuses.
std::optional<double> parse_float(std::string_view text) {
  std::string digits(strip(text, nullptr, true, true));
  if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool hexadecimal = digits.find_first_of("xX") != digits.npos;
  const bool whole = result.ptr == digits.data() + digits.size() && digits.find('(') == digits.npos;
  if (result.ec != std::errc() || !whole || digits.empty() || hexadecimal) return std::nullopt;
  return value;
}

std::optional<int64_t> truncate(double d) {
  if (!(std::fabs(d) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(d);
}

Value int_filter(Context& cx, const Call& call) {
  const Arguments args(call, "int", {"value", "default", "base"}, 1);
  if (args.integer(2, 10) != 10) throw Failure("int of another base than 10 is not supported");
  const Value& v = *args[0];
  Value otherwise = args[1] ? *args[1] : integer(0);
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (is_integral(v)) return integer(integral(v));
  std::optional<double> number;
  if (v.is(Kind::kFloat)) number = v.real;
  if (is_text(v)) {
    cx.charge(text_of(v).size());
    std::string digits(strip(text_of(v), nullptr, true, true));
    if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
    int64_t whole = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
    if (result.ptr == digits.data() + digits.size() && result.ec == std::errc()) return integer(whole);
    if (result.ec == std::errc::result_out_of_range)
      throw Failure("int: a number that does not fit into 64 bits");
    number = parse_float(text_of(v));
  }
  if (!number) return otherwise;
  const auto whole = truncate(*number);
  if (!whole && std::isfinite(*number)) throw Failure("int: a number that does not fit into 64 bits");
  return whole ? integer(*whole) : otherwise;
}

Value float_filter(Context&, const Call& call) {
  const Arguments args(call, "float", {"value", "default"}, 1);
  const Value& v = *args[0];
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (is_number(v)) return real(to_double(v));
  const auto number = is_text(v) ? parse_float(text_of(v)) : std::nullopt;
  return number ? real(*number) : args[1] ? *args[1] : real(0);
}

Value round_filter(Context&, const Call& call) {
  const Arguments args(call, "round", {"value", "precision", "method"}, 1);
  if (args[0]->is(Kind::kUndefined)) fail_undefined(*args[0]);
  if (!is_number(*args[0])) throw Failure(fmt::format("round of a '{}'", type_name(*args[0])));
  const int64_t precision = args.integer(1, 0);
  const std::string* method = args.text(2);
  if (precision < 0 || precision > 15 || (method && *method != "common"))
    throw Failure("round knows 0 to 15 digits and the method 'common'");
  if (is_integral(*args[0])) return integer(integral(*args[0]));
  if (!std::isfinite(args[0]->real)) return *args[0];
  const std::string digits = fmt::format("{:.{}f}", args[0]->real, precision);
  double rounded = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  return real(rounded);
}

Value abs_filter(Context&, const Call& call) {
  const Arguments args(call, "abs", {"value"}, 1);
  const Value& v = *args[0];
  if (v.is(Kind::kFloat)) return real(std::fabs(v.real));
  return is_integral(v) && integral(v) >= 0 ? integer(integral(v)) : negative(v);
}

Value default_filter(Context& cx, const Call& call) {
  const Arguments args(call, "default", {"value", "default_value", "boolean"}, 1);
  if (!args[0]->is(Kind::kUndefined) && !(args.boolean(2, false) && !truth(*args[0]))) return *args[0];
  return args[1] ? *args[1] : make_text(cx, "");
}

Value indent_filter(Context& cx, const Call& call) {
  const Arguments args(call, "indent", {"s", "width", "first", "blank"}, 1);
  const std::string* given = args[1] && is_text(*args[1]) ? args.text(1) : nullptr;
  const int64_t width = given ? 0 : std::clamp<int64_t>(args.integer(1, 4), 0, kMaxIndent + 1);
  const std::string space = given ? *given : std::string(static_cast<size_t>(width), ' ');
  if (space.size() > kMaxIndent) throw Failure("indent by more than 256 bytes");
  if (args[0]->is(Kind::kUndefined)) fail_undefined(*args[0]);
  if (!args.text(0)) throw Failure("indent needs a text");
  const std::string text = *args.text(0) + "\n";
  cx.charge(8 * text.size());
  std::string out = args.boolean(2, false) ? space : "";
  const auto lines = split_lines(text, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (args.boolean(3, false) || !lines[i].empty())) out += space;
    cx.reserve_text(out.size(), lines[i].size() + space.size());
    out += lines[i];
  }
  return make_text(cx, std::move(out));
}

// Filters of a text and nothing else.
template <std::string (*change)(std::string_view)>
Value of_text(Context& cx, const Call& call) {
  const Arguments args(call, "the filter", {"s"}, 1);
  const std::string text = to_text(cx, *args[0]);
  cx.charge(8 * text.size());
  return make_text(cx, change(text));
}

Value trim_filter(Context& cx, const Call& call) {
  const Arguments args(call, "trim", {"value", "chars"}, 1);
  const std::string text = to_text(cx, *args[0]);
  const std::string* set = args.text(1);
  if (set) cx.charge(text.size() * (1 + set->size() / 16));
  return make_text(cx, std::string(strip(text, set, true, true)));
}

Value replace_filter(Context& cx, const Call& call) {
  const Arguments args(call, "replace", {"s", "old", "new", "count"}, 3);
  const int64_t count = args[3] && args[3]->is(Kind::kNone) ? -1 : args.integer(3, -1);
  return make_text(cx,
                   replace(cx, to_text(cx, *args[0]), to_text(cx, *args[1]), to_text(cx, *args[2]), count));
}

Value escape_filter(Context& cx, const Call& call) {
  const Arguments args(call, "escape", {"s"}, 1);
  if (args[0]->is(Kind::kMarkup)) return *args[0];
  const std::string text = to_text(cx, *args[0]);
  cx.charge(5 * text.size());
  return make_markup(cx, escape_html(text));
}

const std::unordered_map<std::string_view, Filter>& filters() {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"abs", abs_filter},
      {"attr",
       [](Context& cx, const Call& call) {
         const Arguments args(call, "attr", {"obj", "name"}, 2);
         if (!args.text(1)) throw Failure("attr needs a name");
         return args[0]->is(Kind::kDict) ? undefined("a dict has no such attribute")
                                         : attribute(cx, *args[0], *args.text(1));
       }},
      {"capitalize", of_text<capitalize>},
      {"d", default_filter},
      {"default", default_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"float", float_filter},
      {"indent", indent_filter},
      {"int", int_filter},
      {"lower", of_text<lower>},
      {"replace", replace_filter},
      {"round", round_filter},
      {"safe", [](Context& cx, const Call& call) { return make_markup(cx, to_text(cx, call.args.at(0))); }},
      {"string", [](Context& cx, const Call& call) { return make_text(cx, to_text(cx, call.args.at(0))); }},
      {"title", of_text<filter_title>},
      {"tojson", json_filter},
      {"trim", trim_filter},
      {"upper", of_text<upper>},
  };
  return kFilters;
}

}  // namespace

Value apply_filter(Context& cx, const std::string& name, const Call& call) {
  const auto found = filters().find(name);
  const Filter filter = found == filters().end() ? find_list_filter(name) : found->second;
  if (filter) return filter(cx, call);
  throw Failure(
      fmt::format("unknown filter '{:.40}'; lariat knows trim, tojson, join, map, select, default, items "
                  "and other filters of Jinja",
                  name));
}

}  // namespace lariat::jinja
