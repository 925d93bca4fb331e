#include "tools/measuring.h"

#include <algorithm>
#include <cstdio>

namespace lariat {
namespace {

// Columns on a terminal: bytes that begin a character.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::optional<int32_t> text_bos(const Tokenizer& tokenizer) {
  return tokenizer.adds_bos() ? tokenizer.bos_id() : std::nullopt;
}

TextCodec prompt_codec(const Tokenizer& tokenizer) {
  return {[tokenizer](std::string_view text) { return tokenizer.encode(text, tokenizer.adds_bos()); },
          [tokenizer](std::span<const int32_t> ids) { return tokenizer.decode(ids); }};
}

std::string Eta::left(double done) const {
  const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (done <= 0.0 || spent < 1.0) return "";
  const auto seconds = static_cast<int64_t>(spent * (1.0 - done) / done);
  char text[48];
  if (seconds >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld left", static_cast<long long>(seconds / 3600),
                  static_cast<long long>(seconds / 60 % 60), static_cast<long long>(seconds % 60));
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld left", static_cast<long long>(seconds / 60),
                  static_cast<long long>(seconds % 60));
  }
  return text;
}

std::string aligned_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width(row[i]), ' ');
      line += (i == 0 ? row[i] + space : "  " + space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string heat_block(const RetrievalValue& value) {
  static constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};
  const double share = value.share();
  const int shade = share >= 1 ? 4 : share <= 0 ? 0 : 1 + static_cast<int>(share * 3);
  const char* block = kShades[shade];
  return std::string(block) + block + " " + std::to_string(value.correct) + "/" +
         std::to_string(value.trials);
}

std::string heat_map(const SweepTable& table, const std::string& scaling) {
  std::vector<std::vector<std::string>> rows = {{"depth"}};
  for (const int64_t length : table.lengths) rows[0].push_back(std::to_string(length));
  for (const double depth : table.depths) {
    rows.push_back({fixed(100 * depth, 0) + " %"});
    for (const int64_t length : table.lengths) {
      const auto value = table.passkey_at(scaling, length, depth);
      rows.back().push_back(value ? heat_block(*value) : "-");
    }
  }
  rows.push_back({"all"});
  for (const int64_t length : table.lengths) {
    const auto value = table.passkey_at(scaling, length);
    rows.back().push_back(value ? fixed(100 * value->share(), 0) + " %" : "-");
  }
  return aligned_table(rows);
}

}  // namespace lariat
