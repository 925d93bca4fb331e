#include <fmt/format.h>

#include <functional>
#include <map>

#include "models/gguf/gguf_file.h"
#include "models/load/config.h"
#include "models/load/open_files.h"
#include "tests/models/gguf_builder.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using Builder = GgufBuilder;
using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;

class GgufKeys : public FolderTest {
 protected:
  ModelSpec config(const Builder& b) const { return config_of(b.bytes()); }
  ModelSpec config_of(const std::string& bytes) const {
    put("m.gguf", bytes);
    return load_config(open_text_files(dir_ / "m.gguf").texts);
  }
  Tokenizer tokenizer(const std::string& bytes) const {
    put("m.gguf", bytes);
    return Tokenizer::load(open_files(dir_ / "m.gguf").texts);
  }
  // The only error or warning.
  std::string line(const std::string& arch, const std::function<void(Builder&)>& change) const {
    Builder b = small_gguf(arch);
    change(b);
    std::vector<std::string> warnings;
    const std::string error = error_of([&] { warnings = config(b).warnings; });
    EXPECT_LE(warnings.size(), 1U);
    return !error.empty() ? "error: " + error : warnings.empty() ? "" : "warning: " + warnings[0];
  }
};

std::string golden_gguf(const std::string& name) {
  return slurp(golden_dir().parent_path() / "gguf" / (name + ".gguf"));
}

std::string replaced_text(std::string text, const std::string& from, const std::string& to) {
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return text.replace(text.find(from), from.size(), to);
}

TEST_F(GgufKeys, UnsupportedKeysAreRefused) {
  struct Row {
    const char* key;
    std::function<void(Builder&)> change;
    const char* arch = "llama";
  };
  const auto set = [](const char* key, auto value) { return [=](Builder& b) { b.set(key, value); }; };
  const Row table[] = {
      {"llama.attention.causal", set("llama.attention.causal", false)},
      {"llama.attention.max_alibi_bias", set("llama.attention.max_alibi_bias", 8.0F)},
      {"llama.attention.clamp_kqv", set("llama.attention.clamp_kqv", 8.0F)},
      {"llama.attention.temperature_scale", set("llama.attention.temperature_scale", 0.1F)},
      {"llama.use_parallel_residual", set("llama.use_parallel_residual", true)},
      {"llama.expert_shared_count", set("llama.expert_shared_count", 2U)},
      {"llama.logit_scale", set("llama.logit_scale", 2.0F)},
      {"llama.rope.freq_base_swa", set("llama.rope.freq_base_swa", 5000.0F)},
      {"llama.rope.scaling.attn_factor", set("llama.rope.scaling.attn_factor", 2.0F)},
      {"llama.rope.scaling.attn_factor",
       [](Builder& b) {
         b.set("llama.rope.scaling.type", "yarn").set("llama.rope.scaling.factor", 4.0F);
         b.set("llama.rope.scaling.original_context_length", 64U);
         b.set("llama.rope.scaling.attn_factor", 2.0F);
       }},
      {"llama.rope.scaling.yarn_ext_factor", set("llama.rope.scaling.yarn_ext_factor", 0.5F)},
      {"llama.rope.scaling.yarn_ext_factor",
       [](Builder& b) {
         b.set("llama.rope.scaling.type", "yarn").set("llama.rope.scaling.factor", 4.0F);
         b.set("llama.rope.scaling.original_context_length", 64U);
         b.set("llama.rope.scaling.yarn_ext_factor", 0.0F).set("llama.rope.scaling.yarn_attn_factor", 2.0F);
       }},
      {"llama.rope.scaling.type", set("llama.rope.scaling.type", "longrope")},
      {"llama.rope.scaling.type", set("llama.rope.scaling.type", "other")},
      {"qwen2.rope.scaling.factor", set("qwen2.rope.scaling.factor", 0.5F), "qwen2"},
      {"llama.attention.head_count_kv",
       [](Builder& b) {
         const std::string key = "llama.attention.head_count_kv";
         b.pairs[b.pairs.find(key) + key.size() + 4] = 3;
       }},
  };
  for (const Row& row : table) {
    const std::string error = line(row.arch, row.change);
    EXPECT_TRUE(names(error, "m.gguf | " + std::string(row.key)));
    EXPECT_TRUE(error.starts_with("error: ")) << error;
  }
  const std::string key = "attention.layer_norm_rms_epsilon";
  const std::string none =
      replaced_text(small_gguf("qwen2").bytes(), key, "attention.layer_norm_rms_epsiloo");
  EXPECT_TRUE(names(error_of([&] { config_of(none); }), "qwen2." + key));
  EXPECT_TRUE(names(line("phi2", [](Builder&) {}), "phi2.attention.layer_norm_epsilon"));
}

// StableLM's converter writes the key even for config.json files without it.
TEST_F(GgufKeys, ASecondNormMeansNoParallelBlocks) {
  Builder b = small_gguf("stablelm");
  b.set("stablelm.attention.layer_norm_epsilon", 1e-5F).set("stablelm.use_parallel_residual", true);
  EXPECT_TRUE(config(b).layers[0].parallel);
  b.floats("blk.0.ffn_norm.weight", {32});
  EXPECT_FALSE(config(b).layers[0].parallel);
}

TEST_F(GgufKeys, XieluHasANumberPerLayerOrOneForAll) {
  const auto of_layer_1 = [&](auto numbers) {
    put("m.gguf", small_gguf("apertus").set("xielu.alpha_p", numbers).bytes());
    const ModelFiles files = open_files(dir_ / "m.gguf");
    float value = 0;
    read_floats(files.tensors->get("model.layers.1.mlp.act_fn.alpha_p", {1}).rows(), 0,
                {&value, DType::kF32, 1, 1});
    return value;
  };
  EXPECT_EQ(of_layer_1(std::vector<float>{2.0F, -0.5F}), -0.5F);
  EXPECT_EQ(of_layer_1(2.0F), 2.0F);
  EXPECT_TRUE(names(error_of([&] { of_layer_1(std::vector<float>(3)); }), "xielu.alpha_p"));
}

// llama.cpp: 0 removes the ramp and the temperature, a negative weight means 1.
TEST_F(GgufKeys, YarnWithoutItsRampIsLinear) {
  const auto scaling = [&](float weight) {
    Builder b = small_gguf("llama");
    b.set("llama.rope.scaling.type", "yarn").set("llama.rope.scaling.factor", 4.0F);
    b.set("llama.rope.scaling.original_context_length", 64U);
    return config_of(b.set("llama.rope.scaling.yarn_ext_factor", weight).bytes()).rope().type;
  };
  EXPECT_EQ(scaling(0.0F), RopeType::kLinear);
  for (const float weight : {1.0F, -1.0F}) EXPECT_EQ(scaling(weight), RopeType::kYarn);
}

TEST_F(GgufKeys, UnknownKeysAreWarnedAbout) {
  EXPECT_TRUE(names(line("llama", [](Builder& b) { b.set("llama.never_heard_of", 8.0F); }),
                    "warning | " + (dir_ / "m.gguf").string() + " | llama.never_heard_of"));
  EXPECT_TRUE(names(line("llama",
                         [](Builder& b) {
                           b.set("llama.rope.dimension_sections", std::vector<int32_t>{1, 2});
                         }),
                    "llama.rope.dimension_sections"));
  EXPECT_EQ(line("llama",
                 [](Builder& b) {
                   b.set("llama.vocab_size", 64U).set("llama.attention.causal", true);
                   b.set("llama.never_heard_of", 0.0F).set("llama.rope.scaling.finetuned", true);
                   b.set("llama.rope.scaling.attn_factor", 1.0F).set("general.name", "other");
                   b.set("llama.rope.scaling.yarn_beta_fast", 32.0F).set("qwen2.odd", 1U);
                   b.set("llama.rope.freq_base_swa", 10000.0F).set("llama.pooling_type", 3U);
                 }),
            "");
  const std::string vocabulary = replaced_text(golden_gguf("llama3-mini"), "add_sep_token", "add_any_thing");
  const size_t value = vocabulary.find("add_any_thing") + 13 + 4;
  EXPECT_EQ(tokenizer(vocabulary).warnings(), Texts());  // false
  const Texts warnings =
      tokenizer(vocabulary.substr(0, value) + '\1' + vocabulary.substr(value + 1)).warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(names(warnings[0], "m.gguf | tokenizer.ggml.add_any_thing"));
}

TEST_F(GgufKeys, EveryKnownEndOfGenerationEnds) {
  const Texts ends = {"<|eot_id|>",      "<|im_end|>",  "<end_of_turn>", "<|endoftext|>",
                      "<|end_of_text|>", "<|eom_id|>",  "<EOT>",         "_<EOT>",
                      "[EOT]",           "[EOS]",       "<|end|>",       "<end_of_utterance>",
                      "<|return|>",      "<|fim_pad|>", "<|file_sep|>"};
  Texts tokens = {"a", "<|im_start|>"};
  tokens.insert(tokens.end(), ends.begin(), ends.end());
  const auto with = [](const Texts& all) {
    return small_gguf("llama").set("tokenizer.ggml.tokens", all).set("tokenizer.ggml.eot_token_id", 3U);
  };
  Ids want;
  for (size_t i = 2; i < tokens.size(); ++i) want.push_back(static_cast<int32_t>(i));
  EXPECT_EQ(config(with(tokens)).eos_token_ids, want);
  // <|end|> ends only parts of a gpt-oss turn.
  EXPECT_EQ(config(with({"<|end|>", "<|return|>", "b", "<|call|>"})).eos_token_ids, (Ids{1, 3}));
}

TEST_F(GgufKeys, SamplersAreTheModelsDefaults) {
  Builder b = small_gguf("llama");
  b.set("general.sampling.temp", 0.6F)
      .set("general.sampling.top_k", 20U)
      .set("general.sampling.top_p", 0.95F);
  b.set("general.sampling.penalty_repeat", 1.5F).set("general.sampling.mirostat", 2U);
  const GenerationDefaults defaults = config(b).generation;
  EXPECT_EQ(defaults.temperature.value, 0.6F);
  EXPECT_EQ(defaults.top_k.value, 20);
  EXPECT_EQ(defaults.top_p.value, 0.95F);
  EXPECT_EQ(defaults.repetition_penalty.value, 1.5F);
  ASSERT_EQ(defaults.warnings.size(), 1U);
  EXPECT_TRUE(holds(defaults.warnings[0], "general.sampling.mirostat"));
  EXPECT_EQ(config(small_gguf("llama").set("general.sampling.temp", 0.0F)).generation.temperature.value,
            0.0F);
  const GenerationDefaults wrong =
      config(small_gguf("llama").set("general.sampling.penalty_repeat", -2.0F)).generation;
  EXPECT_TRUE(names(wrong.repetition_penalty.error, "general.sampling.penalty_repeat"));
}

// sp-mini.gguf with other tokens of a type from id 410 on.
Builder with_markers(const Texts& markers, int32_t type) {
  const std::string bytes = golden_gguf("sp-mini");
  const GgufFile file = parse_gguf(bytes);
  Texts tokens;
  for (const auto text : file.strings("tokenizer.ggml.tokens")) tokens.emplace_back(text);
  std::vector<int32_t> types;
  for (const int64_t each : file.integers("tokenizer.ggml.token_type"))
    types.push_back(static_cast<int32_t>(each));
  std::vector<float> scores;
  for (const double score : file.numbers("tokenizer.ggml.scores"))
    scores.push_back(static_cast<float>(score));
  for (size_t i = 0; i < markers.size(); ++i) tokens[410 + i] = markers[i], types[410 + i] = type;
  return small_gguf("llama")
      .set("tokenizer.ggml.model", "llama")
      .set("tokenizer.ggml.tokens", tokens)
      .set("tokenizer.ggml.token_type", types)
      .set("tokenizer.ggml.scores", scores);
}

TEST_F(GgufKeys, TextsAreCutAtMarkersOfEitherType) {
  for (const int32_t type : {3, 4}) {
    const Tokenizer t = tokenizer(with_markers({"<|im_start|>", "<|im_end|>", "  "}, type).bytes());
    EXPECT_EQ(t.encode("<|im_start|>user hi<|im_end|>", true),
              (Ids{1, 410, 273, 299, 281, 270, 273, 279, 282, 411}));
    EXPECT_EQ(t.is_special(410), type == 3);
    EXPECT_TRUE(t.is_special(411));  // an end token is a control token of any type
    EXPECT_EQ(t.encode("hi  <|im_end|>", false), (Ids{273, 279, 282, 412, 411}));
  }
  // The only control token of this type is the end of generation.
  EXPECT_EQ(tokenizer(with_markers({"<|im_start|>", "<|im_end|>"}, 1).bytes())
                .encode("<|im_end|>hi", false)
                .front(),
            411);
}

TEST_F(GgufKeys, Phi3MarkersStripTheFollowingSpace) {
  const std::string text = "<|user|>\nhello<|end|>\n<|assistant|>\n";
  const Ids stripped = {1, 410, 273, 260, 283, 283, 278, 411, 412};
  for (const auto& [name, strips] : std::map<const char*, bool>{
           {"Phi3", true}, {"Phi 3", false}, {"microsoft.Phi-3-mini", true}, {"phi-4", false}}) {
    const Tokenizer t = tokenizer(
        with_markers({"<|user|>", "<|end|>", "<|assistant|>"}, 3).set("general.name", name).bytes());
    const Ids ids = t.encode(text, true);
    EXPECT_EQ(ids == stripped, strips) << name;
    EXPECT_EQ(t.encode("<s>\n", false).size(), 3U);  // <s>, a space, the line break
  }
}

TEST_F(GgufKeys, AMissingPreTokenizerIsWarnedAbout) {
  const std::string golden = golden_gguf("llama3-mini");
  EXPECT_EQ(tokenizer(golden).encode("chunt c", true), (Ids{420, 66, 71, 351, 278}));
  // Another prefix does not belong to the tokenizer.
  const Tokenizer without = tokenizer(replaced_text(golden, "tokenizer.ggml.pre", "tokenization.gg.pr"));
  ASSERT_EQ(without.warnings().size(), 1U);
  EXPECT_TRUE(names(without.warnings()[0], "m.gguf | tokenizer.ggml.pre"));
}

TEST_F(GgufKeys, ErrorsNameTheFilesKeys) {
  const auto error = [&](const std::string& bytes) { return error_of([&] { tokenizer(bytes); }); };
  const auto with = [](const char* key, const auto& value) { return small_gguf("llama").set(key, value); };
  for (const char* type : {"adapter", "mmproj"})
    EXPECT_TRUE(names(error(with("general.type", type).bytes()), "m.gguf | general.type"));
  for (const char* model : {"bert", "t5", "rwkv", "none"}) {
    EXPECT_TRUE(names(error(with("tokenizer.ggml.model", model).bytes()),
                      fmt::format("m.gguf | tokenizer.ggml.model | {}", model)));
  }
  EXPECT_TRUE(holds(error(""), "m.gguf: "));
  EXPECT_FALSE(holds(error(""), "config.json"));
  EXPECT_TRUE(holds(error("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "Git LFS"));
  const Builder merges = with("tokenizer.ggml.model", "gpt2")
                             .set("tokenizer.ggml.tokens", Texts{"a", "b"})
                             .set("tokenizer.ggml.merges", Texts{"a b"});
  EXPECT_TRUE(names(error(merges.bytes()), "m.gguf | tokenizer.ggml.merges[0] | ab"));
  const Builder no_merges =
      with("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.tokens", Texts{"a", "b"});
  EXPECT_TRUE(names(error(no_merges.bytes()), "m.gguf | tokenizer.ggml.merges"));
  put("mmproj-m.gguf", with("general.type", "mmproj").bytes());
  EXPECT_TRUE(holds(error_of([&] { open_files(dir_); }), (dir_ / "m.gguf").string()));
}

TEST_F(GgufKeys, BooleansMayBeIntegers) {
  for (const char value : {'\0', '\1', '\2'}) {
    const std::string bytes =
        with_markers({}, 1).pair("tokenizer.ggml.add_bos_token", 0, std::string(1, value)).bytes();
    if (value == 2) {
      EXPECT_TRUE(names(error_of([&] { tokenizer(bytes); }), "tokenizer.ggml.add_bos_token"));
    } else {
      EXPECT_EQ(tokenizer(bytes).adds_bos(), value == 1);
    }
  }
}

}  // namespace
}  // namespace lariat::test
