// tokenizer.json, a NUL byte, tokenizer_config.json.
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(tokenizer_json) {
  using namespace lariat;
  const auto folder = fuzz::fresh_folder();
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    const size_t end = input.find('\0');
    fuzz::write(folder / name, input.substr(0, end));
    if (end == std::string_view::npos) break;
    input.remove_prefix(end + 1);
  }
  fuzz::accepted([&] {
    const Tokenizer tokenizer = Tokenizer::load(folder);
    for (const int32_t id : tokenizer.eos_ids()) fuzz::require(id >= 0, "a negative eos");
    fuzz::round_trip(tokenizer,
                     "The river  <s> 12\n\t\xE6\xB2\xB3 don't e\xCC\x81 \xF0\x9F\x98\x80\xFF aaaaaaaaaa\x01");
    fuzz::round_trip(tokenizer, "");
  });
}
