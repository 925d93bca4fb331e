// transformers' texts and errors (tests/golden/README.md).
#include "models/text/chat_template.h"

#include <fmt/format.h>

#include <ctime>
#include <map>

#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

const ordered_json& golden() {
  static const ordered_json kGolden =
      ordered_json::parse(read_file(source_dir() / "tests" / "golden" / "chat_templates.json", 1 << 20));
  return kGolden;
}

// 2024-07-06 15:04:05 on any clock.
std::time_t golden_time() {
  std::tm local{};
  local.tm_year = 124;
  local.tm_mon = 6;
  local.tm_mday = 6;
  local.tm_hour = 15;
  local.tm_min = 4;
  local.tm_sec = 5;
  local.tm_isdst = -1;
  return std::mktime(&local);
}

std::string one_line_of(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text;
}

// The same text or refusal as transformers, with the template's message if any.
void expect_same(const ordered_json& want, const std::string& source, const ordered_json& messages,
                 bool prompt, const ordered_json& variables) {
  std::string got;
  const std::string error = error_of([&] {
    const auto chat = ChatTemplate::parse(source, "chat.jinja", golden().at("tokens"));
    got = chat.render(messages, prompt, variables, golden_time());
  });
  if (want.contains("text")) {
    EXPECT_EQ(error, "");
    EXPECT_EQ(got, want.at("text").get<std::string>());
  } else {
    EXPECT_EQ(error.rfind("chat.jinja: line ", 0), 0U) << "'" << error << "' from " << got;
    EXPECT_NE(error.find(one_line_of(want.at("error"))), std::string::npos) << error;
  }
}

TEST(ChatTemplateGolden, EveryShapeRendersAsInTransformers) {
  EXPECT_GE(golden().at("cases").size(), 480U);
  for (const auto& want : golden().at("cases")) {
    const std::string name = want.at("template"), conversation = want.at("conversation");
    SCOPED_TRACE(name + ", " + conversation + (want.at("prompt").get<bool>() ? ", prompt" : ""));
    expect_same(want, golden().at("templates").at(name), golden().at("conversations").at(conversation),
                want.at("prompt"), want.value("variables", ordered_json::object()));
  }
}

TEST(ChatTemplateGolden, EveryFeatureRendersAsInTransformers) {
  EXPECT_GE(golden().at("features").size(), 200U);
  for (const auto& want : golden().at("features")) {
    SCOPED_TRACE(want.at("source"));
    expect_same(want, want.at("source"), golden().at("conversations").at("one"), false,
                golden().at("variables"));
  }
}

// Any difference changes the sum of id times index.
TEST(ChatTemplateGolden, SharedTokenizersGiveTheSameIds) {
  std::map<std::string, std::pair<ChatTemplate, Tokenizer>> opened;
  for (const auto& want : golden().at("shared")) {
    const fs::path folder = shared_dir() / want.at("folder").get<std::string>();
    LARIAT_NEEDS(folder);
    const std::string conversation = want.at("conversation");
    SCOPED_TRACE(fmt::format("{}, {}", want.at("folder").get<std::string>(), conversation));
    auto at = opened.find(folder.string());
    if (at == opened.end()) {
      const Tokenizer tokenizer = Tokenizer::load(folder);
      at = opened.try_emplace(folder.string(), *ChatTemplate::load(folder, tokenizer), tokenizer).first;
    }
    std::string text;
    const std::string error = error_of([&] {
      text = at->second.first.render(golden().at("conversations").at(conversation), want.at("prompt"),
                                     want.at("variables"), golden_time());
    });
    if (want.contains("error")) {
      EXPECT_NE(error, "") << text;
      continue;
    }
    int64_t sum = 0, n = 0;
    for (const int32_t id : at->second.second.encode(text, false)) sum += ++n * id;
    EXPECT_EQ(sum, want.at("ids")) << error << text;
  }
}

std::string render(const std::string& source) {
  const ordered_json messages = {{{"role", "user"}, {"content", "hello"}}};
  return ChatTemplate::parse(source, "t", ordered_json::object()).render(messages, true);
}

TEST(ChatTemplate, ErrorsNameFileAndLine) {
  const auto error = [](const std::string& source) { return error_of([&] { render(source); }); };
  const std::pair<const char*, const char*> rows[] = {
      {"a\n\n{{ 1|foo }}", "3 | foo"},
      {"{% for m in messages %}\n{{ m.content.x.y }}\n{% endfor %}", "2 | str | x"},
      {"\n{% call f() %}{% endcall %}", "2 | call"},
      {"{{ 9223372036854775807 + 1 }}", "1 | 64"},
      {"{{ 99999999999999999999 }}", "1 | 99999999999999999999"},
      {"\xFF", "1 | UTF-8"},
      {"\n{% if messages %}\n{{ raise_exception('No.') }}{% endif %}", "3 | No."},
      {"{{ cycler(1) }}", "1 | cycler"}};
  for (const auto& [source, words] : rows) {
    EXPECT_EQ(error(source).rfind("t: ", 0), 0U) << error(source);
    EXPECT_TRUE(names(error(source), words));
  }
  EXPECT_EQ(render("{% if false %}{{ 1|foo }}{{ 'a'.encode() }}{% endif %}ok"), "ok");
}

// Unknown features are never rendered differently.
TEST(ChatTemplate, UnknownFeaturesAreNamed) {
  const struct {
    const char *source, *words = "";
  } refused[] = {
      {"{% raw %}{{ x }}{% endraw %}", "raw"},
      {"{% with a = 1 %}{% endwith %}", "with"},
      {"{% filter upper %}a{% endfilter %}", "filter"},
      {"{% set x | upper %}a{% endset %}"},
      {"{{ 1e3 }}"},
      {"{{ 2 ** 3 }}", "**"},
      {"{{ 7.5 // 2 }}", "//"},
      {"{{ '%s' % 'a' }}", "%"},
      {"{{ 'a'.encode() }}", "encode"},
      {"{{ 'a'.count('a') }}", "count"},
      {"{{ 'a'.startswith(('a', 'b')) }}", "startswith | tuple"},
      {"{{ 'a'.replace('a', 'b', 1) }}", "replace | 2"},
      {"{{ 'a'|replace('', 'b') }}", "replace"},
      {"{{ messages[::2] }}"},
      {"{{ messages[0:1:-1] }}"},
      {"{{ 'a'.upper }}", "upper | str"},
      {"{{ messages[0].items }}", "items | dict"},
      {"{{ messages.count(1) }}", "count | list"},
      {"{{ '<b>'|safe }}", "safe"},
      {"{{ messages|batch(2) }}", "batch"},
      {"{{ 6 is divisibleby 3 }}", "divisibleby"},
      {"{{ 'Straße'|upper }}", "U+00DF"},
      {"{{ 'it-is'|title }}"},
      {"{{ range(3) }}", "view"},
      {"{{ range(3) == range(3) }}", "== | view"},
      {"{{ range(3)[1] }}", "view"},
      {"{{ ['\xC2\xA0'] }}", "U+00A0 | tojson"},
      {"{% set x = ['a']|map('upper') %}{{ x|list }}{{ x|list }}"},
      {"{{ [{'a': {'b': 1}}]|map(attribute='a.b')|list }}"},
      {"{% set n = namespace(x=1) %}{% for i in [1] if n.x %}{% endfor %}"},
      {"{% set n = namespace(x=1) %}{{ [n] }}"},
      {"{% set n = namespace(x=1) %}{{ {n: 1} }}"},
      {"{{ ' x '|trim(5) }}", "trim | int"},
      {"{% for x in [1] %}{{ loop.cycle(1) }}{% endfor %}", "loop.cycle"},
      {"{{ {1: 2}|tojson }}"},
      {"{{ [1]|tojson(ensure_ascii=true) }}", "tojson | ensure_ascii"},
      {"{{ [1]|sort(reverse=true) }}", "sort | reverse"},
  };
  for (const auto& [source, words] : refused) {
    const std::string error = error_of([source = source] { render(source); });
    EXPECT_EQ(error.rfind("t: line 1: ", 0), 0U) << source << ": " << error;
    EXPECT_TRUE(names(error, words)) << source;
  }
}

// Limits count steps and bytes.
TEST(ChatTemplate, HostileTemplatesEnd) {
  std::string nested, sum = "1", brackets, deep_list = "{% set x = [] %}";
  for (int i = 0; i < 8; ++i) nested += "{% for a in range(100000) %}";
  for (int i = 0; i < 100'000; ++i) sum += "+1";
  brackets.assign(100'000, '(');
  for (int i = 0; i < 200; ++i) deep_list += "{% set x = [x] %}";
  std::string doubling = "{% set x = 'ab' %}";
  for (int i = 0; i < 60; ++i) doubling += "{% set x = x + x %}";
  std::string endfors;
  for (int i = 0; i < 8; ++i) endfors += "{% endfor %}";
  const std::string loop_end = "{% endfor %}";
  const std::vector<std::string> sources = {
      nested + "x" + endfors,
      nested + endfors,
      doubling,
      "{{ " + sum + " }}",
      "{{ " + brackets + " }}",
      "{{ " + std::string(100'000, '-') + "1 }}",
      deep_list + "{{ x }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}" + loop_end,
      "{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = {(ns.x,): 1} %}" + loop_end,
      "{% set ns = namespace(x=[0]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}" + loop_end,
      "{% set ns = namespace(x=[0]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}" + loop_end +
          "{{ ns.x }}",
      "{% set ns = namespace(x=[0]) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}" + loop_end +
          "{{ ns.x == ns.x|list }}{{ ns.x|tojson }}",
      "{{ 'x' * 1000000000000 }}",
      "{{ 'x' * 9223372036854775807 }}",
      "{{ ('x' * 1000000)|replace('x', 'y' * 1000) }}",
      "{{ ('x' * 30000000)|list }}",
      "{{ ('x' * 1000000).split('x')|join('y' * 1000) }}",
      "{% for i in range(100000) %}{{ 'x' * 100000 }}" + loop_end,
      "{{ range(0, 1000000000)|list }}",
      "{{ ('a' * 1000000)|replace('a' * 500000 ~ 'b', 'c') }}{{ ('a' * 1000000).find('a' * 500000 ~ 'b').x.y "
      "}}",
      "{{ range(100000)|unique|list }}",
      "{{ ('x' * 30000000)[::-1] }}",
      "{{ [1, 2]|tojson(indent=1000000000) }}",
      "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
      "{% macro m(n) %}{% if n %}{{ m(n - 1) ~ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
      "{% set ns = namespace() %}{% macro m() %}{% endmacro %}{% set ns.m = m %}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
  };
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 200));
    EXPECT_NE(error_of([&] { render(source); }), "");
  }
}

// A template quadratic in messages would exceed the limits.
TEST(ChatTemplate, ALongConversationIsWithinTheLimits) {
  ordered_json all = ordered_json::array();
  for (int i = 0; i < 4000; ++i)
    all.push_back(
        {{"role", i % 2 ? "assistant" : "user"}, {"content", fmt::format("Message {} of many.", i)}});
  for (const char* name : {"chatml", "qwen3", "mistral", "macros"}) {
    const std::string source = golden().at("templates").at(name);
    const std::string text = ChatTemplate::parse(source, name, golden().at("tokens")).render(all, true);
    for (const char* message : {"Message 0 of many.", "Message 3999 of many."})
      EXPECT_NE(text.find(message), std::string::npos) << name;
  }
}

struct ChatTemplateFolder : FolderTest {
  ChatTemplateFolder() { fs::copy(golden_dir() / "byte-mini" / "tokenizer.json", dir_); }
  std::string rendered() const {
    const auto chat = ChatTemplate::load(dir_, Tokenizer::load(dir_));
    return chat ? chat->render({{{"role", "user"}, {"content", "hi"}}}, false) : "(none)";
  }
};

TEST_F(ChatTemplateFolder, FilesAreReadInTransformersOrder) {
  EXPECT_EQ(rendered(), "(none)");
  put("tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null})");
  EXPECT_EQ(rendered(), "(none)");
  put("chat_template.json", R"({"chat_template": "json{{ bos_token }}"})");
  EXPECT_EQ(rendered(), "json<s>");
  put("tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "added_tokens_decoder": {},
    "chat_template": "config{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ unk_token }}"})");
  put("special_tokens_map.json", R"({"eos_token": "<other>", "unk_token": {"content": "<unk>"}})");
  EXPECT_EQ(rendered(), "config<s></s>False") << "added_tokens_decoder overrides the map";
  put("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>",
    "chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": "list{{ eos_token }}{{ unk_token }}"}]})");
  EXPECT_EQ(rendered(), "list<other><unk>");
  put("chat_template.jinja", "jinja{{ bos_token }}\n");
  EXPECT_EQ(rendered(), "jinja<s>");
}

TEST_F(ChatTemplateFolder, DamageIsNamed) {
  const auto error = [&] { return error_of([&] { rendered(); }); };
  put("tokenizer_config.json", R"({"chat_template": "a\n{{ }}"})");
  EXPECT_TRUE(names(error(), (dir_ / "tokenizer_config.json").string() + " | chat_template | 2"));
  put("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_TRUE(names(error(), "tokenizer_config.json | chat_template"));
  put("chat_template.jinja", "\n\n{% if %}");
  EXPECT_TRUE(names(error(), (dir_ / "chat_template.jinja").string() + " | 3"));
}

TEST(Messages, AreCheckedAndNamed) {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_messages(text, "m.json"); });
  };
  EXPECT_EQ(
      error(
          R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": []}])"),
      "");
  EXPECT_EQ(error(R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])"), "");
  const std::pair<const char*, const char*> rows[] = {
      {"[1", "JSON"},
      {"{}", ""},
      {"[]", ""},
      {R"([{"role": "user", "content": "a"}, 5])", "2 | role | content"},
      {R"([{"content": "a"}])", "1 | role"},
      {R"([{"role": "user"}])", "1 | content"},
      {R"([{"role": "user", "content": 5}])", "1 | content"},
      {R"([{"role": "user", "role": "x", "content": ""}])", "role"}};
  for (const auto& [text, words] : rows) {
    EXPECT_EQ(error(text).rfind("m.json: ", 0), 0U) << error(text);
    EXPECT_TRUE(names(error(text), words));
  }
  EXPECT_NE(error_of([] { ChatTemplate::parse("x", "t", {}).render(ordered_json::array(), false); }), "");
}

}  // namespace
}  // namespace lariat::test
