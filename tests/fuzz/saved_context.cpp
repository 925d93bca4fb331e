// A saved context of a one-layer model.
#include "engine/contexts/saved_context_file.h"

#include <cmath>

#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(saved_context) {
  using namespace lariat;
  KvGeometry geometry;
  geometry.add_layer(1, 2, DType::kF16, DType::kF16);
  const ContextExpectations expected = {
      {"0123456789abcdef", "fedcba9876543210", "f32", "f16", "f16", "1 pairs, half-split"},
      geometry,
      1,
      10,
      1000,
      true};
  const auto bytes = std::as_bytes(std::span(input));
  fuzz::accepted([&] {
    const ContextRecord record = parse_saved_context(bytes, "context.safetensors", expected);
    const auto pages = static_cast<size_t>((record.length + kKvPage - 1) / kKvPage);
    fuzz::require(record.pages.size() == pages * geometry.page_bytes, "wrong number of pages for the tokens");
    fuzz::require(
        record.pages.empty() || (record.pages.data() >= bytes.data() &&
                                 record.pages.data() + record.pages.size() <= bytes.data() + bytes.size()),
        "pages outside the file");
    for (const int32_t token : record.tokens)
      fuzz::require(token >= 0 && token < 10, "a token outside the vocabulary");
    for (const int32_t position : record.placed) fuzz::require(position >= 0, "a negative position");
    fuzz::require(record.length <= 1000 && record.placed.size() % 3 == 0, "the length exceeds its limit");
    fuzz::require(record.frequencies.inv_freq.size() == 1 && std::isfinite(record.frequencies.inv_freq[0]),
                  "RoPE frequencies that cannot be used");
  });
}
