// A chat template, rendered for one conversation.
#include <algorithm>

#include "models/text/jinja_tree.h"
#include "models/text/unicode.h"
#include "tests/fuzz/fuzz.h"

namespace {

// A sixteenth of the normal limits, because sanitizers are that much slower.
constexpr lariat::jinja::Limits kLimits = {
    .steps = 250'000, .bytes = uint64_t{16} << 20, .text_bytes = uint64_t{2} << 20};
constexpr std::time_t kNow = 1720278245;

const nlohmann::ordered_json& variables() {
  static const auto kVariables = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief. é😀"}, {"role": "user", "content": " Hi {x} "},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello", "tool_calls": []},
                 {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "tools": null,
    "text": "  Straße und Fluß 😀  ", "words": ["pear", "Apple", "fig", "apple"], "numbers": [3, -1, 2, 10],
    "nested": {"a": {"b": [1, 2.5, null, true, "x"]}, "z": {}}, "n": 7, "f": 2.5, "yes": true, "no": false,
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 4}], "lines": "one\ntwo\n\n three"})");
  return kVariables;
}

}  // namespace

FUZZ_TARGET(chat_template) {
  using namespace lariat;
  try {
    const jinja::Program program = jinja::parse(input);
    jinja::Context cx(kLimits, kNow);
    std::vector<std::pair<std::string, jinja::Value>> values;
    for (const auto& [name, value] : variables().items())
      values.emplace_back(name, jinja::from_json(cx, value));
    const std::string text = jinja::render(program, cx, values);
    fuzz::require(is_utf8(text), "a rendered text that is not UTF-8");
    fuzz::require(text.size() <= kLimits.text_bytes, "a rendered text beyond the limit");
  } catch (const jinja::Failure& failure) {
    const auto lines =
        std::count(input.begin(), input.end(), '\n') + std::count(input.begin(), input.end(), '\r') + 1;
    fuzz::require(failure.line >= 1 && failure.line <= lines, "an error without its line");
  }
}
