#include "engine/eval/report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/eval/report_style.h"
#include "engine/eval/report_svg.h"

namespace lariat {
namespace {

std::string colour_rules() {
  std::string css;
  for (int i = 0; i < 10; ++i) {
    const std::string n = std::to_string(i), colour = "var(--c" + n + ")";
    css += ".c" + n + " .curve, .c" + n + " .error, .c" + n + " .leader { stroke: " + colour + "; }\n";
    css += ".c" + n + " .dot, svg .c" + n + " .series { fill: " + colour + "; }\n";
    css += ".swatch.c" + n + " { background: " + colour + "; }\n";
  }
  return css;
}

std::string row_head(const std::string& scaling) {
  return "<th scope=\"row\"><span class=\"swatch c" + std::to_string(colour_of(scaling)) + "\"></span>" +
         xml_escaped(scaling) + "</th>";
}

std::string head_of_lengths(const SweepTable& table, const std::string& first) {
  std::string html = "<tr><th scope=\"col\">" + first + "</th>";
  for (const int64_t length : table.lengths) html += "<th scope=\"col\">" + std::to_string(length) + "</th>";
  return html + "</tr>\n";
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The least width at which a map or table with a column for each length is still easy to read.
std::string fit(const SweepTable& table, int64_t first_column) {
  const int64_t width = first_column + 56 * static_cast<int64_t>(table.lengths.size());
  return " style=\"--fit:" + std::to_string(std::max<int64_t>(width, 270)) + "px\"";
}

std::string perplexity_table(const SweepTable& table) {
  std::string html =
      "<div class=\"scroll\"><table><thead>" + head_of_lengths(table, "perplexity at") + "</thead><tbody>\n";
  std::map<int64_t, std::vector<std::string>> winners;
  for (const int64_t length : table.lengths) winners[length] = best_by_perplexity(table, length);
  for (const auto& scaling : table.scalings) {
    html += "<tr>" + row_head(scaling);
    for (const int64_t length : table.lengths) {
      const auto value = table.perplexity_at(scaling, length);
      const bool best = contains(winners[length], scaling);
      html += best ? "<td class=\"best\">" : "<td>";
      html += value ? compact(value->ppl) + " <small>± " + compact(value->standard_error) + "</small></td>"
                    : "–</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string perplexity_section(const SweepTable& table) {
  if (table.perplexity.empty()) return "";
  return "<section><h2>Perplexity by context length</h2>\n<p>Lower is better: how many tokens the model "
         "hesitates "
         "between, on average, when it reads " +
         xml_escaped(table.text) + ".</p>\n<div class=\"wide\">" + perplexity_chart(table, 980, 420) +
         "</div>\n<div class=\"narrow\">" + perplexity_chart(table, 360, 340) + "</div>\n" +
         perplexity_table(table) + "</section>\n";
}

std::string passkey_section(const SweepTable& table) {
  if (table.passkey.empty()) return "";
  std::string html =
      "<section><h2>Passkeys found</h2>\n<p>A number is hidden in filler text and asked for at the end. "
      "Columns: "
      "the prompt's length; rows: where the number stands, from the beginning (0 %) to the end (100 %).</p>\n"
      "<div class=\"maps\"" +
      fit(table, 80) + ">\n";
  for (const auto& scaling : table.scalings) {
    int64_t trials = 0, correct = 0;
    for (const int64_t length : table.lengths) {
      const auto value = table.passkey_at(scaling, length);
      trials += value ? value->trials : 0;
      correct += value ? value->correct : 0;
    }
    html += "<figure><figcaption><span class=\"swatch c" + std::to_string(colour_of(scaling)) + "\"></span>" +
            xml_escaped(scaling) + " <span>" + std::to_string(correct) + " of " + std::to_string(trials) +
            "</span></figcaption>\n" + passkey_map(table, scaling) + "</figure>\n";
  }
  return html + "</div></section>\n";
}

std::string megabytes(double bytes) { return compact(bytes / (1 << 20)); }

std::string speed_section(const SweepTable& table) {
  if (table.speed.empty()) return "";
  const auto group = [&](const char* name, const auto& value_of) {
    std::string html =
        "<div class=\"scroll\"><table><thead>" + head_of_lengths(table, name) + "</thead><tbody>\n";
    for (const auto& scaling : table.scalings) {
      html += "<tr>" + row_head(scaling);
      for (const int64_t length : table.lengths) {
        const auto value = table.speed_at(scaling, length);
        html += "<td>" + (value ? value_of(*value) : std::string("–")) + "</td>";
      }
      html += "</tr>\n";
    }
    return html + "</tbody></table></div>\n";
  };
  const auto rate = [](double tok_s) {
    if (!std::isfinite(tok_s)) return std::string("–");
    return tok_s < 10000 ? compact(tok_s) : compact(tok_s / 1000) + "k";
  };
  return "<section class=\"speed\"><h2>Speed and memory</h2>\n<p>Tokens per second of a prompt of that "
         "length, and "
         "of the 32 tokens decoded after it, one sequence; memory of its KV cache.</p>\n<div "
         "class=\"tables\"" +
         fit(table, 125) + ">" +
         group("prompt, tokens/s", [&](const SpeedValue& v) { return rate(v.prefill_tok_s); }) +
         group("decode, tokens/s", [&](const SpeedValue& v) { return rate(v.decode_tok_s); }) +
         group("KV cache, MiB",
               [&](const SpeedValue& v) { return megabytes(static_cast<double>(v.cache_bytes)); }) +
         "</div></section>\n";
}

std::string conclusion_section(const SweepTable& table) {
  const auto sentences = conclusions(table);
  if (sentences.empty()) return "";
  std::string html = "<section class=\"verdict\"><h2>Which scaling won where</h2>\n<ul>\n";
  for (size_t i = 0; i < sentences.size(); ++i) {
    const bool last = i + 1 == sentences.size();
    html += std::string(last ? "<li class=\"last\">" : "<li>") + xml_escaped(sentences[i]) + "</li>\n";
  }
  return html + "</ul></section>\n";
}

}  // namespace

std::string html_report(const SweepTable& table) {
  const std::string subject = table.scalings.size() > 1 ? "RoPE scalings on " : "Passkey retrieval on ";
  const std::string title = xml_escaped(subject + table.model);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      title + "</title>\n<style>" + kReportStyle + colour_rules() +
      "</style>\n</head>\n<body>\n<main>\n<header><h1>" + title + "</h1>\n<p>Trained for " +
      std::to_string(table.original_ctx) + " tokens; measured at " + joined([&] {
        std::vector<std::string> words;
        for (const int64_t length : table.lengths) words.push_back(std::to_string(length));
        return words;
      }()) +
      ".</p></header>\n";
  html +=
      perplexity_section(table) + passkey_section(table) + speed_section(table) + conclusion_section(table);
  html += "<div class=\"notes\">\n";
  for (const auto& note : table.notes) html += "<p>" + xml_escaped(note) + "</p>\n";
  return html + "</div>\n</main>\n</body>\n</html>\n";
}

}  // namespace lariat
