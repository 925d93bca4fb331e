#include "engine/eval/measure/passkey.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "engine/rope_options.h"
#include "models/text/tokenizer.h"
#include "tests/engine/generations.h"

namespace lariat::test {
namespace {

// One id per `bytes` bytes of a word, as in small vocabularies, with a BOS.
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

TEST(PasskeyPromptsTest, FollowsThePaper) {
  TextCodec codec = toy_codec(1, 500);
  std::string prompt;
  codec.encode = [&, encode = codec.encode](std::string_view text) {
    prompt = text;
    return encode(text);
  };
  const auto built = [&](int64_t hay, double depth) {
    PasskeyPrompts(codec).build(240 + hay, passkey_needles(77, depth));
    return prompt;
  };
  const std::string task =
      "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I will "
      "quiz you about the important information there.\n";
  const std::string key = "The pass key is 77. Remember it. 77 is the pass key.\n";
  const std::string question = "What is the pass key? The pass key is";
  EXPECT_EQ(built(0, 0.5), task + key + question);
  EXPECT_EQ(
      built(131, 0.235),
      task + "The grass is green. The sky is\n" + key +
          "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. The "
          "grass\n" +
          question);
}

TEST(PasskeyPromptsTest, EveryLengthIsMetExactly) {
  for (const size_t bytes : {1U, 2U, 3U, 4U, 100U}) {
    const PasskeyPrompts prompts(toy_codec(bytes, 500));
    for (int64_t length = 420; length < 440; ++length) {
      for (const double depth : {0.0, 0.3, 0.5, 0.9, 1.0}) {
        for (const int64_t key : {7, 50000}) {
          EXPECT_EQ(prompts.build(length, passkey_needles(key, depth)).size(), static_cast<size_t>(length))
              << bytes << " bytes per id, depth " << depth;
        }
      }
    }
    EXPECT_EQ(prompts.build(20000, passkey_needles(123, 0.5)).size(), 20000U);
  }
}

Tokenizer demo_tokenizer() { return Tokenizer::load(source_dir() / "configs/demo"); }

class HayFileTest : public FolderTest {
 protected:
  HayFileTest() {
    for (int i = 0; i < 900; ++i) {
      text_ += "Sentence " + std::to_string(i * 7919 % 1000) +
               " of it, with \"café\" or 東京の夜。 It ends here. ";
      if (i % 7 == 6) text_ += "\n\n";
    }
  }
  std::filesystem::path write(const std::string& text) const {
    put("hay.txt", text);
    return dir_ / "hay.txt";
  }
  std::string text_;
};

TEST_F(HayFileTest, EveryTaskMeetsItsLengthAndDepths) {
  const auto book = read_hay(write(text_));
  for (const auto& name :
       {demo_dir(), shared_dir() / "models/stories260K", shared_dir() / "tokenizers/llama3",
        shared_dir() / "tokenizers/qwen2", shared_dir() / "tokenizers/llama"}) {
    LARIAT_NEEDS(name);
    const Tokenizer tokenizer = Tokenizer::load(name);
    const TextCodec codec = prompt_codec(tokenizer);
    for (const auto& hay : {noise_hay(), book}) {
      const PasskeyPrompts prompts(codec, hay);
      for (const NeedleTask task : kNeedleTasks) {
        PasskeyOptions options;
        options.needles.task = task;
        for (const int64_t length : {1500, 1501, 6007}) {
          for (const double depth : {0.0, 0.4, 1.0}) {
            const Needles needles = needles_of(options, length, depth, 0);
            SCOPED_TRACE(fmt::format("{} {} {} {}", name.string(), name_of(task), length, depth));
            const auto ids = prompts.build(length, needles);
            ASSERT_EQ(std::ssize(ids), length) << name << " " << name_of(task) << " " << depth;
            if (length < 6000) continue;
            const std::string text = tokenizer.decode(ids);
            size_t from = 0;
            for (const auto& line : needles.lines) {
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

TEST_F(HayFileTest, TheTextContinuesAfterANeedleAndRepeats) {
  const Tokenizer tokenizer = demo_tokenizer();
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
    // A few words may be skipped or repeated to meet the length.
    const size_t behind = whole.find(packed(text.substr(go_on, end - go_on)), before.size() - 60);
    EXPECT_LE(behind, before.size() + 60);
    at_sentence_end += text[at - 1] == '.' ? 1 : 0;
  }
  EXPECT_GE(at_sentence_end, 3);
  EXPECT_FALSE(prompts.repeats(4000));
  EXPECT_TRUE(prompts.repeats(400'000));
  const std::string long_text = tokenizer.decode(prompts.build(150'000, passkey_needles(1, 0.5)));
  EXPECT_GT(long_text.size(), text_.size());
  EXPECT_TRUE(names(long_text, "It ends here.\nSentence 0 of it"));
}

// An endless word (base64) is cut to the length.
TEST_F(HayFileTest, AnEndlessWordIsHayToo) {
  const Tokenizer tokenizer = demo_tokenizer();
  std::string word;
  for (int i = 0; i < 20'000; ++i) word += static_cast<char>('a' + i * i % 23);
  const PasskeyPrompts prompts(prompt_codec(tokenizer), read_hay(write(word)));
  EXPECT_EQ(prompts.build(900, passkey_needles(7, 0.5)).size(), 900U);
}

TEST_F(HayFileTest, AChatTemplateFramesTheQuestionAndAnswer) {
  const Tokenizer tokenizer = demo_tokenizer();
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
  EXPECT_NE(ids.front(), tokenizer.bos_id()) << "the template adds the BOS";
  const std::string text = tokenizer.decode(ids);
  EXPECT_TRUE(text.starts_with("<user>" + needles.task + "\n")) << text.substr(0, 80);
  EXPECT_TRUE(text.ends_with("\n" + needles.question + "</user><assistant>" + needles.answer));
}

TEST(AnswerTokens, AreJustEnoughForTheAnswer) {
  const Tokenizer tokenizer = demo_tokenizer();
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

// Shared prefixes, forks and batching change no answer.
TEST_P(PasskeyRunTest, AnswersEqualSeparateRuns) {
  constexpr int64_t kLength = 700;
  const auto cells = measure(kLength);
  ASSERT_EQ(cells.size(), options_.depths.size());
  Session session(model_, backend_, f32_session());
  const PasskeyPrompts prompts(codec_);
  for (const auto& cell : cells) {
    ASSERT_EQ(cell.trials.size(), 2U);
    for (int64_t i = 0; i < 2; ++i) {
      Sequence sequence = session.new_sequence();
      const auto prompt = prompts.build(kLength, needles_of(options_, kLength, cell.depth, i));
      const auto alone = generate(session, sequence, prompt, {.max_new_tokens = options_.max_new_tokens});
      EXPECT_EQ(cell.trials[static_cast<size_t>(i)].answer, codec_.decode(alone.tokens)) << cell.depth;
    }
  }
  options_.depths = {0.6};
  const auto alone = measure(kLength);
  ASSERT_EQ(alone.size(), 1U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(alone[0].trials[i].answer, cells[1].trials[i].answer);
}

TEST_P(PasskeyRunTest, ProgressRisesToTheEnd) {
  options_.max_new_tokens = 12;
  Session session(model_, backend_, f32_session());
  std::vector<double> shares;
  EXPECT_TRUE(measure_passkey(
      session, codec_, 700, options_, [](const PasskeyCell&) {},
      [&](double share) { shares.push_back(share); }));
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  EXPECT_EQ(shares.back(), 1);
  EXPECT_EQ(std::ranges::count_if(shares, [](double share) { return share > 0.9991; }), 1);
  EXPECT_GT(std::ssize(shares), 12);
}

INSTANTIATE_TEST_SUITE_P(Scalings, PasskeyRunTest, testing::Values("none", "yarn", "dynamic", "dynamic-yarn"),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace lariat::test
