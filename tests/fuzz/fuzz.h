#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "kernels/error.h"
#include "models/text/tokenizer.h"

// What a fuzz target is made of. A target is one function of some bytes, FUZZ_TARGET(name): libFuzzer calls
// it in a build with LARIAT_FUZZ, and `fuzz_replay` calls it with files in every other build.
//
// Its property: the bytes are taken, or refused with a lariat::Error. Nothing else is thrown, nothing
// crashes, and what was taken keeps its promises.
namespace lariat::fuzz {

using Target = void (*)(std::string_view input);

// Runs a target and requires that it takes at most a second of CPU time. libFuzzer's own limit is on the
// wall's clock, which goes on while a busy machine runs something else; it is left to catch what never ends.
void run(Target target, std::string_view input);

// Makes a target known to fuzz_replay.
struct Registration {
  Registration(const char* name, Target target);
};

// Runs `body`; false when it refuses with an Error.
template <class Body>
bool accepted(const Body& body) {
  try {
    body();
  } catch (const Error&) {
    return false;
  }
  return true;
}

// A promise that is not kept is a finding: prints `what` and aborts.
void require(bool kept, const std::string& what);

// A folder in memory for the parsers that read a folder of files, empty after every call. It goes when the
// process ends.
std::filesystem::path fresh_folder();
void write(const std::filesystem::path& file, std::string_view bytes);

// Encodes `text` and decodes the ids at once and one by one: the ids are in range, and the text is UTF-8 and
// the same either way. Returns the text; special tokens are in it.
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
