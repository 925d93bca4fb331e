// Vocabularies of Qwen 1 and GLM-4.
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(tiktoken) {
  using namespace lariat;
  for (const bool qwen : {true, false}) {
    const auto folder = fuzz::fresh_folder();
    fuzz::write(folder / (qwen ? "qwen.tiktoken" : "tokenizer.model"), input);
    fuzz::write(folder / "tokenizer_config.json",
                qwen ? "{}" : R"({"tokenizer_class": "ChatGLM4Tokenizer"})");
    fuzz::accepted([&] {
      const Tokenizer tokenizer = Tokenizer::load(folder);
      fuzz::round_trip(
          tokenizer, "The river  <sop> 12\n\t\xE6\xB2\xB3 don't e\xCC\x81 \xF0\x9F\x98\x80\xFF aaaaaaaa\x01");
      fuzz::round_trip(tokenizer, "");
    });
  }
}
