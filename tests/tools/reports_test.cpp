// Inputs of public reports (tests/golden/cases): commands that destroyed a file, or did something else in
// silence.
#include "models/text/unicode.h"
#include "tests/tools/spoiled.h"

namespace lariat::test {
namespace {

const fs::path kCases = kGoldens / "cases";

class Reports : public FolderTest {
 protected:
  std::string chat_model(const std::string& name) const {
    link_files(kDemo, dir_ / "chat");
    put("chat/chat_template.jinja", slurp(kCases / "templates" / name));
    return " -m " + (dir_ / "chat").string() + " ";
  }
};

TEST_F(Reports, NoOutputReplacesAPartOfASplitModel) {
  fs::copy(kCases / "split-gguf", dir_ / "m");
  const std::string first = (dir_ / "m/m-00001-of-00002.gguf").string();
  const fs::path second = dir_ / "m/m-00002-of-00002.gguf", soft = dir_ / "soft.svg", hard = dir_ / "hard";
  const std::string content = slurp(second);
  fs::create_symlink(second, soft);
  fs::create_hard_link(second, hard);
  for (const std::string command :
       {"generate -p hi -n 1 --save-cache", "logits --tokens 1 --out", "logits --tokens 1 --out x --trace",
        "perplexity -f {0} --losses", "perplexity -f {0} --csv", "perplexity -f {0} --results",
        "passkey --report", "sweep --report", "sweep --report x.html --losses", "rope --svg",
        "chat --save-cache"}) {
    for (const fs::path& output : {second, soft, hard}) {
      const std::string typed = fmt::format(fmt::runtime(command), (kDemo / "heldout.txt").string());
      expect_error(run_lariat(fmt::format("{} {} -m {}", typed, output.string(), first)), 2,
                   output.string() + " | --model " + first);
    }
  }
  expect_error(run_lariat(fmt::format("sweep --report x.html --svg {} -m {}", dir_.string(), first)), 2,
               soft.string() + " | --model " + first);
  EXPECT_EQ(slurp(second), content);
}

TEST_F(Reports, NoOutputReplacesAContextOrAnotherModelsFile) {
  const std::string context = (dir_ / "context").string(), text = (kDemo / "heldout.txt").string();
  run_lariat(fmt::format("generate -p hi -n 1 --save-cache {} -m {}", context, kDemo.string()));
  const std::string content = slurp(context);
  expect_error(run_lariat(fmt::format("perplexity -f {0} --max-tokens 9 --load-cache {1} --csv {1} -m {2}",
                                      text, context, kDemo.string())),
               2, "--csv " + context + " | --load-cache " + context);
  EXPECT_EQ(slurp(context), content);
  put("other/qwen.tiktoken", "AA== 0\n");
  put("other/model.safetensors.index.json", R"({"weight_map": {"a": "layers/part.bin"}})");
  put("other/layers/part.bin", "x");
  for (const char* file : {"qwen.tiktoken", "layers/part.bin"}) {
    const std::string output = (dir_ / "other" / file).string();
    expect_error(run_lariat(fmt::format("generate -p hi --draft {}/other --save-cache {} -m {}",
                                        dir_.string(), output, kDemo.string())),
                 2, output + " | --draft");
  }
}

TEST_F(Reports, AnIndexNamesFilesInFolders) {
  const auto logits = [&](const fs::path& model) {
    const fs::path out = dir_ / "logits";
    EXPECT_EQ(run_lariat(fmt::format("logits --device cpu --tokens 1,5,9,30 --out {} -m {}", out.string(),
                                     model.string()))
                  .code,
              0);
    return slurp(out);
  };
  fs::copy(kCases / "index-folders", dir_ / "flat", fs::copy_options::recursive);
  std::string index = slurp(dir_ / "flat/model.safetensors.index.json");
  for (const std::string layer : {"model.layers.0", "model.layers.1"}) {
    fs::rename(dir_ / "flat" / layer / "layer.safetensors", dir_ / "flat" / (layer + ".safetensors"));
    index = replace_all(index, layer + "/layer.safetensors", layer + ".safetensors");
  }
  put("flat/model.safetensors.index.json", index);
  EXPECT_EQ(logits(kCases / "index-folders"), logits(dir_ / "flat"));
}

TEST_F(Reports, MissingWeightsAreNamed) {
  const auto error = [](const fs::path& model) {
    return run_lariat("logits --tokens 1 --out x -m " + model.string());
  };
  expect_error(error(kCases / "no-index"), 1, "model-00001-of-00002.safetensors | index");
  put("mistral/config.json", slurp(kCases / "no-index/config.json"));
  put("mistral/consolidated.safetensors", "x");
  expect_error(error(dir_ / "mistral"), 1, "consolidated.safetensors");
  put("linked/config.json", slurp(kCases / "no-index/config.json"));
  fs::create_symlink("../../blobs/0a1b2c", dir_ / "linked/model.safetensors");
  expect_error(error(dir_ / "linked"), 1, "linked/model.safetensors | ../../blobs/0a1b2c");
  fs::remove(dir_ / "linked/model.safetensors");
  put("linked/model.safetensors", "../../blobs/0a1b2c");  // a link that was copied as text
  expect_error(error(dir_ / "linked"), 1, "linked/model.safetensors | blob");
  expect_error(error(kCases / "vocab.gguf"), 1, "vocab.gguf | without weights");
  put("old.bin", std::string("tjgg\1\0\0\0", 8));
  expect_error(error(dir_ / "old.bin"), 1, "old.bin | GGML");
}

TEST_F(Reports, ASystemMessagePrecedesMessages) {
  put("lines", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n{\"prompt\": \"hi\"}\n");
  put("own", "{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}]}\n");
  const std::string command =
      "generate --chat --system 'Answer like a pirate.' -n 1" + chat_model("chat.jinja") + "--prompts ";
  const std::string out = run_lariat(command + (dir_ / "lines").string()).out;
  const size_t second = out.find('\n') + 1;
  EXPECT_EQ(Json::parse(out.substr(0, second))["prompt_tokens"], 23);
  EXPECT_EQ(Json::parse(out.substr(second))["prompt_tokens"], 23);
  const Outcome refused = run_lariat(command + (dir_ / "own").string());
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(names(refused.err, "messages | --system"));
}

TEST_F(Reports, TemplateVariablesAreReadAsPythonsToo) {
  put("messages", R"([{"role": "user", "content": "hi"}])");
  const std::string model = chat_model("thinking.jinja");
  const auto render = [&](const std::string& variable) {
    return run_lariat("tokenize --json" + model + "--messages " + (dir_ / "messages").string() +
                      " --template-var " + variable);
  };
  const std::string off = render("enable_thinking=false").out;
  EXPECT_TRUE(names(off, R"(<think>\n\n</think>\n\n")"));
  for (const char* value : {"False", "FALSE", "None"})
    EXPECT_EQ(render(std::string("enable_thinking=") + value).out == off, *value == 'F') << value;
  EXPECT_EQ(render("enable_thinking=True").out, render("enable_thinking=true").out);
  EXPECT_TRUE(
      names(render("enable_thinkin=false").err,
            "lariat: warning: | chat_template.jinja | --template-var enable_thinkin | enable_thinking"));
  expect_error(render("\"x=['a']\""), 2, "--template-var | ['a']");
}

TEST_F(Reports, OptionsWithoutEffectAreNamed) {
  const std::string generate = "generate -p Once -n 1 --device cpu -m " + kDemo.string();
  for (const auto& [option, warned] : {std::pair("--activations 8", "--activations"),
                                       {"--split heads", "--split"},
                                       {"--draft {} --lookup 0", "--draft | --lookup 0"},
                                       {"--draft {}", "--draft"}}) {
    const Outcome outcome = run_lariat(generate + " " + fmt::format(fmt::runtime(option), kDemo.string()));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(names(outcome.err, std::string("lariat: warning: ") + "| " + warned)) << outcome.err;
  }
  EXPECT_EQ(run_lariat(generate + " --quantize q8 --activations 16").err, "");
  const std::string quantized = (kGoldens / "forms/gptq").string();
  EXPECT_TRUE(names(
      run_lariat("logits --tokens 1 --quantize q8 --out " + (dir_ / "x").string() + " -m " + quantized).err,
      "lariat: warning: | forms/gptq | --quantize"));
}

// Open MPI's variables without its mpirun: an error with MPI in the build and without.
TEST_F(Reports, SeveralProcessesNeedMpi) {
  const std::string launched = "env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 " + lariat_program();
  const std::string err = (dir_ / "err").string();
  const int status =
      std::system((launched + " generate -p x -m " + kDemo.string() + " >/dev/null 2>" + err).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(names(slurp(err), "lariat: error: | mpirun | 2 processes | MPI"));
}

}  // namespace
}  // namespace lariat::test
