#include "engine/eval/passkey.h"

#include <algorithm>
#include <set>

#include "engine/generate.h"
#include "engine/rope_options.h"
#include "models/text/tokenizer.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

// One id per `bytes` bytes inside a word, a BOS in front: words of several ids, as small vocabularies have.
TextCodec toy_codec(size_t bytes, int32_t vocab) {
  TextCodec codec;
  codec.encode = [bytes, vocab](std::string_view text) {
    std::vector<int32_t> ids = {1};
    for (size_t at = 0; at < text.size();) {
      size_t end = at + 1;
      while (end < text.size() && end - at < bytes && text[end] != ' ' && text[end] != '\n') ++end;
      uint32_t hash = 0;
      for (; at < end; ++at) hash = hash * 31 + static_cast<unsigned char>(text[at]);
      ids.push_back(2 + static_cast<int32_t>(hash % static_cast<uint32_t>(vocab - 2)));
    }
    return ids;
  };
  codec.decode = [](std::span<const int32_t> ids) {
    std::string text;
    for (const int32_t id : ids) text += std::to_string(id) + " ";
    return text;
  };
  return codec;
}

TEST(PasskeyScoring, HandMadeTranscripts) {
  EXPECT_TRUE(answers_key(" 1234.", 1234));
  EXPECT_TRUE(answers_key("1234", 1234));
  EXPECT_TRUE(answers_key(" the number 1234, remember it: 99", 1234));  // after words
  EXPECT_TRUE(answers_key(" 01234.", 1234));
  EXPECT_TRUE(answers_key("1234\n5678", 1234));
  EXPECT_FALSE(answers_key(" 4321.", 1234));          // wrong
  EXPECT_FALSE(answers_key(" 12345.", 1234));         // a longer number that begins with the key
  EXPECT_FALSE(answers_key(" 51234.", 1234));         // ... that ends with it
  EXPECT_FALSE(answers_key(" 123 4", 1234));          // the first integer is another one
  EXPECT_FALSE(answers_key(" 7 1234", 1234));         // right, but second
  EXPECT_FALSE(answers_key(" in the grass.", 1234));  // no number
  EXPECT_FALSE(answers_key("", 1234));
  EXPECT_FALSE(answers_key(" 1,234", 1234));
  EXPECT_FALSE(answers_key(" 99999999999999999999999999", 1234));
  EXPECT_FALSE(answers_key("000", 1));
  EXPECT_EQ(first_integer("a12b34"), "12");
  EXPECT_EQ(first_integer("none"), "");
}

TEST(PasskeyPromptsTest, TheFormIsTheOneOfTheLiterature) {
  EXPECT_EQ(
      PasskeyPrompts::text(30, 89 + 10, 77),
      "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I "
      "will quiz you about the important information there.\n"
      "The grass is green. The sky is\n"
      "The pass key is 77. Remember it. 77 is the pass key.\n"
      "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. The grass\n"
      "What is the pass key? The pass key is");
  EXPECT_EQ(PasskeyPrompts::text(0, 0, 1).find("\n\n"), std::string::npos);
}

TEST(PasskeyPromptsTest, KeysAreSeededUniformAndIndependentOfWhatElseIsMeasured) {
  std::set<int64_t> keys;
  double sum = 0;
  for (int64_t trial = 0; trial < 2000; ++trial) {
    const int64_t key = PasskeyPrompts::key_for(3, 1024, 0.5, trial);
    EXPECT_EQ(key, PasskeyPrompts::key_for(3, 1024, 0.5, trial));
    EXPECT_GE(key, 1);
    EXPECT_LE(key, 50000);
    keys.insert(key);
    sum += static_cast<double>(key);
  }
  EXPECT_GT(keys.size(), 1900U);
  EXPECT_NEAR(sum / 2000, 25000, 1000);
  EXPECT_NE(PasskeyPrompts::key_for(3, 1024, 0.5, 0), PasskeyPrompts::key_for(4, 1024, 0.5, 0));
  EXPECT_NE(PasskeyPrompts::key_for(3, 1024, 0.5, 0), PasskeyPrompts::key_for(3, 2048, 0.5, 0));
  EXPECT_NE(PasskeyPrompts::key_for(3, 1024, 0.5, 0), PasskeyPrompts::key_for(3, 1024, 0.25, 0));
}

TEST(PasskeyPromptsTest, EveryLengthIsMetExactlyWhateverTheWordsCost) {
  for (const size_t bytes : {1U, 2U, 3U, 4U, 100U}) {
    const PasskeyPrompts prompts(toy_codec(bytes, 500));
    for (int64_t length = 420; length < 440; ++length) {
      for (const double depth : {0.0, 0.3, 0.5, 0.9, 1.0}) {
        for (const int64_t key : {7, 50000}) {
          EXPECT_EQ(prompts.build(length, depth, key).size(), static_cast<size_t>(length))
              << bytes << " bytes per id, depth " << depth;
        }
      }
    }
    EXPECT_EQ(prompts.build(20000, 0.5, 123).size(), 20000U);
  }
}

RopeOptions scaled_by_two(const std::string& scaling) {
  RopeOptions options;
  options.scaling = scaling;
  if (scaling != "none") options.factor = 2.0;
  return options;
}

class PasskeyRunTest : public testing::TestWithParam<std::string> {
 protected:
  PasskeyRunTest()
      : backend_(1), model_(open_f32(checkpoint_dir("llama_gqa"), backend_, scaled_by_two(GetParam()))) {
    codec_ = toy_codec(4, static_cast<int32_t>(model_.spec.vocab_size));
    options_.trials = 2;
    options_.depths = {0, 0.6, 1};
  }

  std::vector<PasskeyCell> measure(int64_t length) {
    Session session(model_, backend_, f32_session());
    std::vector<PasskeyCell> cells;
    EXPECT_TRUE(measure_passkey(session, codec_, length, options_,
                                [&](const PasskeyCell& cell) { cells.push_back(cell); }));
    return cells;
  }

  CpuBackend backend_;
  const Model model_;
  TextCodec codec_;
  PasskeyOptions options_;
};

// The shared beginning, the copies and the batch change nothing.
TEST_P(PasskeyRunTest, AnswersEqualThoseOfPromptsRunWholeAndAlone) {
  constexpr int64_t kLength = 700;
  const auto cells = measure(kLength);
  ASSERT_EQ(cells.size(), options_.depths.size());
  Session session(model_, backend_, f32_session());
  const PasskeyPrompts prompts(codec_);
  for (const auto& cell : cells) {
    ASSERT_EQ(cell.trials.size(), 2U);
    for (const auto& trial : cell.trials) {
      Sequence sequence = session.new_sequence();
      GenerateOptions generate_options;
      generate_options.max_new_tokens = options_.max_new_tokens;
      const auto alone = generate(session, sequence, prompts.build(kLength, cell.depth, trial.key),
                                  generate_options, [](int32_t) { return true; });
      EXPECT_EQ(trial.answer, codec_.decode(alone.tokens)) << "depth " << cell.depth;
    }
  }
}

TEST_P(PasskeyRunTest, ADepthMeasuredAloneEqualsItselfAmongOthers) {
  const auto together = measure(700);
  options_.depths = {0.6};
  const auto alone = measure(700);
  ASSERT_EQ(alone.size(), 1U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(alone[0].trials[i].answer, together[1].trials[i].answer);
}

INSTANTIATE_TEST_SUITE_P(Scalings, PasskeyRunTest, testing::Values("none", "yarn", "dynamic", "dynamic-yarn"),
                         [](const auto& scaling) {
                           std::string name = scaling.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A text in pieces, told what it will become, equals the text at once; not told, it does not.
TEST(ExpectedLength, PiecesWithTheFrequenciesOfTheWholeEqualOneShot) {
  CpuBackend backend(1);
  RopeOptions rope;
  rope.scaling = "dynamic-yarn";
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend, rope);
  Session session(model, backend, f32_session());
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 300; ++i) tokens.push_back(i * 37 % static_cast<int32_t>(model.spec.vocab_size));
  const auto last = [&](int64_t expected) {
    Sequence first = session.new_sequence();
    first.expect(expected);
    session.prefill(first, std::span(tokens).first(256));
    Sequence copy = session.fork(first, 256);
    const auto logits = session.prefill(copy, std::span(tokens).subspan(256));
    return std::vector<float>(logits.begin(), logits.end());
  };
  Sequence whole = session.new_sequence();
  const auto span = session.prefill(whole, tokens);
  const std::vector<float> reference(span.begin(), span.end());
  EXPECT_LE(max_abs_difference(last(300), reference), 2e-5);
  EXPECT_GT(max_abs_difference(last(0), reference), 1e-3);
}

}  // namespace
}  // namespace lariat::test
