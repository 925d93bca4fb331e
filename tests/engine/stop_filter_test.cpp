// transformers' StopStringCriteria, with special tokens and bytes (golden/stops.json).
#include "engine/text/stop_filter.h"

#include <map>

#include "models/io/json_file.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

Tokenizer golden_tokenizer(const std::string& name) {
  return Tokenizer::load(golden_dir() / "tokenizers" / name);
}

struct Typed {
  explicit Typed(std::vector<std::string> stops)
      : filter(tokenizer, StreamDecoder(tokenizer), std::move(stops)) {}
  std::string push(const std::string& text) {
    std::string shown;
    for (const int32_t id : tokenizer.encode(text, false)) shown += filter.push(id);
    return shown;
  }
  Tokenizer tokenizer = golden_tokenizer("byte-mini");
  StopFilter filter;
};

TEST(StopFilter, EndsWhereTransformersDoes) {
  const nlohmann::json cases = read_json(golden_dir() / "stops.json");
  EXPECT_GE(cases.size(), 100U);
  std::map<std::string, Tokenizer> tokenizers;
  size_t stopped = 0;
  for (const nlohmann::json& one : cases) {
    SCOPED_TRACE(one.dump());
    const std::string base = one["base"];
    const auto tokenizer = tokenizers.try_emplace(base, golden_tokenizer(base)).first->second;
    StopFilter filter(tokenizer, StreamDecoder(tokenizer), one["stop"]);
    std::string text;
    size_t after = 0;
    for (const int32_t id : one["ids"].get<std::vector<int32_t>>()) {
      if (filter.stopped()) break;
      text += filter.push(id);
      ++after;
    }
    EXPECT_EQ(filter.stopped(), one["after"].is_number());
    EXPECT_TRUE(!filter.stopped() || after == one["after"]) << after;
    EXPECT_EQ(text + filter.flush(), one["text"]);
    stopped += filter.stopped() ? 1 : 0;
  }
  EXPECT_GE(stopped, 60U);
}

TEST(StopFilter, HoldsBackOnlyTokensThatMayBeginAStop) {
  Typed typed({"###", "END"});
  EXPECT_EQ(typed.push("abc#"), "abc");
  EXPECT_EQ(typed.push("#d"), "##d");
  EXPECT_EQ(typed.push("E"), "");
  EXPECT_EQ(typed.push("N"), "");
  EXPECT_EQ(typed.push("xEN"), "ENx");
  EXPECT_FALSE(typed.filter.stopped());
  EXPECT_EQ(typed.filter.flush(), "EN");
}

TEST(StopFilter, CutsAtTheFirstStop) {
  Typed typed({"b\n", "\n"});
  EXPECT_EQ(typed.push("a"), "a");
  EXPECT_EQ(typed.push("b"), "");
  EXPECT_EQ(typed.push("\nmore"), "");
  EXPECT_TRUE(typed.filter.stopped());
  EXPECT_EQ(typed.push("x"), "");
  EXPECT_EQ(typed.filter.flush(), "");
}

TEST(StopFilter, WithoutStopsEverythingPasses) {
  Typed typed({""});
  EXPECT_EQ(typed.push("all of it"), "all of it");
}

}  // namespace
}  // namespace lariat::test
