#pragma once
#include <stdexcept>
#include <string>

namespace lariat {

// A failure at run time, as one line naming the file (or the value), what is wrong and what to do. A setting
// that would help is named in backticks, as `kv_dtype`; tools/output.cpp knows which option sets it.
// Caught once, in main(), which prints "lariat: error: <what>" and exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Settings that make no sense, alone or together. main() exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace lariat
