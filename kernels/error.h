#pragma once
#include <stdexcept>
#include <string>

namespace lariat {

// What went wrong at run time: one line naming the file (or the value), what is wrong and what to do.
// Caught once, in main(), which prints "lariat: error: <what>" and exits with 1.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

// A command line that makes no sense. main() exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace lariat
