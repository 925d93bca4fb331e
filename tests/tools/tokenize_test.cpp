#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

class TokenizeMessages : public FolderTest {
 protected:
  TokenizeMessages() {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(kSource / "tests" / "golden" / "tokenizers" / "llama3-mini" / name, dir_ / name);
    config_ = nlohmann::json::parse(slurp(dir_ / "tokenizer_config.json"));
    put("messages.json",
        R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Ünï {x}"}])");
  }
  std::string command(const std::string& options) const {
    return "tokenize --model " + dir_.string() + " " + options;
  }
  std::string messages(const std::string& options) const {
    return command("--messages " + (dir_ / "messages.json").string() + " " + options);
  }
  nlohmann::json config_;
};

TEST_F(TokenizeMessages, PrintsTheTextAndItsIds) {
  put("chat_template.jinja",
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}\n");
  const std::string bos = config_.at("bos_token").is_string()
                              ? config_.at("bos_token").get<std::string>()
                              : config_.at("bos_token").at("content").get<std::string>();
  const std::string text = bos + "[system] Be brief.\n[user] Ünï {x}\n";

  const Json json = json_of(run_lariat(messages("--json")));
  EXPECT_EQ(json.size(), 2U);
  EXPECT_EQ(json.at("text"), text + "[assistant]");

  EXPECT_EQ(json_of(run_lariat(messages("--json --no-generation-prompt"))).at("text"), text);

  // The template's BOS is the only one, encoded as a token.
  put("text", text + "[assistant]");
  const Json plain = json_of(run_lariat(command("--no-bos --json --file " + (dir_ / "text").string())));
  EXPECT_EQ(plain.at("tokens"), json.at("tokens"));
  const Json ids = json_of(run_lariat(command("--no-bos --json --text '" + bos + "'"))).at("tokens");
  ASSERT_EQ(ids.size(), 1U);
  EXPECT_EQ(json.at("tokens").at(0), ids.at(0));
  EXPECT_NE(json.at("tokens").at(1), ids.at(0));

  const Outcome lines = run_lariat(messages(""));
  const std::string list = json.at("tokens").dump();
  EXPECT_EQ(lines.out, text + "[assistant]\n" + list.substr(1, list.size() - 2) + "\n");
}

TEST_F(TokenizeMessages, VariablesAreJsonOrText) {
  put("chat_template.jinja",
      "{% for x in [a, b, c, d, e] %}{{ x | tojson }} {% endfor %}{{ f is defined }}{{ bos_token }}");
  const Json json = json_of(run_lariat(messages(
      "--json --template-var a=true --template-var b=2.5 --template-var 'c=\"2\"' --template-var d=a=b,c "
      "--template-var 'e=[1, {\"k\": null}]' --template-var e=x --template-var 'e=[1, {\"k\": null}]'")));
  EXPECT_EQ(json.at("text"), "true 2.5 \"2\" \"a=b,c\" [1, {\"k\": null}] False<|begin_of_text|>");
}

// A post-processor appends EOS; each run reports it once.
TEST_F(TokenizeMessages, AnEosAfterAPromptIsDroppedAndReported) {
  nlohmann::json tokenizer = nlohmann::json::parse(slurp(dir_ / "tokenizer.json"));
  nlohmann::json& post = tokenizer.at("/post_processor/processors/1"_json_pointer);
  const nlohmann::json eos = {{"id", "<|end_of_text|>"}, {"ids", {421}}, {"tokens", {"<|end_of_text|>"}}};
  post["special_tokens"]["<|end_of_text|>"] = eos;
  const Outcome before = run_lariat(command("--text boats"));
  post["single"].push_back({{"SpecialToken", {{"id", "<|end_of_text|>"}, {"type_id", 0}}}});
  put("tokenizer.json", tokenizer.dump());
  const Outcome after = run_lariat(command("--text boats"));
  EXPECT_EQ(before.err, "");
  EXPECT_EQ(after.code, 0);
  EXPECT_EQ(after.out, before.out);
  EXPECT_TRUE(names(after.err, "lariat: warning: " + (dir_ / "tokenizer.json").string() +
                                   " | post_processor | <|end_of_text|>"));
  EXPECT_EQ(std::count(after.err.begin(), after.err.end(), '\n'), 1) << after.err;
  const Outcome messages_too = run_lariat(command("--file " + (dir_ / "messages.json").string()));
  EXPECT_EQ(messages_too.err, after.err);
}

// A post-processor prepends two tokens.
TEST(Tokenize, SeveralTokensStartAText) {
  const TempFolder folder;
  link_files(kDemo, folder.path / "model");
  const fs::path tokenizer = kSource / "tests/golden/tokenizers/llama3-mini";
  Json json = Json::parse(slurp(tokenizer / "tokenizer.json"));
  Json& post = json["post_processor"]["processors"][1];
  const Json second = {{"SpecialToken", {{"id", "<|eot_id|>"}, {"type_id", 0}}}};
  post["single"].insert(post["single"].begin() + 1, second);
  post["special_tokens"]["<|eot_id|>"] = {{"id", "<|eot_id|>"}, {"ids", {424}}, {"tokens", {"<|eot_id|>"}}};
  folder.put("model/tokenizer.json", json.dump());
  folder.put("model/tokenizer_config.json", slurp(tokenizer / "tokenizer_config.json"));
  folder.put("text", "Hello, hello, hello, hello");
  folder.put("line", R"({"prompt": "", "continuation": "Hello, hello"})");
  const std::string model = " -m " + (folder.path / "model").string() + " ",
                    exact = model + "--dtype f32 --kv-dtype f32 --quiet -f " + folder.path.string() + "/";
  const Json ids = json_of(run_lariat("tokenize --json --text Hello" + model)).at("tokens");
  EXPECT_EQ(ids[0], 420);
  EXPECT_EQ(ids[1], 424);
  const std::string file = (folder.path / "losses.jsonl").string();
  const Json scored = json_of(run_lariat("score" + exact + "line"));
  for (const char* method : {"sliding", "growing"}) {
    EXPECT_EQ(run_lariat("perplexity -c 8 --losses " + file + " --method " + method + exact + "text").code,
              0);
    const std::string log = slurp(file);
    const Json losses = Json::parse(log.substr(0, log.find('\n'))).at("losses");
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(losses[i].get<double>(), -scored.at("logprobs")[i].get<double>(), 2e-5) << method << i;
  }
  // A prompt with these tokens keeps them once; text after a context gets none.
  const std::string twice = "<|begin_of_text|><|eot_id|>Hello", context = (folder.path / "context").string();
  const auto prompt_tokens = [&](const std::string& options) {
    return json_of(run_lariat("generate -n 0 --json --quiet" + model + options)).at("prompt_tokens");
  };
  EXPECT_EQ(prompt_tokens("-p '" + twice + "' --save-cache " + context), ids.size());
  EXPECT_EQ(prompt_tokens("-p '" + twice + "' --load-cache " + context), ids.size() - 2);
  EXPECT_EQ(json_of(run_lariat("generate -n 0 --json --quiet -p x --join rotate --load-cache " + context +
                               "," + context + model))
                .at("cached_tokens"),
            2 * ids.size() - 2);
}

}  // namespace
}  // namespace lariat::test
