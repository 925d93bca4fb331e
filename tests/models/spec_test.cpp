// Golden checkpoints and changed configs vs specs.txt and refused.txt. tests/engine/golden_test.cpp compares
// results.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>
#include <sstream>

#include "models/io/json_fields.h"
#include "models/spec/rope_config.h"
#include "tests/models/config_cases.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

// Heads of 4 pairs, a context of 8192.
RopeScaling rope_of(const json& config) {
  RopeDefaults defaults;
  defaults.head_dim = 8;
  defaults.max_position_embeddings = 8192;
  return read_rope(JsonFields(config, "config.json"), defaults);
}

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

// Keeps fields that differ from `base`. A second RoPE or layer kind unknown to `base` is compared with the
// first.
std::string changes(const std::string& text, const std::string& base) {
  const auto base_lines = split_at(base, '\n');
  std::string all;
  for (const std::string& line : split_at(text, '\n')) {
    const std::string section = line.substr(0, line.find(':') + 1);
    const auto same = [&](const std::string& name) {
      return std::ranges::find_if(base_lines, [&](const auto& other) { return other.starts_with(name); });
    };
    auto other = same(section);
    const bool new_section = other == base_lines.end();
    if (new_section) other = same(section.substr(0, section.find(' ')));
    const auto fields = other == base_lines.end() ? std::vector<std::string>() : split_at(*other, ' ');
    std::string changed;
    for (const std::string& field : split_at(line.substr(section.size()), ' ')) {
      if (!field.empty() && std::ranges::count(fields, field) == 0) changed += " " + field;
    }
    if (new_section || !changed.empty()) all += "  " + section + changed + "\n";
  }
  return all;
}

// File, key and value named by a warning or error, and later numbers, keys and class names.
std::string essence(const std::string& line, const std::string& file) {
  EXPECT_TRUE(line.starts_with(file + ": ")) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  const size_t end = std::min(line.find("; "), line.size());
  std::string named = line.substr(file.size() + 2, end - file.size() - 2);
  static const std::regex word("[\\w.+]*(?:[0-9_]|[a-z][A-Z])[\\w+]*");
  for (auto it = std::sregex_iterator(line.begin() + static_cast<std::ptrdiff_t>(end), line.end(), word);
       it != std::sregex_iterator(); ++it)
    named += " " + it->str();
  return named + "\n";
}

std::string warned(const std::vector<std::string>& warnings, const std::string& file) {
  std::string all;
  for (const std::string& line : warnings) all += "  warned: " + essence(line, file);
  return all;
}

// Rows: "model BASE [CHANGES]", "rope CONFIG" or "file CONFIG".
std::string outcome_of(const std::string& row) {
  const auto word = [&](size_t from) { return row.substr(from, row.find(' ', from) - from); };
  const std::string kind = word(0), base = kind == "model" ? word(6) : "";
  const size_t at = kind.size() + 1 + (base.empty() ? 0 : base.size() + 1);
  const json config = at < row.size() ? json::parse(row.substr(at)) : json::object();
  std::string file = "config.json";
  try {
    if (kind == "rope") return changes(described(rope_of(config)), described(rope_of(json::object())));
    if (kind == "file") {
      const TempFolder folder;
      file = (folder.path / file).string();
      folder.put("config.json", config.dump());
      const ConfigRope read = load_rope(folder.path);
      return changes(described(read.rope), described(rope_of(json::object()))) + warned(read.warnings, file);
    }
    const ModelSpec spec = parse_config(changed(config_of(base), config).dump(), file);
    ModelSpec other;
    other.layers.resize(1);
    if (!config.empty()) other = answer(config_of(base)).spec.value_or(other);
    return changes(described(spec), described(other)) + warned(spec.warnings, file);
  } catch (const Error& e) {
    return "  refused: " + essence(e.what(), file);
  }
}

// LARIAT_UPDATE rewrites the files.
TEST(Specs, EqualTheFiles) {
  std::set<std::string> rows;
  for (const char* name : {"specs.txt", "refused.txt"}) {
    const auto file = source_dir() / "tests" / "models" / name;
    const std::string text = slurp(file);
    std::string found;
    for (const std::string& line : split_at(text, '\n')) {
      if (line.starts_with("  ")) continue;
      found += line + "\n";
      if (line.empty() || line[0] == '#') continue;
      EXPECT_TRUE(rows.insert(line).second) << "twice: " << line;
      found += outcome_of(line);
    }
    if (std::getenv("LARIAT_UPDATE") != nullptr) std::ofstream(file) << found;
    EXPECT_EQ(found, text) << name;
  }
  for (const auto& entry : std::filesystem::directory_iterator(golden_file("checkpoints")))
    EXPECT_TRUE(rows.contains("model " + entry.path().filename().string())) << entry.path();
}

// NTK alpha by length, and the base (get_ntk_alpha of modeling_qwen.py).
TEST(Specs, Qwen1ScalesOncePerOctave) {
  constexpr struct {
    int64_t trained, length;
    double alpha, base;
  } kRows[] = {{2048, 1, 1, 10000},         {2048, 2048, 1, 10000},    {2048, 2049, 3, 30527.74},
               {2048, 4096, 3, 30527.74},   {2048, 8192, 7, 72195.86}, {2048, 8193, 15, 156588.32},
               {2048, 20000, 31, 327366.4}, {8192, 2049, 1, 10000},    {8192, 8192, 1, 10000},
               {8192, 8193, 3, 30527.74},   {8192, 20000, 7, 72195.86}};
  for (const auto& row : kRows) {
    const json change{{"seq_length", row.trained}, {"kv_channels", 128}};
    const RopeScaling rope = answer(changed(config_of("qwen"), change)).spec->rope();
    const double seen = rope_step_length(rope, row.length, 4);
    EXPECT_NEAR(rope_scale(rope, seen), row.alpha, 1e-12) << row.length;
    EXPECT_NEAR(std::pow(rope_frequencies(rope, seen).inv_freq[1], -64.0), row.base, 0.01) << row.length;
  }
}

// Exponents use int(18 * 0.44) = 7 dimensions, not the eight rotated ones. A YaRN factor below 1 (a warning
// in transformers) changes no scores.
TEST(Specs, FrequenciesOfOddValues) {
  const RopeScaling rope = answer(config_of("gpt_neox_odd")).spec->rope();
  EXPECT_EQ(rope_frequencies(rope, 1).inv_freq[3], std::pow(1e4, -6.0 / 7.0));
  EXPECT_EQ(rope_of_type(rope, RopeType::kLinear).rotary_dim, 8);
  const RopeScaling yarn = rope_of({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 0.5}}}});
  EXPECT_EQ(rope_frequencies(yarn, 1).attention_factor, 1.0);
}

TEST(Specs, EveryNumberIsBounded) {
  for (const std::string key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const char* bad : {"0", "-1", "1.5", "\"4\"", "true", "[]", "9223372036854775807",
                            "-9223372036854775808", "18446744073709551615", "1e300"})
      expect_line(answer(changed(config_of("LlamaForCausalLM"), {{key, json::parse(bad)}})).error,
                  "config.json", key);
  }
}

// Quantized checkpoints name their method at the top level.
TEST(Specs, TopLevelKeysOfMultimodalConfigs) {
  json quantised = config_of("llava");
  quantised["quantization_config"] = {{"quant_method", "aqlm"}};
  EXPECT_FALSE(answer(quantised).spec);
  json tied = config_of("llava");
  tied["tie_word_embeddings"] = "yes";
  expect_line(answer(tied).error, "config.json", "tie_word_embeddings | yes");
}

}  // namespace
}  // namespace lariat::test
