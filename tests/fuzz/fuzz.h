#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "kernels/error.h"
#include "models/text/tokenizer.h"

// Parts of a fuzz target: a function of bytes, FUZZ_TARGET(name). libFuzzer calls it in builds with
// LARIAT_FUZZ; `fuzz_replay` calls it with files in other builds. It must accept the bytes or throw
// lariat::Error: no other exception, no crash, and accepted input satisfies the target's checks.
namespace lariat::fuzz {

using Target = void (*)(std::string_view input);

// Runs a target and requires at most one second of CPU time. libFuzzer's own limit is wall time, which grows
// on a busy machine; it only catches endless runs.
void run(Target target, std::string_view input);

struct Registration {
  Registration(const char* name, Target target);
};

// Runs `body`; false if it throws Error.
template <class Body>
bool accepted(const Body& body) {
  try {
    body();
  } catch (const Error&) {
    return false;
  }
  return true;
}

// A failed check is a finding: prints `what` and aborts.
void require(bool kept, const std::string& what);

// An in-memory folder for parsers of folders, emptied by every call, deleted at exit.
std::filesystem::path fresh_folder();
void write(const std::filesystem::path& file, std::string_view bytes);

// Encodes `text`, decodes the ids at once and one by one: ids are in range, both texts are equal and UTF-8.
// Returns the text with special tokens.
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
