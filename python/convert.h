#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/logprobs.h"
#include "models/spec/rope.h"

namespace lariat::python {

namespace nb = nanobind;

template <class T, size_t N>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<N>>;

// Moves the values into a new NumPy array.
template <class T, size_t N>
Array<T, N> to_array(std::vector<T> values, const std::array<size_t, N>& shape) {
  auto* const held = new std::vector<T>(std::move(values));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Array<T, N>(held->data(), N, shape.data(), owner);
}
template <class T>
Array<T, 1> to_array(std::vector<T> values) {
  const size_t n = values.size();
  return to_array<T, 1>(std::move(values), {n});
}

// Token ids from an int32 or int64 array [n], or a list of integers. Throws UsageError.
std::vector<int32_t> to_ids(nb::handle object);

// Keyword arguments; None stands for the default. Throws UsageError for a value of a wrong type.
class Keywords {
 public:
  explicit Keywords(const nb::kwargs& given) : left_(nb::borrow<nb::dict>(given)) {}
  template <class T>
  Keywords& take(const char* name, T& value) {
    if (const nb::object object = pop(name); !object.is_none() && !nb::try_cast(object, value)) fail(name);
    return *this;
  }
  // An integer or a list of them.
  Keywords& take_lengths(const char* name, std::vector<int64_t>& value);
  void finish() const;  // throws UsageError if an argument was not taken

 private:
  nb::object pop(const char* name);
  [[noreturn]] static void fail(const char* name);
  nb::dict left_;
};

nb::object to_python(const nlohmann::ordered_json& json);
// JSON text of a Python object. Throws UsageError.
std::string to_json_text(nb::handle object, const char* name);

// Throws UsageError for a number outside [low, high] or NaN.
void check_range(const char* name, double value, double low, double high);

// An object as in config.json, with all parameters of its type.
nlohmann::ordered_json rope_json(const RopeScaling& rope);
// scaling: None (`own`), a name ("yarn/factor=4") or a dict of rope_json. model: the model's. Throws
// UsageError.
RopeScaling to_rope(nb::handle scaling, const RopeScaling& own, const RopeScaling& model);

}  // namespace lariat::python
