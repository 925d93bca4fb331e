#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(sentencepiece) {
  using namespace lariat;
  const auto folder = fuzz::fresh_folder();
  fuzz::write(folder / "tokenizer.model", input);
  fuzz::accepted([&] {
    const Tokenizer tokenizer = Tokenizer::load(folder);
    fuzz::round_trip(tokenizer,
                     "The river  <s> 12\n\t\xE6\xB2\xB3 don't e\xCC\x81 \xF0\x9F\x98\x80\xFF \xE2\x96\x81 x");
    fuzz::round_trip(tokenizer, "");
  });
}
