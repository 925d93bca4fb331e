#include "python/convert.h"

#include <fmt/format.h>

#include "engine/eval/measurement.h"
#include "engine/rope_options.h"
#include "kernels/error.h"

namespace lariat::python {
namespace {

int32_t to_id(int64_t id, size_t index) {
  if (id >= 0 && id <= INT32_MAX) return static_cast<int32_t>(id);
  throw UsageError(
      fmt::format("token id {} (index {}): out of range; use ids of the model's vocabulary", id, index));
}

template <class T>
std::vector<int32_t> elements(const nb::ndarray<nb::ro>& array) {
  std::vector<int32_t> ids(array.shape(0));
  const auto* const data = static_cast<const T*>(array.data());
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = to_id(data[static_cast<std::ptrdiff_t>(i) * static_cast<std::ptrdiff_t>(array.stride(0))], i);
  return ids;
}

}  // namespace

std::vector<int32_t> to_ids(nb::handle object) {
  nb::ndarray<nb::ro> array;
  if (nb::ndarray_check(object) && nb::try_cast(object, array, false)) {
    if (array.device_type() != nb::device::cpu::value)
      throw UsageError("token ids: an array on another device; use a NumPy array");
    if (array.ndim() != 1)
      throw UsageError(
          fmt::format("token ids: an array of {} dimensions; use one of shape [n]", array.ndim()));
    if (array.dtype() == nb::dtype<int32_t>()) return elements<int32_t>(array);
    if (array.dtype() == nb::dtype<int64_t>()) return elements<int64_t>(array);
    throw UsageError("token ids: an array of another dtype; use int32 or int64");
  }
  if (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr()))
    throw UsageError("token ids: neither an array nor a list; use an int32 array of shape [n]");
  std::vector<int32_t> ids;
  for (const nb::handle item : object) {
    int64_t id = 0;
    if (!nb::isinstance<nb::int_>(item) || !nb::try_cast(item, id, false))
      throw UsageError(fmt::format(
          "token ids: element {} is no integer of 64 bits; use ids of the vocabulary", ids.size()));
    ids.push_back(to_id(id, ids.size()));
  }
  return ids;
}

nb::object Keywords::pop(const char* name) {
  if (!left_.contains(name)) return nb::none();
  const nb::object value = left_[name];
  nb::del(left_[name]);
  return value;
}

void Keywords::fail(const char* name) {
  throw UsageError(fmt::format("`{}`: a value of a wrong type; see help(lariat)", name));
}

Keywords& Keywords::take_lengths(const char* name, std::vector<int64_t>& value) {
  const nb::object object = pop(name);
  int64_t one = 0;
  if (object.is_none()) return *this;
  if (nb::try_cast(object, one)) {
    value = {one};
  } else if (!nb::try_cast(object, value)) {
    fail(name);
  }
  return *this;
}

void Keywords::finish() const {
  for (const auto& [name, value] : left_)
    throw UsageError(fmt::format("`{}`: no such argument; see help(lariat)", nb::str(name).c_str()));
}

nb::object to_python(const nlohmann::ordered_json& json) {
  if (json.is_boolean()) return nb::bool_(json.get<bool>());
  if (json.is_number_unsigned()) return nb::int_(json.get<uint64_t>());
  if (json.is_number_integer()) return nb::int_(json.get<int64_t>());
  if (json.is_number()) return nb::float_(json.get<double>());
  if (json.is_string()) {
    const std::string& text = json.get_ref<const std::string&>();
    return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  }
  if (json.is_array()) {
    nb::list list;
    for (const auto& item : json) list.append(to_python(item));
    return list;
  }
  if (!json.is_object()) return nb::none();
  nb::dict dict;
  for (const auto& [key, value] : json.items()) dict[to_python(key)] = to_python(value);
  return dict;
}

std::string to_json_text(nb::handle object, const char* name) {
  try {
    const nb::object text = nb::module_::import_("json").attr("dumps")(object, nb::arg("allow_nan") = false);
    return nb::cast<std::string>(text);
  } catch (const nb::python_error& error) {
    throw UsageError(fmt::format("`{}`: no JSON ({}); use numbers, texts, lists and dicts", name,
                                 nb::str(error.value()).c_str()));
  }
}

void check_range(const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high))
    throw UsageError(fmt::format("`{}`: {} is out of range; use {} to {}", name, value, low, high));
}

nlohmann::ordered_json rope_json(const RopeScaling& rope) {
  const bool yarn = is_yarn(rope.type), longrope = rope.type == RopeType::kLongRope;
  nlohmann::ordered_json json = {{"rope_type", name_of(rope.type)}, {"rope_theta", rope.theta}};
  if (rope.type == RopeType::kDefault) return json;
  json.update({{"factor", rope.factor}, {"original_max_position_embeddings", rope.original_ctx}});
  if (rope.type == RopeType::kLlama3)
    json.update({{"low_freq_factor", rope.low_freq_factor}, {"high_freq_factor", rope.high_freq_factor}});
  if (longrope) json.update({{"short_factor", rope.short_factor}, {"long_factor", rope.long_factor}});
  if ((yarn || longrope) && rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  if (yarn) {
    json.update({{"beta_fast", rope.beta_fast},
                 {"beta_slow", rope.beta_slow},
                 {"mscale", rope.mscale},
                 {"mscale_all_dim", rope.mscale_all_dim},
                 {"truncate", rope.truncate}});
  }
  return json;
}

RopeScaling to_rope(nb::handle scaling, const RopeScaling& own, const RopeScaling& model) {
  if (scaling.is_none()) return own;
  RopeOptions options;
  if (nb::isinstance<nb::str>(scaling)) {
    const auto name = nb::cast<std::string>(scaling);
    if (name == "model") return model;
    const Column column = parse_column(name);
    if (!column.method.empty())
      throw UsageError("`rope_scaling` " + name + ": a position method; give it as `position_method`");
    options.scaling = column.scaling;
    options.factor = column.factor;
    return resolve_rope(model, options);
  }
  if (!nb::isinstance<nb::dict>(scaling))
    throw UsageError(
        "`rope_scaling`: neither a name nor a dict; use \"dynamic-yarn\", \"yarn/factor=4\" or a dict as in "
        "config.json");
  const auto json = nlohmann::json::parse(to_json_text(scaling, "rope_scaling"));
  for (const RopeScaling* known : {&own, &model}) {
    if (json == nlohmann::json(rope_json(*known))) return *known;
  }
  RopeScaling rope = rope_from_json(json, "`rope_scaling`", model);
  // A dict means its own length, also for types that ignore config.json's.
  if (const auto length = json.find("original_max_position_embeddings"); length != json.end())
    options.original_ctx = length->get<int64_t>();
  return resolve_rope(rope, options);
}

}  // namespace lariat::python
