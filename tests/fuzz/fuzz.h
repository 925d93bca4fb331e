#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "kernels/error.h"
#include "models/text/tokenizer.h"

// FUZZ_TARGET(name) is a function of bytes for libFuzzer (LARIAT_FUZZ builds) or `fuzz_replay`. It must
// accept the bytes or throw lariat::Error; accepted input satisfies the target's checks.
namespace lariat::fuzz {

using Target = void (*)(std::string_view input);

// Requires at most one second of CPU time: libFuzzer's wall time grows on a busy machine.
void run(Target target, std::string_view input);

struct Registration {
  Registration(const char* name, Target target);
};

// False if `body` throws Error.
template <class Body>
bool accepted(const Body& body) {
  try {
    body();
  } catch (const Error&) {
    return false;
  }
  return true;
}

// Prints `what` and aborts.
void require(bool kept, const std::string& what);

// An in-memory folder, emptied by every call, deleted at exit.
std::filesystem::path fresh_folder();
void write(const std::filesystem::path& file, std::string_view bytes);

// Decodes the ids of `text` at once and one by one: both are equal and UTF-8, with special tokens.
std::string round_trip(const Tokenizer& tokenizer, std::string_view text);

}  // namespace lariat::fuzz

#ifdef LARIAT_FUZZ
#define FUZZ_TARGET(name)                                                                 \
  static void name(std::string_view input);                                               \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {               \
    lariat::fuzz::run(name, std::string_view(reinterpret_cast<const char*>(data), size)); \
    return 0;                                                                             \
  }                                                                                       \
  static void name(std::string_view input)
#else
#define FUZZ_TARGET(name)                                               \
  static void name(std::string_view input);                             \
  static const lariat::fuzz::Registration register_##name(#name, name); \
  static void name(std::string_view input)
#endif
