// A conversation's cache always matches the rendered messages.
#include "engine/text/chat.h"

#include <unistd.h>

#include <atomic>
#include <fstream>

#include "engine/interrupt.h"
#include "tests/engine/generations.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;
using Messages = nlohmann::ordered_json;

constexpr const char* kPlain =
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}{{ eos_token if m['role'] "
    "== "
    "'assistant' else '' }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
// Keeps only the end of earlier answers, like templates of reasoning models; has no system role.
constexpr const char* kForgetful =
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system "
    "here') "
    "}}{% endif %}<|{{ m['role'] }}|>\n{% if m['role'] == 'assistant' and not loop.last %}{{ "
    "m['content'].split(' ')[-1] }}{% else %}{{ m['content'] }}{% endif %}\n{% endfor %}{% if "
    "add_generation_prompt %}<|assistant|>\n{% endif %}";

class ChatTest : public FolderTest {
 protected:
  ChatTest() {
    link_files(demo(), dir_ / "model");
    options_.generate.max_new_tokens = 24;
    options_.generate.eos_ids = {2};
  }

  static fs::path demo() { return source_dir() / "configs" / "demo"; }
  ChatTemplate chat_template(const char* text) const {
    put("model/chat_template.jinja", text);
    return ChatTemplate::load(dir_ / "model", tokenizer_).value();
  }
  const ChatTemplate& use(const char* text) { return template_.emplace(chat_template(text)); }
  CachedConversation& begin(const char* text = kPlain) {
    use(text);
    conversation_.reset();  // before its session
    session_.emplace(model_, backend_, session_options_);
    return conversation_.emplace(*session_, Conversation(tokenizer_, *template_));
  }
  Answer say(CachedConversation& conversation, const std::string& text) const {
    return conversation.answer(text, options_, [](const std::string&) { return true; });
  }
  std::vector<int32_t> fresh_answer(Messages messages, const std::string& text) {
    messages.push_back({{"role", "user"}, {"content", text}});
    Session session(model_, backend_, session_options_);
    Sequence sequence = session.new_sequence();
    const auto prompt = tokenizer_.encode(template_->render(messages, true), false);
    return generate(session, sequence, prompt, options_.generate).tokens;
  }
  Answer say_as_fresh(CachedConversation& conversation, const std::string& text) {
    const auto expected = fresh_answer(conversation.text.messages(), text);
    const Answer answer = say(conversation, text);
    EXPECT_EQ(answer.generation.tokens, expected);
    return answer;
  }
  void expect_consistent(const CachedConversation& conversation) const {
    const auto held = std::span(conversation.context.tokens)
                          .first(static_cast<size_t>(conversation.context.sequence.length()));
    EXPECT_LE(conversation.context.tokens.size(), held.size() + 1);
    const auto all = tokenizer_.encode(template_->render(conversation.text.messages(), false), false);
    ASSERT_LE(held.size(), all.size());
    EXPECT_TRUE(std::equal(held.begin(), held.end(), all.begin()));
  }

  CpuBackend backend_{1};
  Model model_ = open_f32(demo(), backend_);
  Tokenizer tokenizer_ = Tokenizer::load(demo());
  SessionOptions session_options_ = f32_session();
  AnswerOptions options_;
  std::optional<ChatTemplate> template_;
  std::optional<Session> session_;
  std::optional<CachedConversation> conversation_;
};

const std::vector<std::string> kTurns = {"Once upon a time", "And then?", "What is the pass key?"};

TEST_F(ChatTest, AnswersEqualAFreshPrefill) {
  CachedConversation& conversation = begin();
  int64_t length = 0;
  for (const std::string& turn : kTurns) {
    const Answer answer = say_as_fresh(conversation, turn);
    EXPECT_EQ(answer.reused, length) << "the whole cache is reused";
    EXPECT_GT(answer.read, 0);
    expect_consistent(conversation);
    length = conversation.context.sequence.length();
  }
  EXPECT_EQ(conversation.text.messages().size(), 6U);
}

TEST_F(ChatTest, AConversationNeedsNoSession) {
  const ChatTemplate& rendering = use(kPlain);
  Conversation conversation(tokenizer_, rendering), restored(tokenizer_, rendering);
  conversation.set_system("Be brief.");
  conversation.add("user", kTurns[0]);
  EXPECT_EQ(conversation.prompt(), tokenizer_.encode(rendering.render(conversation.messages(), true), false));
  restored.restore({}, conversation.note(), "note");
  EXPECT_EQ(restored.prompt(), conversation.prompt());
}

TEST_F(ChatTest, ATemplateMayDropEarlierText) {
  CachedConversation& conversation = begin(kForgetful);
  int64_t length = 0;
  for (const std::string& turn : kTurns) {
    const Answer answer = say_as_fresh(conversation, turn);
    if (length > 0) {
      EXPECT_LT(answer.reused, length) << "the previous answer is rendered differently now";
      EXPECT_GT(answer.reused, 5) << "the text before the answer is unchanged";
    }
    length = conversation.context.sequence.length();
  }
}

TEST_F(ChatTest, AnInterruptedAnswerStays) {
  CachedConversation& conversation = begin();
  std::atomic<bool> interrupted{false};
  options_.generate.interrupted = &interrupted;
  std::string shown;
  const Answer answer = conversation.answer(kTurns[0], options_, [&](const std::string& piece) {
    shown += piece;
    interrupted = shown.size() > 20;
    return true;
  });
  EXPECT_EQ(answer.generation.stop_reason, StopReason::kInterrupted);
  EXPECT_LT(answer.generation.tokens.size(), 24U);
  EXPECT_EQ(conversation.text.messages().back().at("content"), shown);
  EXPECT_EQ(answer.text, shown);
  expect_consistent(conversation);
  interrupted = false;
  say_as_fresh(conversation, kTurns[1]);
}

TEST_F(ChatTest, AMessageInterruptedBeforeItsAnswerIsForgotten) {
  session_options_.prefill_chunk = 8;
  CachedConversation& conversation = begin();
  say(conversation, kTurns[0]);
  const Messages before = conversation.text.messages();
  std::atomic<bool> interrupted{true};
  options_.generate.interrupted = &interrupted;
  EXPECT_THROW(say(conversation, kTurns[1]), Interrupted);
  EXPECT_EQ(conversation.text.messages(), before);
  EXPECT_EQ(std::ssize(conversation.context.tokens), conversation.context.sequence.length());
  interrupted = false;
  say_as_fresh(conversation, kTurns[2]);
}

TEST_F(ChatTest, AFullContextKeepsTheConversation) {
  session_options_.max_ctx = 90;
  CachedConversation& conversation = begin();
  say(conversation, kTurns[0]);
  const Messages before = conversation.text.messages();
  const std::string much(200, 'a');
  EXPECT_THROW(say(conversation, much), Error);
  EXPECT_EQ(conversation.text.messages(), before);
  expect_consistent(conversation);
  options_.generate.max_new_tokens = 1000;
  const Answer answer = say(conversation, "And");
  EXPECT_LE(conversation.context.sequence.length(), 90);
  EXPECT_EQ(conversation.text.messages().back().at("content"), answer.text);
  conversation.reset();
  EXPECT_EQ(conversation.context.sequence.length(), 0);
  options_.generate.max_new_tokens = 10;
  say_as_fresh(conversation, kTurns[0]);
}

TEST_F(ChatTest, TheSystemMessageComesFirstAndStays) {
  CachedConversation& conversation = begin();
  conversation.text.set_system("Be brief.");
  say(conversation, kTurns[0]);
  conversation.text.set_system("Be long.");
  ASSERT_EQ(conversation.text.messages().size(), 3U);
  EXPECT_EQ(conversation.text.messages()[0], Messages({{"role", "system"}, {"content", "Be long."}}));
  say_as_fresh(conversation, kTurns[1]);
  conversation.reset();
  ASSERT_EQ(conversation.text.messages().size(), 1U);
  conversation.text.set_system("");
  EXPECT_TRUE(conversation.text.messages().empty());
}

TEST_F(ChatTest, ATemplateMayRefuseASystemMessage) {
  CachedConversation& conversation = begin(kForgetful);
  say(conversation, kTurns[0]);
  const Messages before = conversation.text.messages();
  EXPECT_THROW(conversation.text.set_system("Be brief."), Error);
  EXPECT_EQ(conversation.text.messages(), before);
}

TEST_F(ChatTest, AnswersExcludeStopStrings) {
  const ChatTemplate& rendering = use(kPlain);
  Session session(model_, backend_, session_options_);
  CachedConversation whole(session, {tokenizer_, rendering}), cut(session, {tokenizer_, rendering});
  const std::string text = say(whole, kTurns[0]).text;
  ASSERT_GT(text.size(), 20U);
  options_.stop = {text.substr(10, 4)};
  const Answer answer = say(cut, kTurns[0]);
  EXPECT_EQ(answer.generation.stop_reason, StopReason::kStop);
  EXPECT_EQ(answer.text, text.substr(0, text.find(options_.stop[0])));
  EXPECT_EQ(cut.text.messages().back().at("content"), answer.text);
  options_.stop.clear();
  say_as_fresh(cut, kTurns[1]);
}

TEST_F(ChatTest, ThePenaltyCoversTheWholeConversation) {
  options_.generate.sampler.repetition_penalty = 1.3F;
  CachedConversation& conversation = begin();
  for (const std::string& turn : kTurns) say_as_fresh(conversation, turn);
}

TEST_F(ChatTest, ContinuesAfterItWasAway) {
  CachedConversation& conversation = begin();
  conversation.text.set_system("Be \"brief\".");
  say(conversation, kTurns[0]);
  const fs::path file = dir_ / "context";
  conversation.save(file);
  const Answer expected = say(conversation, kTurns[1]);

  Session later(model_, backend_, session_options_);
  CachedConversation loaded(later, {tokenizer_, *template_});
  loaded.restore(load_context(later, file), file.string());
  const Answer answer = say(loaded, kTurns[1]);
  EXPECT_EQ(answer.generation.tokens, expected.generation.tokens);
  EXPECT_EQ(answer.reused, expected.reused);
  EXPECT_EQ(loaded.text.messages(), conversation.text.messages());
}

// Another command prefilled a text: it is kept, with one BOS.
TEST_F(ChatTest, FollowsAPlainText) {
  const ChatTemplate rendering = chat_template(kPlain);
  Session session(model_, backend_, session_options_);
  const auto text = tokenizer_.encode("Once upon a time there was a boy.", true);
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, text);
  CachedConversation conversation(session, {tokenizer_, rendering});
  conversation.restore({std::move(sequence), text, ""}, "context");
  EXPECT_TRUE(conversation.text.messages().empty());
  const auto n = std::ssize(text);
  const int32_t bos = tokenizer_.bos_id().value();
  for (const std::string& turn : {kTurns[0], kTurns[1]}) {
    EXPECT_GE(say(conversation, turn).reused, n);
    EXPECT_EQ(std::count(conversation.context.tokens.begin(), conversation.context.tokens.end(), bos), 1);
    EXPECT_TRUE(std::equal(text.begin(), text.end(), conversation.context.tokens.begin()));
  }
  conversation.reset();
  EXPECT_EQ(conversation.context.tokens, text);
}

// A text whose last token is not yet cached survives a message that does not fit, /reset, save and load.
TEST_F(ChatTest, FollowsATextWithAnUnreadLastToken) {
  use(kPlain);
  const auto text = tokenizer_.encode("Once upon a time there was a boy.", true);
  const int64_t held = std::ssize(text) - 1;
  Session longer(model_, backend_, session_options_);
  session_options_.max_ctx = held;
  Session session(model_, backend_, session_options_);
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, std::span(text).first(static_cast<size_t>(held)));
  CachedConversation conversation(session, {tokenizer_, *template_}),
      loaded(longer, {tokenizer_, *template_});
  conversation.restore({std::move(sequence), text, ""}, "context");
  EXPECT_THROW(say(conversation, kTurns[0]), ContextFull);
  EXPECT_EQ(conversation.context.tokens, text);
  conversation.reset();
  EXPECT_EQ(conversation.context.tokens, text);
  const fs::path file = dir_ / "context";
  conversation.save(file);
  loaded.restore(load_context(longer, file), file.string());
  EXPECT_EQ(loaded.context.tokens, text);
  EXPECT_EQ(say(loaded, kTurns[0]).reused, held);
  EXPECT_TRUE(std::equal(text.begin(), text.end(), loaded.context.tokens.begin()));
}

TEST_F(ChatTest, InvalidNotesAreRefused) {
  const ChatTemplate rendering = chat_template(kPlain);
  Session session(model_, backend_, session_options_);
  for (const char* note :
       {"x", "{}", R"({"before": 2, "messages": "[]"})", R"({"before": 0, "messages": "{}"})",
        R"({"before": 0, "messages": "[1]"})", R"({"before": -1, "messages": "[]"})"}) {
    CachedConversation conversation(session, {tokenizer_, rendering});
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, std::vector<int32_t>{1});
    const auto restore = [&] { conversation.restore({std::move(sequence), {1}, note}, "some.context"); };
    EXPECT_TRUE(names(error_of(restore), "some.context")) << note;
    EXPECT_EQ(conversation.context.sequence.length(), 0);
  }
}

TEST_F(ChatTest, AConversationWithoutMessagesContinues) {
  const ChatTemplate& rendering = use(kPlain);
  session_options_.prefill_chunk = 8;
  Session session(model_, backend_, session_options_);
  CachedConversation conversation(session, {tokenizer_, rendering}), loaded(session, {tokenizer_, rendering});
  // The dropped message leaves tokens in the cache that must not precede the new messages.
  std::atomic<int> chunks{0};
  std::atomic<bool> interrupted{false};
  options_.generate.interrupted = &interrupted;
  const auto later = [&](int64_t, int64_t) { interrupted = ++chunks > 1; };
  EXPECT_THROW(conversation.answer(
                   std::string(80, 'a'), options_, [](const std::string&) { return true; }, later),
               Interrupted);
  ASSERT_GT(conversation.context.tokens.size(), 0U);
  const fs::path file = dir_ / "context";
  conversation.save(file);
  loaded.restore(load_context(session, file), file.string());
  EXPECT_TRUE(loaded.text.messages().empty());
  interrupted = false;
  say_as_fresh(loaded, kTurns[0]);
  expect_consistent(loaded);
}

TEST_F(ChatTest, ADynamicScaleFollowsTheConversation) {
  RopeOptions rope;
  rope.scaling = "dynamic-yarn";
  rope.original_ctx = 64;
  session_options_.rope = resolve_rope(model_.spec.rope(), rope);
  CachedConversation& conversation = begin();
  for (int i = 0; i < 6; ++i) say(conversation, kTurns[static_cast<size_t>(i) % 3]);
  const int64_t length = conversation.context.sequence.length();
  EXPECT_GT(length, 128);
  EXPECT_GT(conversation.context.sequence.cache().rerotations().count, 2);
  EXPECT_EQ(conversation.context.sequence.cache().frequencies(),
            frequencies_for(session_->options(), session_->rope(), length));
  expect_consistent(conversation);
  conversation.reset();
  say_as_fresh(conversation, "Hello");
}

TEST_F(ChatTest, FindsTheEndOfATurnInTheTemplate) {
  EXPECT_EQ(end_of_turn_id(tokenizer_, chat_template(kPlain)), tokenizer_.token_to_id("</s>"));
  EXPECT_EQ(end_of_turn_id(tokenizer_, chat_template(kForgetful)), std::nullopt);
  const fs::path llama3 = golden_dir() / "tokenizers" / "llama3-mini";
  const Tokenizer tokenizer = Tokenizer::load(llama3);
  const ChatTemplate rendering = chat_template(
      "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content "
      "}}<|eot_id|>{% "
      "endfor %}");
  ASSERT_TRUE(tokenizer.token_to_id("<|eot_id|>").has_value());
  EXPECT_EQ(end_of_turn_id(tokenizer, rendering), tokenizer.token_to_id("<|eot_id|>"));
  // A tokenizer file may lack the special flag.
  const fs::path changed = dir_ / "tokenizer";
  fs::create_directories(changed);
  nlohmann::json file = nlohmann::json::parse(std::ifstream(llama3 / "tokenizer.json"));
  for (auto& token : file.at("added_tokens")) token["special"] = false;
  std::ofstream(changed / "tokenizer.json") << file;
  const Tokenizer plain = Tokenizer::load(changed);
  ASSERT_FALSE(plain.is_special(tokenizer.token_to_id("<|eot_id|>").value()));
  EXPECT_EQ(end_of_turn_id(plain, rendering), tokenizer.token_to_id("<|eot_id|>"));
}

// A template that refuses all probe conversations has no end of turn.
TEST_F(ChatTest, ATemplateMayRefuseProbeConversations) {
  const Tokenizer tokenizer = Tokenizer::load(golden_dir() / "tokenizers" / "llama3-mini");
  const auto end_of = [&](const std::string& demands, const std::string& end) {
    const std::string text = demands +
                             "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
                             "{{ m.content }}" +
                             end +
                             "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>x{% endif %}";
    return end_of_turn_id(tokenizer, chat_template(text.c_str()));
  };
  const auto refused_if = [](const std::string& condition) {
    return "{% if " + condition + " %}{{ raise_exception('no') }}{% endif %}";
  };
  const std::string no_system = refused_if("messages[0].role != 'system'"),
                    no_user = refused_if("messages[-1].role != 'user'"),
                    no_prompt = refused_if("not add_generation_prompt");
  for (const std::string& demands :
       {no_system, no_user, no_system + no_user, no_user + no_prompt, no_system + no_user + no_prompt}) {
    EXPECT_EQ(end_of(demands, "<|eot_id|>"), tokenizer.token_to_id("<|eot_id|>")) << demands;
    EXPECT_EQ(end_of(demands, "\n"), std::nullopt) << "an opening token ends no message: " << demands;
  }
  for (const std::string& demands :
       {refused_if("messages | length > 1"), refused_if("'please' not in messages[0].content"),
        std::string(
            "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content | odd }}{% endif %}{% endfor "
            "%}")})
    EXPECT_EQ(end_of(demands, "<|eot_id|>"), std::nullopt) << demands;
}

TEST_F(ChatTest, ARefusedSystemMessageIsNamed) {
  const std::string plain = kPlain;
  const std::string wants_word =
      "{% if 'please' not in messages[-1].content %}{{ raise_exception('say please') }}{% endif %}" + plain;
  CachedConversation& conversation = begin(wants_word.c_str());
  conversation.text.set_system("Be brief.");
  EXPECT_TRUE(names(error_of([&] { say(conversation, "Hello"); }), "say please"));
  EXPECT_EQ(conversation.text.messages().size(), 1U);
  say(conversation, "Hello, please");
  const std::string wants_system =
      "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}" + plain;
  CachedConversation& with_system = begin(wants_system.c_str());
  EXPECT_TRUE(names(error_of([&] { say(with_system, "Hello"); }), "no system"));
  with_system.text.set_system("Be brief.");
  EXPECT_TRUE(names(error_of([&] { with_system.text.set_system(""); }), "no system"));
  ASSERT_EQ(with_system.text.messages().size(), 1U);
  say(with_system, "Hello");
}

}  // namespace
}  // namespace lariat::test
