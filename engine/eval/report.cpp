#include "engine/eval/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/eval/chart.h"

namespace lariat {
namespace {

// The style sheet of a report. Colours are told apart by people with any colour vision (hues after Okabe and
// Ito, darkened or lightened for contrast), and every line also has its name at its end.
constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --page: #fbfbfa; --card: #ffffff; --edge: #e4e4e0; --ink: #1f2328;
  --soft: #5d646d; --grid: #ecebe7; --heat: #0f766e; --cell: #f0efeb; --on: #ffffff; --mark: #e8f3f1;
  --c0: #6b7280; --c1: #b45309; --c2: #7c3aed; --c3: #be185d; --c4: #0f766e; --c5: #1d4ed8; --c6: #4d7c0f;
  --c7: #92400e; --c8: #0e7490; --c9: #111827; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --card: #1b1f23; --edge: #2f353b; --ink: #e6e8ea;
  --soft: #9aa3ad; --grid: #2a2f35; --heat: #2dd4bf; --cell: #262b31; --on: #06231f; --mark: #17312e;
  --c0: #9ca3af; --c1: #f59e0b; --c2: #b794f6; --c3: #f472b6; --c4: #2dd4bf; --c5: #60a5fa; --c6: #a3e635;
  --c7: #d6a06a; --c8: #67e8f9; --c9: #f3f4f6; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 56px; }
header p { color: var(--soft); margin: 4px 0 0; }
h1 { font-size: 28px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 0 0 4px; }
section { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; padding: 22px 24px;
  margin-top: 20px; }
section > p { color: var(--soft); margin: 0 0 14px; font-size: 14px; }
.verdict { background: var(--mark); border-color: transparent; }
.verdict p { color: var(--ink); font-size: 17px; margin: 0; }
ul { margin: 6px 0 0; padding-left: 20px; }
li { margin: 3px 0; }
.last { font-weight: 600; }
svg { display: block; width: 100%; height: auto; }
.narrow { display: none; }
svg text { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink);
  font-variant-numeric: tabular-nums; }
svg .tick, svg .name { fill: var(--soft); }
svg .series { font-weight: 600; }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); } .origin { stroke: var(--soft); stroke-dasharray: 2 4; }
.curve { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
.dashed .curve { stroke-dasharray: 7 5; }
.error { stroke-width: 1.25; opacity: .7; } .leader { fill: none; stroke-width: 1; opacity: .45; }
.cell { fill: var(--cell); } .heat { fill: var(--heat); } svg .on { fill: var(--on); font-weight: 600; }
svg .off { fill: var(--ink); }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--fit)), 1fr)); gap: 20px 28px; }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: 4px; }
figcaption span { color: var(--soft); font-weight: 400; }
.scroll { overflow-x: auto; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, var(--fit)), 1fr)); gap: 20px 32px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--edge); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } th:first-child { text-align: left; }
tbody th { color: var(--ink); font-weight: 600; }
tbody tr:last-child > * { border-bottom: 0; }
td.best { font-weight: 700; background: var(--mark); } td small { color: var(--soft); font-size: 12px; }
div + .scroll { margin-top: 18px; }
.tables .scroll { margin-top: 0; } .tables th, .tables td { padding: 5px 7px; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 8px; }
.notes { color: var(--soft); font-size: 13px; margin-top: 24px; } .notes p { margin: 3px 0; }
)css"
                               R"css(
@media (max-width: 640px) { main { padding: 22px 12px 36px; } section { padding: 16px 14px; } h1 { font-size: 23px; }
  .wide { display: none; } .narrow { display: block; } td small { display: block; } th, td { padding: 5px 6px; font-size: 12.5px; } }
@media print { :root { --page: #fff; --card: #fff; --edge: #ccc; --ink: #000; --soft: #444; --grid: #e5e5e5;
  --heat: #0f766e; --cell: #f0efeb; --on: #fff; --mark: #e8f3f1; --c0: #6b7280; --c1: #b45309; --c2: #7c3aed;
  --c3: #be185d; --c4: #0f766e; --c5: #1d4ed8; --c6: #4d7c0f; --c7: #92400e; --c8: #0e7490; --c9: #111827; }
  body { font-size: 11pt; } main { padding: 0; max-width: none; } * { print-color-adjust: exact;
  -webkit-print-color-adjust: exact; } section, figure, tr { break-inside: avoid; } section { padding: 12px 14px; }
  .wide { display: block; } .narrow { display: none; } }
)css";

std::string colour_rules() {
  std::string css;
  for (int i = 0; i < 10; ++i) {
    css += fmt::format(
        ".c{0} .curve, .c{0} .error, .c{0} .leader {{ stroke: var(--c{0}); }}\n"
        ".c{0} .dot, svg .c{0} .series {{ fill: var(--c{0}); }}\n"
        ".swatch.c{0} {{ background: var(--c{0}); }}\n",
        i);
  }
  return css;
}

// A scaling's name behind a dot of its colour.
std::string swatch(const std::string& scaling) {
  return fmt::format("<span class=\"swatch c{}\"></span>{}", colour_of(scaling), xml_escaped(scaling));
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The least width at which a map or table with a column for each length is still easy to read.
std::string fit(const SweepTable& table, int64_t first_column) {
  const int64_t width = first_column + 56 * static_cast<int64_t>(table.lengths.size());
  return fmt::format(" style=\"--fit:{}px\"", std::max<int64_t>(width, 270));
}

// A row for each scaling, a column for each length; cell(scaling, length) is a whole <td>.
template <class Cell>
std::string table_by_length(const SweepTable& table, const std::string& first, const Cell& cell) {
  std::string html = "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">" + first + "</th>";
  for (const int64_t length : table.lengths) html += fmt::format("<th scope=\"col\">{}</th>", length);
  html += "</tr>\n</thead><tbody>\n";
  for (const auto& scaling : table.scalings) {
    html += "<tr><th scope=\"row\">" + swatch(scaling) + "</th>";
    for (const int64_t length : table.lengths) html += cell(scaling, length);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string perplexity_table(const SweepTable& table) {
  std::map<int64_t, std::vector<std::string>> winners;
  for (const int64_t length : table.lengths) winners[length] = best_by_perplexity(table, length);
  return table_by_length(table, "perplexity at", [&](const std::string& scaling, int64_t length) {
    const auto value = table.perplexity_at(scaling, length);
    const char* open = contains(winners[length], scaling) ? "<td class=\"best\">" : "<td>";
    if (!value) return fmt::format("{}–</td>", open);
    return fmt::format("{}{} <small>± {}</small></td>", open, compact(value->ppl),
                       compact(value->standard_error));
  });
}

std::string perplexity_section(const SweepTable& table) {
  if (table.perplexity.empty()) return "";
  return fmt::format(
      "<section><h2>Perplexity by context length</h2>\n<p>Lower is better: how many tokens the model "
      "hesitates between, on average, when it reads {}.</p>\n"
      "<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>\n{}</section>\n",
      xml_escaped(table.text), perplexity_chart(table, 980, 420), perplexity_chart(table, 360, 340),
      perplexity_table(table));
}

std::string growing_table(const SweepTable& table, const std::vector<PositionRange>& ranges) {
  std::string html = "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">perplexity of positions</th>";
  for (const auto& range : ranges) html += fmt::format("<th scope=\"col\">{}</th>", range.name());
  html += "</tr>\n</thead><tbody>\n";
  for (const auto& column : table.growing_columns) {
    const auto found = table.growing.find(column);
    const std::string label = found == table.growing.end() ? column : found->second.label;
    html += fmt::format("<tr><th scope=\"row\"><span class=\"swatch c{}\"></span>{}</th>",
                        colour_of(scaling_of(column)), xml_escaped(label));
    for (const auto& range : ranges) {
      const auto value = growing_perplexity(table, column, range);
      const char* style = contains(best_growing(table, range), column) ? " class=\"best\"" : "";
      html += fmt::format("<td{}>{}</td>", style, value ? compact(*value) : "–");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string growing_section(const SweepTable& table) {
  const auto ranges = growing_ranges(table);
  if (ranges.empty()) return "";
  return fmt::format(
      "<section><h2>A context that grows</h2>\n<p>{} read once from its first token on, as a conversation or "
      "a long answer grows: each token is predicted from the cache as it is at that moment. Stale (dashed): "
      "when the scale moves, cached keys stay as they were rotated. Static scalings have the factor of the "
      "whole length from the beginning.</p>\n"
      "<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>\n{}</section>\n",
      xml_escaped(table.text), growing_chart(table, 980, 420), growing_chart(table, 360, 340),
      growing_table(table, ranges));
}

std::string passkey_section(const SweepTable& table) {
  if (table.passkey.empty()) return "";
  std::string html =
      "<section><h2>Passkeys found</h2>\n<p>" + xml_escaped(table.hidden) +
      " Columns: the prompt's length; rows: where the number stands, from the beginning (0 %) to the end "
      "(100 %).</p>\n"
      "<div class=\"maps\"" +
      fit(table, 80) + ">\n";
  for (const auto& scaling : table.scalings) {
    RetrievalValue all;
    for (const int64_t length : table.lengths) {
      all += table.passkey_at(scaling, length).value_or(RetrievalValue{});
    }
    html += fmt::format("<figure><figcaption>{} <span>{} of {}</span></figcaption>\n{}</figure>\n",
                        swatch(scaling), all.found(), all.trials, passkey_map(table, scaling));
  }
  return html + "</div></section>\n";
}

std::string speed_section(const SweepTable& table) {
  if (table.speed.empty()) return "";
  const auto group = [&](const char* name, const auto& value_of) {
    return table_by_length(table, name, [&](const std::string& scaling, int64_t length) {
      const auto value = table.speed_at(scaling, length);
      return fmt::format("<td>{}</td>", value ? value_of(*value) : std::string("–"));
    });
  };
  const auto rate = [](double tok_s) {
    if (!std::isfinite(tok_s)) return std::string("–");
    return tok_s < 10000 ? compact(tok_s) : compact(tok_s / 1000) + "k";
  };
  const auto mebibytes = [](int64_t bytes) { return compact(static_cast<double>(bytes) / (1 << 20)); };
  return "<section class=\"speed\"><h2>Speed and memory</h2>\n<p>Tokens per second of a prompt of that "
         "length, and of the 32 tokens decoded after it, one sequence; memory of its KV cache.</p>\n"
         "<div class=\"tables\"" +
         fit(table, 125) + ">" +
         group("prompt, tokens/s", [&](const SpeedValue& v) { return rate(v.prefill_tok_s); }) +
         group("decode, tokens/s", [&](const SpeedValue& v) { return rate(v.decode_tok_s); }) +
         group("KV cache, MiB", [&](const SpeedValue& v) { return mebibytes(v.cache_bytes); }) +
         "</div></section>\n";
}

std::string conclusion_section(const SweepTable& table) {
  const auto sentences = conclusions(table);
  if (sentences.empty()) return "";
  std::string html = "<section class=\"verdict\"><h2>Which scaling won where</h2>\n<ul>\n";
  for (const auto& sentence : sentences) {
    const char* style = &sentence == &sentences.back() ? " class=\"last\"" : "";
    html += fmt::format("<li{}>{}</li>\n", style, xml_escaped(sentence));
  }
  return html + "</ul></section>\n";
}

}  // namespace

std::string html_report(const SweepTable& table) {
  const bool passkeys_alone = table.perplexity.empty() && table.growing.empty() && table.speed.empty();
  const bool sweep = table.scalings.size() > 1 || !passkeys_alone;
  const std::string subject = sweep ? "RoPE scalings on " : "Passkey retrieval on ";
  const std::string title = xml_escaped(subject + table.model);
  std::vector<std::string> lengths;
  for (const int64_t length : table.lengths) lengths.push_back(std::to_string(length));
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n"
      "<style>{1}{2}</style>\n</head>\n<body>\n<main>\n<header><h1>{0}</h1>\n"
      "<p>Trained for {3} tokens; measured at {4}.</p></header>\n",
      title, kStyle, colour_rules(), table.original_ctx, joined(lengths));
  html += growing_section(table) + perplexity_section(table) + passkey_section(table) + speed_section(table) +
          conclusion_section(table);
  html += "<div class=\"notes\">\n";
  for (const auto& note : table.notes) html += "<p>" + xml_escaped(note) + "</p>\n";
  return html + "</div>\n</main>\n</body>\n</html>\n";
}

}  // namespace lariat
