#pragma once
#include <stdexcept>
#include <string>

namespace lariat {

// Runtime failure in one line: `<file or option>: <what is wrong>; <what to do>`. tools/output.cpp maps
// setting names in backticks, as `kv_dtype`, to options. main() prints "lariat: error: <message>" and exits
// with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Invalid or contradictory settings; main() exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace lariat
