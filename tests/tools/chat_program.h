#pragma once
#include "tests/tools/terminal.h"

namespace lariat::test {

namespace fs = std::filesystem;

inline constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}{{ eos_token }}\n{% endfor "
    "%}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";

// The last message is the user's; BOS is missing.
inline std::string rendered(const std::vector<std::string>& messages, const std::string& end = "</s>") {
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i)
    text += (i % 2 == 0 ? "<|user|>\n" : "<|assistant|>\n") + messages[i] + end + "\n";
  return text + "<|assistant|>\n";
}

inline int messages_of(const std::string& context) {
  const size_t end = context.find(" message");
  return end == std::string::npos ? -1 : std::stoi(context.substr(context.find_last_of(" \n", end - 1) + 1));
}

class ChatProgram : public FolderTest {
 protected:
  ChatProgram() {
    link_files(kDemo, model_);
    put("model/chat_template.jinja", kTemplate);
  }
  // No token ends the text or a turn.
  void make_endless() const {
    put("model/chat_template.jinja",
        "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}");
    nlohmann::json config = nlohmann::json::parse(slurp(model_ / "config.json"));
    config["eos_token_id"] = 0;
    put("model/config.json", config.dump());
    put("model/generation_config.json", R"({"bos_token_id": 1, "eos_token_id": 0})");
  }
  static std::vector<std::string> words(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--device", "cpu", "--threads",  "1",
                                    "--dtype",  "f32", "--kv-dtype", "f32"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> chat(const std::vector<std::string>& more) const {
    std::vector<std::string> all = words(more);
    all.insert(all.begin(), {"chat", "-m", model_.string()});
    return all;
  }
  Outcome pipe(const std::string& input, const std::string& more) const {
    put("input", input);
    std::string line;
    for (const std::string& word : chat({})) line += word + " ";
    return run_lariat(line + more, dir_ / "input");
  }
  Outcome generate(const std::string& prompt, const std::string& more) const {
    put("prompt", prompt + "\n");  // the final line break is dropped
    std::string line =
        "generate -m " + model_.string() + " --quiet --prompt-file " + (dir_ / "prompt").string();
    for (const std::string& word : words({})) line += " " + word;
    return run_lariat(line + " " + more);
  }

  const fs::path model_ = dir_ / "model";
};

}  // namespace lariat::test
