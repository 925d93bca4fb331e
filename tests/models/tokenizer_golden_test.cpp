// Ids and texts of HF tokenizers and SentencePiece (tests/golden/README.md).
#include "models/load/open_files.h"
#include "models/text/chat_template.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Compares ids, texts, and the decoding of random ids.
void check(const Tokenizer& tokenizer, const json& golden, const std::vector<std::string>& texts,
           const std::string& name) {
  ASSERT_EQ(golden.at("ids").size(), texts.size());
  const bool bos = tokenizer.adds_bos();
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(name + ", text " + std::to_string(i) + ": " + json(texts[i]).dump());
    const auto want = golden.at("ids")[i].get<std::vector<int32_t>>();
    const auto got = tokenizer.encode(texts[i], bos);
    EXPECT_EQ(got, want);
    const auto decoded = golden.at("decoded").value(std::to_string(i), texts[i]);
    EXPECT_EQ(tokenizer.decode(want), decoded);
  }
  for (const json& piece : golden.at("pieces")) {
    SCOPED_TRACE(name + ", " + piece.dump());
    const auto ids = piece.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.decode(ids), piece.at("text"));
    EXPECT_EQ(tokenizer.decode(ids, false), piece.value("text_all", tokenizer.decode(ids, false)));
    std::string streamed;
    StreamDecoder decoder(tokenizer, false);
    for (int32_t id : ids) {
      const std::string part = decoder.push(id);
      EXPECT_NO_THROW(json(part).dump()) << "a partial character";  // dump() throws unless the text is UTF-8
      streamed += part;
    }
    EXPECT_EQ(streamed + decoder.flush(), tokenizer.decode(ids, false));
  }
}

std::vector<std::string> all_texts() { return read_json(golden_dir() / "cases.json"); }

// Folders, and GGUF (tools/lab/golden/gguf_files.py), which cannot store tokens that strip spaces.
TEST(TokenizerGolden, SmallTokenizersMatchTheirReference) {
  const auto golden = [](const std::string& name) {
    return read_json(golden_dir() / (name + ".golden.json"));
  };
  for (const std::string name : {"llama3-mini", "qwen-mini", "byte-mini", "llama-mini", "metaspace-mini",
                                 "gemma-mini", "sp-mini", "sp-unigram-mini"})
    check(Tokenizer::load(golden_dir() / name), golden(name), all_texts(), name);
  for (const std::string name : {"llama3-mini", "qwen-mini", "sp-mini"}) {
    const fs::path file = golden_dir().parent_path() / "gguf" / (name + ".gguf");
    check(Tokenizer::load(open_text_files(file).texts), golden(name), all_texts(), file.string());
  }
}

// The code published with the files builds the same conversation.
void expect_chat(const fs::path& folder, const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const json messages = read_json(golden_dir() / "chatglm-mini.golden.json").at("chat");
  const auto chat = ChatTemplate::load(folder, tokenizer);
  ASSERT_TRUE(chat);
  EXPECT_EQ(tokenizer.encode(chat->render(messages, true), false), ids);
}

TEST(TokenizerGolden, TiktokenMatchesItsPackage) {
  for (const std::string name : {"qwen-tiktoken-mini", "glm4-tiktoken-mini"}) {
    const Tokenizer tokenizer = Tokenizer::load(golden_dir() / name);
    EXPECT_EQ(tokenizer.warnings(), std::vector<std::string>{});
    const json golden = read_json(golden_dir() / (name + ".golden.json"));
    EXPECT_GE(golden.at("texts").size(), 200U);
    EXPECT_EQ(tokenizer.adds_bos(), name.starts_with("glm4"));
    EXPECT_EQ(tokenizer.eos_ids(), std::vector{*tokenizer.token_to_id("<|endoftext|>")});
    check(tokenizer, golden, golden.at("texts"), name);
    expect_chat(golden_dir() / name, tokenizer, golden.at("chat"));
  }
}

// SentencePiece with tokens after its pieces, selected by class and version.
TEST(TokenizerGolden, ChatGlmMatchesSentencePiece) {
  const json golden = read_json(golden_dir() / "chatglm-mini.golden.json");
  for (const char* version : {"2", "3"}) {
    const TempFolder dir;
    fs::copy(golden_dir() / "sp-mini" / "tokenizer.model", dir.path);
    dir.put("tokenizer_config.json", R"({"tokenizer_class": "ChatGLMTokenizer"})");
    dir.put("config.json", json{{"transformers_version", *version == '2' ? "4.27.1" : "4.30.2"}}.dump());
    const Tokenizer tokenizer = Tokenizer::load(dir.path);
    EXPECT_EQ(tokenizer.warnings(), std::vector<std::string>{});
    const json& want = golden.at(version);
    for (size_t i = 0; i < want.at("texts").size(); ++i) {
      const std::string text = want.at("texts")[i];
      EXPECT_EQ(tokenizer.encode(text, tokenizer.adds_bos()), want.at("ids")[i].get<std::vector<int32_t>>())
          << version << " " << json(text).dump();
    }
    expect_chat(dir.path, tokenizer, want.at("chat"));
  }
}

TEST(TokenizerGolden, EveryComponentMatchesHf) {
  const std::vector<std::string> texts = all_texts();
  const json variants = read_json(golden_dir() / "variants.json");
  EXPECT_GE(variants.size(), 35u);
  for (const auto& [name, variant] : variants.items()) {
    std::vector<std::string> picked;
    for (size_t i : variant.at("cases").get<std::vector<size_t>>()) picked.push_back(texts.at(i));
    check(load_changed("byte-mini", variant.at("change")), variant, picked, name);
  }
}

struct SharedCase {
  const char* name;
  const char* folder;
  bool adds_bos;
  int32_t bos, eos;  // -1: none
  int64_t size;
};

class SharedTokenizer : public testing::TestWithParam<SharedCase> {};

TEST_P(SharedTokenizer, MatchesItsReference) {
  const SharedCase& c = GetParam();
  const fs::path folder = shared_dir() / c.folder;
  LARIAT_NEEDS(folder);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer.adds_bos(), c.adds_bos);
  EXPECT_EQ(tokenizer.bos_id().value_or(-1), c.bos);
  EXPECT_EQ(tokenizer.eos_ids(), c.eos < 0 ? std::vector<int32_t>{} : std::vector<int32_t>{c.eos});
  EXPECT_EQ(tokenizer.vocab_size(), c.size);
  check(tokenizer, read_json(golden_dir() / (std::string(c.name) + ".golden.json")), all_texts(), c.name);
}

INSTANTIATE_TEST_SUITE_P(TokenizerGolden, SharedTokenizer,
                         testing::Values(SharedCase{"llama", "tokenizers/llama", true, 1, 2, 32000},
                                         SharedCase{"llama2-hf", "tokenizers/llama2-hf", true, 1, 2, 32000},
                                         SharedCase{"llama3", "tokenizers/llama3", true, 128000, 128009,
                                                    128256},
                                         SharedCase{"minimind", "tokenizers/minimind", false, 1, 2, 6400},
                                         SharedCase{"qwen2", "tokenizers/qwen2", false, -1, 151645, 151646},
                                         SharedCase{"qwen3", "tokenizers/qwen3", false, -1, 151645, 151669},
                                         SharedCase{"stories260K", "models/stories260K", true, 1, 2, 512},
                                         SharedCase{"bloomtok", "cases/bloomtok", false, -1, -1, 703}),
                         [](const auto& shared) { return test_name(shared.param.name); });

TEST(TokenizerGolden, SettingsEqualTransformers) {
  const json golden = read_json(golden_dir() / "settings.json");
  EXPECT_GE(golden.size(), 27u);
  for (const json& c : golden) {
    const std::string base = c.at("base");
    const bool shared = base.starts_with("cases/");
    const fs::path source = (shared ? shared_dir() : golden_dir()) / base;
    LARIAT_NEEDS(source);  // outside the repository: last
    SCOPED_TRACE(base + ": " + c.at("files").dump());
    const TempFolder dir;
    if (fs::exists(source / "tokenizer.model")) fs::copy(source / "tokenizer.model", dir.path);
    if (fs::exists(source / "tokenizer.json")) {
      json spec = read_json(source / "tokenizer.json");
      spec.update(c.at("change"));
      dir.put("tokenizer.json", spec.dump());
    }
    for (const auto& [name, value] : c.at("files").items()) dir.put(name, value.dump());
    const Tokenizer tokenizer = Tokenizer::load(dir.path);
    const std::vector<std::string> picked = c.at("texts");
    for (size_t i = 0; i < picked.size(); ++i) {
      const auto want = c.at("ids").at(i).get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.encode(picked[i], tokenizer.adds_bos()), want) << json(picked[i]).dump();
      EXPECT_EQ(tokenizer.decode(want), c.at("decoded").at(i)) << json(picked[i]).dump();
    }
  }
}

}  // namespace
}  // namespace lariat::test
