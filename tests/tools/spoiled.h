#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/tools/program.h"

namespace lariat::test {

namespace fs = std::filesystem;

inline const fs::path kGoldens = source_dir() / "tests" / "golden";
inline const std::string kLogits = "logits --device cpu -m {0} --tokens 1,2,3 --out {0}/out";
inline const std::string kTokenize = "tokenize -m {0} --text x";

// A valid checkpoint and tokenizer, for a test to damage.
struct Spoiled : TempFolder {
  Spoiled() {
    copy("checkpoints/llama_gqa", {"config.json", "model.safetensors"});
    copy("tokenizers/byte-mini", {"tokenizer.json"});
  }

  void copy(const std::string& from, const std::vector<std::string>& names) const {
    for (const std::string& name : names) put(name, slurp(kGoldens / from / name));
  }
  void remove(const char* name) const { fs::remove_all(dir / name); }
  Json read(const char* name) const { return Json::parse(slurp(dir / name)); }
  void change(const char* name, const std::string& pointer, const Json& value) const {
    Json all = read(name);
    all[Json::json_pointer(pointer)] = value;
    put(name, all.dump());
  }
  std::pair<Json, std::string> weights() const {
    const std::string bytes = slurp(dir / "model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    return {Json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
  }
  void put_weights(const std::string& header, const std::string& data) const {
    const uint64_t length = header.size();
    put("model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
  }
  // Splits texts into matches.
  void split_by(const char* pattern) const {
    const Json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    change("tokenizer.json", "/pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {split, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}});
  }
  // Extends a file sparsely; false if the file system cannot.
  bool stretch(const char* name, uint64_t bytes) const {
    return ::truncate((dir / name).c_str(), static_cast<off_t>(bytes)) == 0;
  }
  Outcome run(const std::string& command) const {
    return run_lariat(fmt::format(fmt::runtime(command), dir.string()));
  }
  Outcome tokenize(const std::string& text) const {
    put("text", text);
    return run("tokenize -m {0} --file {0}/text");
  }

  const fs::path& dir = path;
};

}  // namespace lariat::test
