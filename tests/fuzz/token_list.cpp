// Ids of --tokens and --tokens-file.
#include "engine/eval/measure/token_source.h"

#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(token_list) {
  using namespace lariat;
  fuzz::accepted([&] {
    const auto ids = parse_token_list(input, "--tokens");
    std::string text;
    for (const int32_t id : ids) {
      fuzz::require(id >= 0, "a negative id");
      text += std::to_string(id) + ",";
    }
    fuzz::require(!ids.empty() && parse_token_list(text, "--tokens") == ids,
                  "ids that do not survive being written");
  });
}
