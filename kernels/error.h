#pragma once
#include <stdexcept>
#include <string>

namespace lariat {

// What would help against an error, where a setting of the program would. Below tools/ an error states what
// is wrong; which option to use is said where options are known (advice() in tools/common.h).
enum class Remedy {
  kNone,
  kLessMemory,      // something does not fit into memory
  kSmallerCache,    // the KV cache does not fit into memory, and a dtype of fewer bits would help
  kShorterCache,    // the same, where its dtype has few bits already
  kSmallerWeights,  // the weights do not fit into memory
  kGpuMemory,       // something does not fit into a GPU's memory
  kLongerContext,   // a sequence beyond SessionOptions::max_ctx
  kLongerText,      // a text shorter than what is to be measured on it
  kFewerThreads,    // threads that cannot be started
  kOtherDtype,      // weights that overflow as they are stored
  kNotQuantized,    // a backend that does not run quantised weights
  kFreshLog,        // results that cannot be continued
  kSavedCache,      // a saved context whose cache has other dtypes
  kSavedWeights,    // a saved context made with weights of another dtype
};

// What went wrong at run time: one line naming the file (or the value), what is wrong and what to do.
// Caught once, in main(), which prints "lariat: error: <what>", the advice, and exits with 1.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, Remedy remedy = Remedy::kNone)
      : std::runtime_error(what), remedy_(remedy) {}
  Remedy remedy() const { return remedy_; }

 private:
  Remedy remedy_;
};

// A command line that makes no sense. main() exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace lariat
