#include "engine/eval/needles.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "engine/eval/passkey.h"
#include "models/text/tokenizer.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

double recall_of(const std::string& answer, const std::vector<std::string>& expected) {
  PasskeyTrial trial;
  trial.expected = expected;
  trial.found = found_in(answer, expected);
  return trial.recall();
}

// What RULER's string_match_all gives for the same texts (checked with its own definition in Python: the
// share of the references r with r.lower() in prediction.lower()).
TEST(NeedleScoring, HandMadeTranscriptsAreScoredAsRulerDoes) {
  struct Case {
    std::vector<std::string> expected;
    std::string answer;
    double recall;
  };
  const std::vector<std::string> four = {"1234567", "2345678", "3456789", "4567891"};
  const std::vector<std::string> chain = {"ABCDE", "FGHIJ", "KLMNO"};
  const Case cases[] = {
      // multikey
      {{"1234567"}, " 1234567.", 1},
      {{"1234567"}, " not 7654321 but 1234567", 1},  // anywhere, not only first
      {{"1234567"}, " 7654321.", 0},
      {{"1234567"}, " 123456", 0},     // cut short
      {{"1234567"}, " 123 4567", 0},   // in two parts
      {{"1234567"}, " 1,234,567", 0},  // with separators
      {{"1234567"}, " 91234567", 1},   // inside a longer number: RULER looks for it as text
      {{"1234567"}, " 12345678", 1},
      {{"1234567"}, "", 0},
      // multivalue, multiquery
      {four, " 1234567, 2345678, 3456789 and 4567891.", 1},
      {four, " 4567891, 3456789, 2345678, 1234567", 1},  // in any order
      {four, " 1234567, 1234567, 1234567, 1234567", 0.25},
      {four, " 1234567 and 3456789", 0.5},
      {four, " amber-otter: 1234567\n odd-canyon: 2345678\n icy-violin: 9999999\n bold-castle: 4567891",
       0.75},
      {four, " 12345678", 0.5},  // "1234567" and "2345678" overlap in it
      {four, " I do not know.", 0},
      // tracking
      {chain, " ABCDE, FGHIJ and KLMNO", 1},
      {chain, " abcde, fghij", 2.0 / 3},  // small letters
      {chain, "LET ABCDE = 12345.", 1.0 / 3},
      {chain, " ABCD EFGHIJ", 1.0 / 3},  // inside a longer word
      {chain, " AB CDE", 0},
  };
  for (const auto& c : cases) EXPECT_DOUBLE_EQ(recall_of(c.answer, c.expected), c.recall) << c.answer;
  EXPECT_EQ(found_in("fghij, abcde", chain), (std::vector<std::string>{"ABCDE", "FGHIJ"}));
}

TEST(NeedleTasks, WhatIsHiddenAndAsked) {
  const NeedleRandom random(7, 4096, 0.5, 3);
  const auto make = [&](NeedleTask task) { return make_needles({task, 4}, 0.5, random); };
  const auto lines_with = [](const Needles& needles, const std::string& text) {
    return std::ranges::count_if(needles.lines,
                                 [&](const auto& line) { return line.text.find(text) != std::string::npos; });
  };
  for (const NeedleTask task : kNeedleTasks) {
    if (task == NeedleTask::kPasskey) continue;
    const Needles needles = make(task);
    const std::string name(name_of(task));
    EXPECT_EQ(needles.lines.size(), task == NeedleTask::kTracking ? 5U : 4U) << name;
    EXPECT_EQ(needles.expected.size(), task == NeedleTask::kMultikey   ? 1U
                                       : task == NeedleTask::kTracking ? 5U
                                                                       : 4U);
    EXPECT_TRUE(std::ranges::is_sorted(needles.lines, {}, &Needles::Line::depth)) << name;
    EXPECT_EQ(std::ranges::count(needles.lines, 0.5, &Needles::Line::depth), 1) << name;
    for (const auto& one : needles.expected) EXPECT_GE(lines_with(needles, one), 1) << one;
    EXPECT_EQ(std::set(needles.expected.begin(), needles.expected.end()).size(), needles.expected.size());
  }
  // The one that is asked for stands at the depth; the others are no answer to the question.
  const Needles one = make(NeedleTask::kMultikey);
  const auto asked = std::ranges::find(one.lines, 0.5, &Needles::Line::depth);
  EXPECT_NE(asked->text.find(one.expected[0]), std::string::npos);
  const std::string name = asked->text.substr(18, asked->text.find(" is ") - 18);
  EXPECT_NE(one.question.find(name), std::string::npos) << name;
  EXPECT_EQ(lines_with(one, name), 1);
  // A chain begins with the number and hands it on in the order of the text.
  const Needles chain = make(NeedleTask::kTracking);
  for (size_t i = 0; i < 5; ++i) {
    const std::string begin = "LET " + chain.expected[i] + " = ";
    ASSERT_TRUE(chain.lines[i].text.starts_with(begin)) << chain.lines[i].text;
    const std::string value = chain.lines[i].text.substr(begin.size());
    EXPECT_TRUE(i > 0 ? value == chain.expected[i - 1] + "."
                      : chain.question.find(value.substr(0, 5)) != std::string::npos)
        << chain.lines[i].text;
  }
}

TEST(NeedleTasks, SeedsLengthsDepthsAndTrialsTellPromptsApartAndNothingElse) {
  PasskeyOptions options;
  options.needles.task = NeedleTask::kMultiquery;
  const auto expected = [&](int64_t length, double depth, int64_t trial) {
    return needles_of(options, length, depth, trial).expected;
  };
  std::set<std::vector<std::string>> all = {expected(512, 0, 0), expected(512, 0, 1), expected(512, 0.5, 0),
                                            expected(1024, 0, 0)};
  EXPECT_EQ(expected(512, 0, 0), expected(512, 0, 0));
  options.seed = 1;
  all.insert(expected(512, 0, 0));
  EXPECT_EQ(all.size(), 5U);
}

// --- prompts ---

struct NamedTokenizer {
  std::string name;
  Tokenizer tokenizer;
};

std::vector<NamedTokenizer> tokenizers_at_hand() {
  const std::filesystem::path source = LARIAT_SOURCE_DIR;
  std::vector<NamedTokenizer> found;
  for (const char* name : {"configs/demo", "../shared/models/stories260K", "../shared/tokenizers/llama3",
                           "../shared/tokenizers/qwen2", "../shared/tokenizers/llama"}) {
    if (std::filesystem::is_directory(source / name)) found.push_back({name, Tokenizer::load(source / name)});
  }
  return found;
}

class HayFileTest : public testing::Test {
 protected:
  HayFileTest() {
    for (int i = 0; i < 900; ++i) {
      text_ += "Sentence " + std::to_string(i * 7919 % 1000) +
               " of it, with \"café\" or 東京の夜。 It ends here. ";
      if (i % 7 == 6) text_ += "\n\n";
    }
  }
  std::filesystem::path write(const std::string& text) const {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    auto file =
        std::filesystem::path(testing::TempDir()) / ("lariat-hay-" + std::string(info->name()) + ".txt");
    std::ofstream(file) << text;
    return file;
  }
  std::string text_;
};

TEST_F(HayFileTest, EveryTaskMeetsItsLengthWithNeedlesAtTheirDepths) {
  const auto book = read_hay(write(text_));
  for (const auto& [name, tokenizer] : tokenizers_at_hand()) {
    const TextCodec codec = prompt_codec(tokenizer);
    for (const auto& hay : {noise_hay(), book}) {
      const PasskeyPrompts prompts(codec, hay);
      for (const NeedleTask task : kNeedleTasks) {
        PasskeyOptions options;
        options.needles.task = task;
        for (const int64_t length : {1500, 1501, 6007}) {
          for (const double depth : {0.0, 0.4, 1.0}) {
            const Needles needles = needles_of(options, length, depth, 0);
            SCOPED_TRACE(fmt::format("{} {} {} {}", name, name_of(task), length, depth));
            const auto ids = prompts.build(length, needles);
            ASSERT_EQ(std::ssize(ids), length) << name << " " << name_of(task) << " " << depth;
            if (length < 6000) continue;
            const std::string text = tokenizer.decode(ids);
            size_t from = 0;
            for (const auto& line : needles.lines) {  // in their order
              const size_t at = text.find(line.text, from);
              ASSERT_NE(at, std::string::npos) << name << ": " << line.text;
              EXPECT_NEAR(static_cast<double>(at) / static_cast<double>(text.size()), line.depth, 0.09)
                  << name << " " << name_of(task);
              from = at + 1;
            }
            EXPECT_TRUE(text.ends_with(needles.question + " " + needles.answer)) << name;
          }
        }
      }
    }
  }
}

TEST_F(HayFileTest, TheTextGoesOnBehindANeedleAndIsRepeatedWhenTooShort) {
  const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(LARIAT_SOURCE_DIR) / "configs/demo");
  const auto book = read_hay(write(" \n" + text_ + "\n"));
  const PasskeyPrompts prompts(prompt_codec(tokenizer), book);
  const auto packed = [](std::string words) {
    std::erase_if(words, [](char c) { return c == ' ' || c == '\n'; });
    return words;
  };
  const std::string whole = packed(text_);
  int at_sentence_end = 0;
  for (int64_t key = 0; key < 10; ++key) {
    const Needles needles = passkey_needles(key, 0.5);
    const std::string text = tokenizer.decode(prompts.build(4000 + key, needles));
    const size_t at = text.find("\n" + needles.lines[0].text + "\n"), begin = needles.task.size();
    ASSERT_NE(at, std::string::npos);
    const size_t go_on = at + needles.lines[0].text.size() + 2, end = text.find("\n" + needles.question);
    const std::string before = packed(text.substr(begin, at - begin));
    EXPECT_TRUE(whole.starts_with(before)) << before.substr(0, 80);
    // A few words are left out or come twice, to meet the length.
    const size_t behind = whole.find(packed(text.substr(go_on, end - go_on)), before.size() - 60);
    EXPECT_LE(behind, before.size() + 60);
    at_sentence_end += text[at - 1] == '.' ? 1 : 0;
  }
  EXPECT_GE(at_sentence_end, 3);
  EXPECT_FALSE(prompts.repeats(4000));
  EXPECT_TRUE(prompts.repeats(400'000));
  const std::string long_text = tokenizer.decode(prompts.build(150'000, passkey_needles(1, 0.5)));
  EXPECT_GT(long_text.size(), text_.size());
  EXPECT_NE(long_text.find("It ends here.\nSentence 0 of it"), std::string::npos);
}

// As of base64: it is cut wherever the count asks for it.
TEST_F(HayFileTest, AWordWithoutEndIsHayToo) {
  const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(LARIAT_SOURCE_DIR) / "configs/demo");
  std::string word;
  for (int i = 0; i < 20'000; ++i) word += static_cast<char>('a' + i * i % 23);
  const PasskeyPrompts prompts(prompt_codec(tokenizer), read_hay(write(word)));
  EXPECT_EQ(prompts.build(900, passkey_needles(7, 0.5)).size(), 900U);
}

TEST_F(HayFileTest, AChatTemplateFramesTheQuestionAndTheAnswerBegins) {
  const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(LARIAT_SOURCE_DIR) / "configs/demo");
  const ChatTemplate chat = ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "toy", nlohmann::ordered_json::object());
  const PasskeyPrompts prompts(prompt_codec(tokenizer, &chat), read_hay(write(text_)));
  PasskeyOptions options;
  options.needles.task = NeedleTask::kMultivalue;
  const Needles needles = needles_of(options, 2000, 0.5, 1);
  const auto ids = prompts.build(2000, needles);
  EXPECT_EQ(ids.size(), 2000U);
  EXPECT_NE(ids.front(), tokenizer.bos_id()) << "the template says how a prompt begins";
  const std::string text = tokenizer.decode(ids);
  EXPECT_TRUE(text.starts_with("<user>" + needles.task + "\n")) << text.substr(0, 80);
  EXPECT_TRUE(text.ends_with("\n" + needles.question + "</user><assistant>" + needles.answer));
}

TEST(AnswerTokens, AreEnoughForTheAnswerAndNotManyMore) {
  const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(LARIAT_SOURCE_DIR) / "configs/demo");
  const TextCodec codec = prompt_codec(tokenizer);
  EXPECT_EQ(answer_tokens(codec, {}), 10);
  for (const NeedleTask task : kNeedleTasks) {
    if (task == NeedleTask::kPasskey) continue;
    const int64_t given = answer_tokens(codec, {task, 4});
    for (int64_t trial = 0; trial < 20; ++trial) {
      std::string answer;
      for (const auto& one : make_needles({task, 4}, 0.5, NeedleRandom(5, 512, 0.5, trial)).expected) {
        answer += " " + one + ",";
      }
      EXPECT_GE(given, std::ssize(codec.encode(answer))) << name_of(task);
      EXPECT_LE(given, 4 * std::ssize(codec.encode(answer)) + 40) << name_of(task);
    }
  }
}

}  // namespace
}  // namespace lariat::test
