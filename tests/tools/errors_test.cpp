// What a user reads of a damaged or foreign checkpoint, and of wrong words: one clear line, and the exit
// code.
#include <limits>

#include "tests/tools/spoiled.h"

namespace lariat::test {
namespace {

TEST(Damaged, NotAtAll) { EXPECT_EQ(Spoiled().run(kLogits).code, 0); }

TEST(Damaged, Download) {
  const auto header = [](auto change) {
    return [change](const Spoiled& model) { model.change_header(change); };
  };
  expect_refusals({
      {"too short", kLogits, replaced("model.safetensors", "abc")},
      {"the header claims 1152921504606846976 bytes", kLogits,
       [](const Spoiled& model) { model.put_weights("{}", "", uint64_t{1} << 60); }},
      {"not valid JSON", kLogits, [](const Spoiled& model) { model.put_weights("!\"a\": 1}", ""); }},
      {"'model.layers.0.mlp.up_proj.weight' is missing", kLogits,
       header([](Json& tensors) { tensors.erase("model.layers.0.mlp.up_proj.weight"); })},
      {"mlp.gate_proj.weight' has shape", kLogits,
       [](const Spoiled& model) {
         const int64_t size = model.read("config.json")["intermediate_size"];
         model.change("config.json", "/intermediate_size", size + 2);
       }},
      {"overflows", kLogits, header([](Json& tensors) {
         tensors["model.norm.weight"]["shape"] = {uint64_t{1} << 40, uint64_t{1} << 40};
       })},
      {"'model.norm.weight' is I32", kLogits,
       header([](Json& tensors) { tensors["model.norm.weight"]["dtype"] = "I32"; })},
      {"config.json: not valid JSON", kLogits, replaced("config.json", "{\"architectures\": [")},
      {"config.json: no such file", kLogits, removed("config.json")},
      {"neither model.safetensors nor model.safetensors.index.json", kLogits, removed("model.safetensors")},
      {"model-00001.safetensors: cannot be opened", kLogits,
       sharded(R"({"weight_map": {"model.norm.weight": "model-00001.safetensors"}})")},
      {"not a plain file name", kLogits,
       sharded(R"({"weight_map": {"model.norm.weight": "../other.safetensors"}})")},
      // A tokenizer with more ids than the model has embeddings for.
      {"is outside the model's vocabulary of 61", "generate -m {0} --prompt 'the zebra'",
       [](const Spoiled& model) {
         model.copy("tokenizers/llama3-mini", {"tokenizer.json", "tokenizer_config.json"});
       }},
  });
}

TEST(Damaged, WordsThatDoNotFit) {
  const std::string logits = "logits -m {0} --out {0}/out ";
  expect_refusals({
      {"token id 61 (at index 2) is outside the model's vocabulary of 61", logits + "--tokens 1,2,61", {}},
      {"'two' is not a token id", logits + "--tokens 1,two", {}},
      {"'99999999999' is not a token id", logits + "--tokens 1,99999999999", {}},
      {"the sequence would have 4 tokens and the context allows 3; shorten the prompt or raise --ctx",
       logits + "--tokens 1,2,3,4 --ctx 3",
       {}},
      {"the prompt file is empty", "generate -m {0} --prompt-file {0}/empty", replaced("empty", "")},
      {"/no/such/file: no such file", "generate -m {0} --prompt-file /no/such/file", {}},
      {"/no/such/folder/x", "logits -m {0} --tokens 1 --out /no/such/folder/x", {}},
  });
}

TEST(Damaged, WrongUsageIsOfAnotherCode) {
  expect_error(run_lariat("''"), 2, "");
  expect_error(run_lariat("logits --model x --tokens 1 --out y --dtype f64"), 2, "--dtype");
  expect_error(run_lariat("bench"), 2, "--random-weights");
}

TEST(Damaged, WhatIsNoCheckpoint) {
  const auto snapshot = [](const Spoiled& model) {
    model.empty();
    model.put("snapshots/0000/config.json", "{}");
  };
  const auto gguf = [](const Spoiled& model) {
    model.empty();
    model.put("m.gguf", std::string("GGUF\3\0\0\0", 8));
  };
  const auto adapter = [](const Spoiled& model) {
    model.put("adapter_config.json", R"({"base_model_name_or_path": "some/base"})");
    model.put("adapter_model.safetensors", "");
  };
  const auto pickled = [](const Spoiled& model) {
    fs::rename(model.dir / "model.safetensors", model.dir / "pytorch_model.bin");
  };
  std::vector<Damage> table = {
      {"m.gguf: it ends inside its header; the file is damaged", "generate -m {0}/m.gguf --prompt x", gguf},
      {"config.json: \"quantization.mode\" is \"nvfp4\"; affine and mxfp4 are read", kLogits,
       changed("config.json", "/quantization", {{"group_size", 16}, {"bits", 4}, {"mode", "nvfp4"}})},
  };
  for (const std::string& command : {kLogits, kGenerate}) {
    table.insert(
        table.end(),
        {{"a folder with a GGUF file; use --model {0}/m.gguf", command, gguf},
         {"pytorch_model.bin: pickled weights, which lariat does not open; convert them, in Python: from "
          "transformers import AutoModelForCausalLM; "
          "AutoModelForCausalLM.from_pretrained('{0}').save_pretrained("
          "'CONVERTED')",
          command, pickled},
         {"adapter_config.json: a LoRA adapter of some/base; merge it first, in Python: from peft import",
          command, adapter},
         {"the folder above a snapshot; use --model {0}/snapshots/0000", command, snapshot}});
  }
  for (const char* method : {"hqq", "aqlm", "quark"}) {
    table.push_back(
        {fmt::format("a checkpoint quantised by {}, which lariat does not read; use one by fp8,", method),
         kLogits, changed("config.json", "/quantization_config", {{"quant_method", method}})});
  }
  expect_refusals(table);
}

void expect_warning(const Outcome& outcome, const std::string& part) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.rfind("lariat: warning: ", 0), 0U) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, part));
}

TEST(Warnings, StandOnStderrOnceAndNotWithQuiet) {
  const Spoiled model;
  model.change("config.json", "/rope_interleaved", true);
  expect_warning(model.run(kLogits), "config.json: \"rope_interleaved\" is true; heeded");
  EXPECT_EQ(model.run(kLogits + " --quiet").err, "");
}

TEST(Warnings, BeyondTheTrainedContext) {
  const std::string generate = "generate --device cpu -m " LARIAT_SOURCE_DIR "/configs/demo -p 'The sea' ";
  const Outcome beyond = run_lariat(generate + "--max-new-tokens 600 --ignore-eos --json");
  expect_warning(beyond, "and the model is made for 512 without RoPE scaling; use --rope-scaling dynamic");
  EXPECT_TRUE(json_of(beyond).contains("tokens"));
  for (const char* more : {"600 --quiet", "600 --rope-scaling dynamic",
                           "600 --rope-scaling yarn --rope-factor 2", "20", "600 --ctx 100"})
    EXPECT_EQ(run_lariat(generate + "--max-new-tokens " + more).err, "") << more;
}

TEST(Warnings, OfTheRopeOfAFamilyThatDoesNotRun) {
  const Spoiled model;
  model.put("config.json", R"({"architectures": ["Dots1ForCausalLM"], "head_dim": 64, "rope_theta": 150000,
    "max_position_embeddings": 131072, "num_local_experts": 32, "quantization_config": {"quant_method": "hqq"}})");
  const Outcome outcome = model.run("rope --json --model {0}");
  expect_warning(outcome,
                 "config.json: \"architectures\" is [\"Dots1ForCausalLM\"]; unknown to lariat; this is the "
                 "RoPE that a Llama with these keys would have");
  EXPECT_EQ(json_of(outcome)["theta"], 150000);
  expect_error(model.run(kLogits), 1, "no such architecture runs; docs/models.md");
}

TEST(Warnings, OfWeightsThatAreNotFinite) {
  const Spoiled model;
  auto [header, data] = model.weights();
  const size_t at = header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0];
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1.0F,
                       -std::numeric_limits<float>::infinity()};
  std::memcpy(data.data() + at, bad, sizeof bad);
  model.put_weights(header.dump(), data);
  // The weights are used as they stand in the file.
  expect_warning(model.run(kLogits),
                 "model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight' holds 3 NaN or infinite");
  EXPECT_EQ(model.run(kLogits + " --quiet").err, "");
}

// A text comes to the letter z late, whose embedding is NaN: after the first logits, which are looked at.
class LateNan : public testing::Test {
 protected:
  LateNan() {
    Json vocab = {{"Ġ", 29}};
    for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = 3 + c - 'a';
    model_.change("tokenizer.json", "/added_tokens", Json::array());
    model_.change("tokenizer.json", "/model/vocab", vocab);
    model_.change("tokenizer.json", "/model/merges", Json::array());
    auto [header, data] = model_.weights();
    const size_t embedding = header["model.embed_tokens.weight"]["data_offsets"][0];
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(data.data() + embedding + size_t{28} * 32 * sizeof nan, &nan, sizeof nan);
    model_.put_weights(header.dump(), data);
    std::string text;
    for (int i = 0; i < 100; ++i) text += i == 60 ? "a zebra " : "the cat sat ";
    model_.put("text", text);
  }
  // The tensor is named once, on a line of its own, whatever more is said.
  void expect_named(const std::string& command, int code = 0) const {
    const Outcome outcome = model_.run(command + " --device cpu -m {0}");
    const std::string named =
        model_.dir.string() +
        "/model.safetensors: tensor 'model.embed_tokens.weight' holds 1 NaN or infinite value of 1952";
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, "lariat: warning: " + named)) << command;
    EXPECT_EQ(outcome.err.find(named, outcome.err.find(named) + 1), std::string::npos) << outcome.err;
    if (code == 0) {
      EXPECT_EQ(outcome.err.find("warning"), outcome.err.rfind("warning")) << outcome.err;
    }
  }
  const Spoiled model_;
};

TEST_F(LateNan, IsToldByWhateverReadsIt) {
  const std::string perplexity = "perplexity -f {0}/text ";
  for (const char* how : {"--ctx 64 --stride 64", "--ctx 64 --method chunks", "--ctx 1000 --method growing",
                          "--save-cache {0}/context", "--ctx 64 --against same --against-kv-dtype f32"})
    expect_named(perplexity + how);
  expect_named("sweep -f {0}/text --lengths 64 --scalings none,linear --no-passkey --report {0}/report.html");
  expect_named("passkey --lengths 600 --depths 1 --trials 1 --haystack {0}/text");
  expect_named("logits --tokens 3,4,28,5 --decode-from 1 --out {0}/out");
  expect_named("generate --load-cache {0}/context -n 3", 1);
}

TEST_F(LateNan, IsNullInJson) {
  const Json json = json_of(model_.run("perplexity -f {0}/text --ctx 64 --json --quiet -m {0}"));
  for (const char* key : {"nll", "ppl", "stderr"}) EXPECT_TRUE(json["results"][0][key].is_null()) << key;
}

// One that is right, as long as no z comes.
TEST_F(LateNan, OfOneOfTwoModels) {
  const Spoiled right;
  right.put("tokenizer.json", slurp(model_.dir / "tokenizer.json"));
  const std::string against = "perplexity -f {0}/text --ctx 64 --against " + right.dir.string();
  expect_named(against);
  model_.put("text", std::string(200, 'a'));
  EXPECT_EQ(model_.run(against + " -m {0}").err, "");
}

TEST_F(LateNan, OfASharedModel) {
  const fs::path model = shared_dir() / "cases" / "nan-later";
  LARIAT_NEEDS(model);
  const std::string expected = fmt::format(
      "lariat: warning: {0}/model.safetensors: tensor 'model.embed_tokens.weight' holds 16 NaN or infinite "
      "values of 4176; what follows is worth nothing\n",
      model.string());
  const std::string of_text = fmt::format(" -m {0} -f {0}/text.txt ", model.string());
  EXPECT_EQ(run_lariat("perplexity -c 64 --stride 64" + of_text).err, expected);
  EXPECT_TRUE(
      holds(run_lariat("sweep --lengths 64,128 --scalings none,yarn --no-passkey --no-speed --report " +
                       (model_.dir / "x.html").string() + of_text)
                .err,
            expected));
}

}  // namespace
}  // namespace lariat::test
