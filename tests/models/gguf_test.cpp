#include "models/gguf/gguf.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "models/gguf/gguf_file.h"
#include "models/load/open_files.h"
#include "tests/models/gguf_builder.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using nlohmann::json;
using Builder = GgufBuilder;

TEST(Gguf, ReadsValuesAndTensors) {
  Builder b;
  b.set("a.u32", 7U).set("a.f32", 1e-5F).set("a.yes", true).set("a.text", "words");
  b.set("a.texts", std::vector<std::string>{"x", "", "é"}).set("a.floats", std::vector<float>{1.5F, -2.0F});
  b.set("a.ints", std::vector<int32_t>{3, -4}).pair("a.u64", 10, std::string(8, '\xFF'));
  b.pair("a.i8", 1, "\xFE").pair("a.i64", 11, "\xFE" + std::string(7, '\xFF'));
  b.floats("one", {3}).tensor("two", {2, 3, 64}, 8, std::string(2 * 3 * 2 * 34, 'q'));
  const std::string bytes = b.bytes();
  const GgufFile file = parse_gguf(bytes);
  EXPECT_EQ(file.integer("a.u32"), 7);
  EXPECT_EQ(file.number("a.f32"), 1e-5);
  EXPECT_EQ(file.boolean("a.yes"), true);
  EXPECT_EQ(file.string("a.text"), "words");
  EXPECT_EQ(file.strings("a.texts"), (std::vector<std::string_view>{"x", "", "é"}));
  EXPECT_EQ(file.numbers("a.floats"), (std::vector<double>{1.5, -2.0}));
  EXPECT_EQ(file.integers("a.ints"), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(file.integer("a.none"), std::nullopt);
  EXPECT_EQ(file.integer("a.i8"), -2);
  EXPECT_EQ(file.number("a.i64"), -2.0);
  EXPECT_TRUE(names(error_of([&] { file.integer("a.u64"); }), "m.gguf | a.u64"));
  EXPECT_TRUE(names(error_of([&] { file.integer("a.f32"); }), "a.f32"));
  EXPECT_TRUE(names(error_of([&] { file.integer("a.ints"); }), "a.ints"));
  EXPECT_TRUE(names(error_of([&] { file.boolean("a.u32"); }), "a.u32"));
  EXPECT_TRUE(names(error_of([&] { file.strings("a.ints"); }), "a.ints"));
  EXPECT_TRUE(names(error_of([&] { file.numbers("a.texts"); }), "a.texts"));
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[1].shape, (std::vector<int64_t>{2, 3, 64}));
  EXPECT_EQ(file.tensors[1].dtype, "Q8_0");
  EXPECT_EQ(file.tensors[1].bytes, 408U);
  EXPECT_EQ(static_cast<char>(*file.tensors[1].data), 'q');
}

TEST(Gguf, DamagesAreNamed) {
  struct FileDamage {
    const char* words;
    std::function<void(Builder&)> spoil;
  };
  const auto text_of = [](uint64_t bytes) {
    std::string text;
    Builder::put(text, bytes);
    return text;
  };
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  const FileDamage table[] = {
      {"1", [](Builder& b) { b.version = 1; }},
      {"4", [](Builder& b) { b.version = 4; }},
      {"big-endian", [](Builder& b) { b.version = 3U << 24; }},
      {"18446744073709551615", [](Builder& b) { b.n_tensors = UINT64_MAX; }},
      {"1 | 4611686018427387904", [](Builder& b) { b.n_pairs = kHuge; }},
      {"k", [](Builder& b) { b.set("k", 1U).set("k", 2U); }},
      {"1", [](Builder& b) { b.set("", 1U); }},
      {"1 | 65536", [](Builder& b) { b.set(std::string(65536, 'k'), 1U); }},
      {"1", [](Builder& b) { b.set("a\nb", 1U); }},
      {"k | 13", [](Builder& b) { b.pair("k", 13, "1234"); }},
      {"k | 4611686018427387904", [&](Builder& b) { b.pair("k", 8, text_of(kHuge)); }},
      {"k", [](Builder& b) { b.pair("k", 7, "\2"); }},
      {"k", [](Builder& b) { b.array("k", 9, 1, ""); }},
      {"k | 99", [](Builder& b) { b.array("k", 99, 1, ""); }},
      {"k | 4611686018427387904", [](Builder& b) { b.array("k", 8, kHuge, ""); }},
      {"k | 9223372036854775809", [](Builder& b) { b.array("k", 10, (1ULL << 63) + 1, ""); }},
      {"general.alignment | 0", [](Builder& b) { b.set("general.alignment", 0U); }},
      {"general.alignment | 48", [](Builder& b) { b.set("general.alignment", 48U); }},
      {"general.alignment | 1073741824", [](Builder& b) { b.set("general.alignment", 1U << 30); }},
      {"x", [](Builder& b) { b.floats("x", {4}).floats("x", {4}); }},
      {"1", [](Builder& b) { b.floats("", {4}); }},
      {"1 | 65", [](Builder& b) { b.floats(std::string(65, 'n'), {4}); }},
      {"x | 5",
       [](Builder& b) {
         b.floats("x", {1, 1, 1, 1, 1});
       }},
      {"x | 0",
       [](Builder& b) {
         b.floats("x", {4, 0});
       }},
      {"x | 4611686018427387904",
       [](Builder& b) {
         b.info("x", {kHuge, 4}, 0, 128);
       }},
      {"x | 4294967296",
       [](Builder& b) {
         b.info("x", {1ULL << 32, 1ULL << 32}, 0, 128);
       }},
      {"x | 18446744073709551615", [](Builder& b) { b.info("x", {UINT64_MAX}, 0, 128); }},
      {"x | 4", [](Builder& b) { b.tensor("x", {32}, 4, 18); }},
      {"x | 77", [](Builder& b) { b.tensor("x", {32}, 77, 18); }},
      {"x | 256 | 128", [](Builder& b) { b.tensor("x", {128}, 12, 144); }},
      {"x | 4 | 32", [](Builder& b) { b.info("x", {4}, 0, 4); }},
      {"base | x", [](Builder& b) { b.info("x", {4}, 0, 32); }},
      {"x | 96 | 400", [](Builder& b) { b.info("x", {100}, 0, 96); }},
      {"x | 18446744073709551584", [](Builder& b) { b.info("x", {4}, 0, UINT64_MAX - 31); }},
      {"base | 0 | 128", [](Builder& b) { b.data.resize(100); }},
      {"m.gguf", [](Builder& b) { b.data.clear(), b.infos.resize(b.infos.size() - 2); }},
  };
  for (const FileDamage& damage : table) {
    Builder b;
    b.set("general.name", "m").floats("base", {32});
    ASSERT_NO_THROW(parse_gguf(b.bytes()));
    damage.spoil(b);
    const std::string error = error_of([&] { parse_gguf(b.bytes()); });
    EXPECT_TRUE(names(error, damage.words));
    EXPECT_EQ(error.rfind("m.gguf: ", 0), 0U) << error;
  }
}

// A file is never read past its end.
TEST(Gguf, EveryPrefixOfAFileIsRefused) {
  const std::string whole =
      small_gguf("llama").set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"}).bytes();
  for (size_t length = 0; length < whole.size(); length += length < 700 ? 1 : 97) {
    const std::string part = whole.substr(0, length);  // sanitizers watch the copy's end
    EXPECT_NE(error_of([&] { parse_gguf(part); }), "") << length;
  }
}

class GgufFiles : public FolderTest {};

// Metadata as llama.cpp's converter writes it.
Builder with_tokenizer(const std::string& name, const char* pre) {
  const json source = read_json(golden_dir() / name / "tokenizer.json");
  std::map<int32_t, std::string> tokens;
  std::map<std::string, int32_t> types, rank;
  for (const auto& [token, id] : source["model"]["vocab"].items()) tokens[id] = token;
  for (const json& added : source["added_tokens"]) {
    tokens[added["id"]] = added["content"];
    types[added["content"]] = added["special"] ? 3 : 4;
  }
  std::vector<std::string> merges, all;
  for (const json& merge : source["model"]["merges"]) {
    const bool text = merge.is_string();
    const std::string left =
        text ? merge.get<std::string>() : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    merges.push_back(left);
    std::string made = left;
    made.erase(made.find(' '), 1);
    rank.emplace(made, static_cast<int32_t>(merges.size()));
  }
  std::vector<int32_t> kinds;
  std::vector<float> scores;
  for (const auto& [id, token] : tokens) {
    EXPECT_EQ(id, std::ssize(all));
    all.push_back(token);
    kinds.push_back(types.contains(token) ? types[token] : 1);
    scores.push_back(rank.contains(token) ? -static_cast<float>(rank[token]) : -1e6F);
    const bool byte = pre == nullptr && token.size() == 6 && token.starts_with("<0x");
    if (byte) kinds.back() = 6;
  }
  Builder b = small_gguf("llama");
  b.set("tokenizer.ggml.model", pre == nullptr ? "llama" : "gpt2").set("tokenizer.ggml.tokens", all);
  b.set("tokenizer.ggml.token_type", kinds).set("tokenizer.chat_template", "{{ messages[0].content }}");
  if (pre == nullptr) return b.set("tokenizer.ggml.scores", scores);
  const auto id = [&](const char* token) {
    return static_cast<uint32_t>(std::ranges::find(all, token) - all.begin());
  };
  b.set("tokenizer.ggml.pre", pre).set("tokenizer.ggml.merges", merges);
  if (id("<|begin_of_text|>") < all.size()) b.set("tokenizer.ggml.bos_token_id", id("<|begin_of_text|>"));
  return b;
}

TEST_F(GgufFiles, TokenizersEqualTheirSource) {
  const std::string text = slurp(golden_dir() / "cases.json");
  for (const auto& [name, pre] : std::map<std::string, const char*>{
           {"llama3-mini", "llama-bpe"}, {"qwen-mini", "qwen2"}, {"llama-mini", nullptr}}) {
    SCOPED_TRACE(name);
    put("m.gguf", with_tokenizer(name, pre).bytes());
    const Tokenizer want = Tokenizer::load(golden_dir() / name);
    const ModelFiles files = open_files(dir_ / "m.gguf");
    const Tokenizer tokenizer = Tokenizer::load(files.texts);
    EXPECT_EQ(tokenizer.adds_bos(), want.adds_bos());
    EXPECT_EQ(tokenizer.vocab_size(), want.vocab_size());
    const std::vector<int32_t> ids = want.encode(text, want.adds_bos());
    EXPECT_EQ(tokenizer.encode(text, tokenizer.adds_bos()), ids);
    EXPECT_EQ(tokenizer.decode(ids), want.decode(ids));
    EXPECT_TRUE(names(files.texts.read("tokenizer_config.json", 1 << 20), "messages[0].content"));
    EXPECT_EQ(files.tensors->all().size(), 1U);
    EXPECT_TRUE(holds(files.texts.read("tokenizer.ggml", 1 << 24), "\n" + want.id_to_token(ids.back())));
  }
}

TEST_F(GgufFiles, EveryPreTokenizerIsKnownToTheRegexEngine) {
  for (const char* pre :
       {"llama-bpe", "dbrx", "glm4", "qwen2", "gpt-2", "smollm", "falcon", "deepseek-llm", "deepseek-coder",
        "deepseek-v3", "tekken", "gpt-4o", "seed-coder", "youtu", "default"}) {
    SCOPED_TRACE(pre);
    put("m.gguf", with_tokenizer("qwen-mini", pre).bytes());
    const Tokenizer tokenizer = Tokenizer::load(open_files(dir_ / "m.gguf").texts);
    const std::string text = "It's  12345 \u6CB3\u5DDD, na\u00EFve\n\n x_y+=1; \u0560\u2018!";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false)), text);
  }
  put("m.gguf", with_tokenizer("qwen-mini", "other").bytes());
  EXPECT_TRUE(names(error_of([&] { Tokenizer::load(open_files(dir_ / "m.gguf").texts); }),
                    "m.gguf | tokenizer.ggml.pre | other"));
}

TEST_F(GgufFiles, InvalidTokenizersAreRefused) {
  const auto error = [&](const Builder& b) {
    put("m.gguf", b.bytes());
    return error_of([&] { Tokenizer::load(open_files(dir_ / "m.gguf").texts); });
  };
  const std::vector<std::string> two{"a", "b"};
  const Builder bpe = small_gguf("llama").set("tokenizer.ggml.model", "gpt2");
  const Builder spm = small_gguf("llama").set("tokenizer.ggml.model", "llama");
  const auto with = [](Builder b, const auto& change) {
    change(b);
    return b;
  };
  EXPECT_TRUE(names(error(small_gguf("llama")), "m.gguf | tokenizer.ggml.model"));
  EXPECT_TRUE(names(error(bpe), "tokenizer.ggml.tokens"));
  EXPECT_TRUE(names(error(with(bpe,
                               [&](Builder& b) {
                                 b.set("tokenizer.ggml.tokens", two)
                                     .set("tokenizer.ggml.token_type", std::vector<int32_t>{1});
                               })),
                    "tokenizer.ggml.token_type | 1 | 2"));
  EXPECT_TRUE(names(error(with(bpe,
                               [&](Builder& b) {
                                 b.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "a"});
                               })),
                    "m.gguf | tokenizer.ggml.tokens | a"));
  EXPECT_TRUE(names(error(with(spm, [&](Builder& b) { b.set("tokenizer.ggml.tokens", two); })),
                    "tokenizer.ggml.scores | 0 | 2"));
  EXPECT_TRUE(
      names(error(with(spm,
                       [&](Builder& b) {
                         b.set("tokenizer.ggml.tokens", two).array("tokenizer.ggml.scores", 0, 2, "ab");
                         b.set("tokenizer.ggml.token_type", std::vector<float>{1, 1});
                       })),
            "tokenizer.ggml.token_type"));
}

TEST_F(GgufFiles, ASplitModelOpensFromItsFirstFile) {
  const auto part = [](uint32_t no) {
    Builder b = no == 0 ? small_gguf("llama") : Builder();
    if (no > 0) b.floats(fmt::format("blk.{}.attn_q.weight", no), {32, 32});
    return b.set("split.no", no).set("split.count", 3U).set("split.tensors.count", 3U).bytes();
  };
  put("m-00001-of-00003.gguf", part(0));
  put("m-00002-of-00003.gguf", part(1));
  const auto error = [&](const char* name) { return error_of([&] { open_files(dir_ / name); }); };
  EXPECT_TRUE(names(error("m-00001-of-00003.gguf"), "m-00003-of-00003.gguf"));
  put("m-00003-of-00003.gguf", part(2));
  const ModelFiles files = open_files(dir_ / "m-00001-of-00003.gguf");
  EXPECT_EQ(files.tensors->all().size(), 3U);
  EXPECT_TRUE(files.tensors->find("model.layers.2.self_attn.q_proj.weight")->reader);
  EXPECT_TRUE(names(error("m-00002-of-00003.gguf"), "m-00002-of-00003.gguf | 2 | 3 | m-00001-of-00003.gguf"));
  put("m-00003-of-00003.gguf", part(1));
  EXPECT_TRUE(names(error("m-00001-of-00003.gguf"), "m-00003-of-00003.gguf | split.no | 2"));
  put("m.gguf", part(0));
  EXPECT_TRUE(names(error("m.gguf"), "m.gguf | -00001-of-00003.gguf"));
}

// The tokenizer loads from the file while the weights do.
TEST(Gguf, ThreadsMayReadAtOnce) {
  const GgufFile file = parse_gguf(small_gguf("llama").bytes());
  constexpr int kThreads = 4, kKeys = 20000;
  const auto key = [](int thread, int i) { return std::to_string(thread) + "." + std::to_string(i); };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kKeys; ++i) file.has(key(t, i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(file.was_read(key(t, i)));
  }
}

}  // namespace
}  // namespace lariat::test
