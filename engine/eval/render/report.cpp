#include "engine/eval/render/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/eval/needles.h"
#include "engine/eval/render/chart.h"
#include "engine/eval/render/sweep_svg.h"
#include "engine/eval/render/tables.h"
#include "engine/eval/sweep_table.h"
#include "engine/eval/verdict.h"
#include "kernels/counted.h"
#include "kernels/error.h"
#include "models/io/atomic_file.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {
using Json = nlohmann::ordered_json;

std::string html(std::string_view name, const std::string& inside, const std::string& attributes = "") {
  return fmt::format("<{0}{1}{2}>{3}</{0}>\n", name, attributes.empty() ? "" : " ", attributes, inside);
}
std::string paragraph(const std::string& text) { return html("p", xml_escaped(text)); }
std::string section(const std::string& title, const std::string& about, const std::string& content) {
  return html("section", html("h2", xml_escaped(title)) + paragraph(about) + content);
}

std::string swatch(const SweepTable& table, const Column& column) {
  return fmt::format(
      "<svg class=\"swatch\" viewBox=\"0 0 10 10\"><circle class=\"{}\" cx=\"5\" cy=\"5\" r=\"5\"/></svg>",
      colour_of(table, column));
}

std::string html_table(const SweepTable& table, const ResultTable& results) {
  std::string head = html("th", results.first), body;
  for (const std::string& name : results.heads) head += html("th", name, "scope=\"col\"");
  for (const auto& [column, label, cells] : results.rows) {
    std::string row = html("th", swatch(table, column) + xml_escaped(label), "scope=\"row\"");
    for (const auto& [value, error, best] : cells) {
      const std::string margin = error.empty() ? "" : "<small> ± " + error + "</small>";
      row += html("td", value.empty() ? "–" : value + margin, best ? "class=\"best\"" : "");
    }
    body += html("tr", row);
  }
  return html("div", html("table", html("thead", html("tr", head)) + html("tbody", body)),
              "class=\"scroll\"");
}

class Page {
 public:
  Page(const Measurements& log, const SweepTable& table)
      : log_(log), plan_(log.plan), table_(table), pictures_(sweep_pictures(table)) {}

  std::string title() const {
    const std::string subject = !compared()             ? things() + " found"
                                : plan_.methods.empty() ? "RoPE scalings"
                                                        : "Scalings and position methods";
    return subject + " on " + plan_.model.name;
  }

  // sentences: conclusions() of the log.
  std::string body(const std::vector<std::string>& sentences) const {
    std::vector<std::string> lengths;
    for (const int64_t length : plan_.lengths) lengths.push_back(std::to_string(length));
    std::string page =
        html("h1", xml_escaped(title())) +
        paragraph(fmt::format("Trained for {} tokens; measured at {}.", plan_.original_ctx, joined(lengths)));
    if (!table_.growing.empty())
      page += section(
          "Growing context",
          text() +
              " is prefilled once from its first token, like a growing conversation; each token is predicted "
              "from the current cache. Stale (dashed): cached keys are not re-rotated when the scale "
              "changes. Static scalings use the factor of the whole length.",
          curves("growing") + curves("growing-ratio") + html_table(table_, growing_table(table_)));
    if (!table_.perplexity.empty())
      page += section(
          "Perplexity by context length", "Perplexity of " + text() + "; lower is better.",
          curves("perplexity") + curves("perplexity-ratio") + html_table(table_, perplexity_table(table_)));
    if (!table_.passkey.empty())
      page += section(
          things() + " found",
          hidden() + " Columns: length of the prompt; rows: depth, from its start (0 %) to its end (100 %).",
          html("div", maps(), "class=\"maps\""));
    if (!table_.speed.empty())
      page +=
          section("Throughput and memory",
                  "Prefill at each length and decoding of the next 32 tokens, in tokens per second for one "
                  "sequence; KV cache memory.",
                  html_table(table_, speed_table(table_)));
    return page + verdict(sentences) + html("div", notes(), "class=\"notes\"");
  }

 private:
  bool compared() const {
    return plan_.columns.size() > 1 || !table_.growing.empty() || !table_.perplexity.empty() ||
           !table_.speed.empty();
  }
  std::string text() const { return plan_.text ? plan_.text->name : ""; }
  std::string things() const {
    std::string things = table_.tasks.size() == 1 ? needles_noun(table_.tasks.front()) : "needles";
    things[0] = static_cast<char>(std::toupper(things[0]));
    return things;
  }

  std::string hidden() const {
    const Plan::Passkey& passkey = plan_.passkey;
    const std::string hay = passkey.haystack.name == "noise" ? "" : passkey.haystack.name;
    if (passkey.tasks.empty()) return hidden_in({passkey.task, passkey.needles}, hay);
    std::vector<std::string> all;
    for (const NeedleTask task : passkey.tasks)
      all.push_back(fmt::format("{}: {}", name_of(task), hidden_in({task, passkey.needles}, hay)));
    return fmt::format("{}", fmt::join(all, " "));
  }

  // Wide and narrow (phone) figure.
  std::string curves(const std::string& name) const {
    const auto found = std::ranges::find(pictures_, name, &SweepPicture::name);
    return found == pictures_.end() ? "" : found->wide + found->narrow;
  }

  std::string maps() const {
    std::string maps;
    for (const RetrievalMap& of : retrieval_maps(table_)) {
      RetrievalValue sum;
      for (const int64_t length : table_.lengths)
        sum += table_.retrieval(of.column, of.task, length).value_or(RetrievalValue{});
      const std::string all =
          fmt::format("<small>{:.{}f} of {}</small>", sum.found, sum.in_parts ? 1 : 0, sum.trials);
      const auto map = std::ranges::find(pictures_, of.name, &SweepPicture::map);
      maps +=
          html("figure",
               html("figcaption", swatch(table_, of.column) + xml_escaped(of.name) + " " + all) + map->wide,
               fmt::format("style=\"max-width: {}px\"", 75 * (table_.lengths.size() + 1)));
    }
    return maps;
  }

  std::string verdict(const std::vector<std::string>& sentences) const {
    if (sentences.empty()) return "";
    std::string list;
    for (const std::string& sentence : sentences)
      list += html("li", xml_escaped(sentence), sentence.starts_with(kOverall) ? "class=\"overall\"" : "");
    return html("section",
                html("h2", plan_.methods.empty() ? "Which scaling won where" : "Which column won where") +
                    html("ul", list),
                "class=\"verdict\"");
  }

  std::vector<std::string> tasks_missing(int64_t length) const {
    std::vector<std::string> names;
    for (const NeedleTask task : plan_.passkey.tasks) {
      const auto is_missing = [&](double depth) {
        return find_cell(table_.passkey, {plan_.columns.front(), task, length, depth}) == nullptr;
      };
      if (std::ranges::any_of(plan_.passkey.depths, is_missing)) names.emplace_back(name_of(task));
    }
    return names;
  }

  // "passkey at 640; perplexity at 512 (linear and ntk)"
  std::string missing() const {
    std::vector<std::string> gaps;
    const auto units = log_.missing(plan_.units());
    for (auto unit = units.begin(); unit != units.end();) {
      std::vector<std::string> names;
      const auto first = unit;
      for (; unit != units.end() && unit->kind == first->kind && unit->length == first->length; ++unit)
        names.push_back(unit->column.name());
      size_t all = (first->kind == Kind::kGrowing ? plan_.growing.columns : plan_.columns).size();
      if (first->kind == Kind::kPasskey && !plan_.passkey.tasks.empty()) {
        names = tasks_missing(first->length);
        all = plan_.passkey.tasks.size();
      }
      const std::string some = names.size() < all ? " (" + joined(names) + ")" : "";
      gaps.push_back(fmt::format("{} at {}{}", name_of(first->kind), first->length, some));
    }
    return fmt::format("{}", fmt::join(gaps, "; "));
  }

  std::string windows_note() const {
    const Plan::Perplexity& windows = plan_.perplexity;
    const std::string step = windows.stride > 0 ? counted(windows.stride, "token")
                                                : fmt::format("1/{} of their length (at least 256 tokens)",
                                                              windows.parts.value_or(1));
    return fmt::format(
        "Perplexity of {}: {}{}; bars are one standard error.", text(),
        windows.method == "sliding" ? "sliding windows moved by " + step : "second half of disjoint windows",
        windows.max_tokens > 0 ? ", first " + counted(windows.max_tokens, "token") : "");
  }

  std::string notes() const {
    const auto& [most, passkey, options] =
        std::tie(plan_.perplexity.max_tokens, plan_.passkey, plan_.options);
    std::string notes;
    if (plan_.perplexity.measured) notes += paragraph(windows_note());
    if (plan_.growing.measured)
      notes += paragraph(fmt::format(
          "The growing context prefills {} {} at a time{}.", text(), counted(plan_.growing.step, "token"),
          most > 0 ? "; its first " + counted(most, "token") + " fill one or more contexts" : ""));
    if (passkey.measured)
      notes += paragraph(fmt::format(
          "{}: {} for each length and depth, seed {}{}{}.", things(), counted(passkey.trials, "trial"),
          passkey.seed, compared() ? ", the same keys for every column" : "",
          passkey.chat.value_or(false) ? ", asked through the chat template" : ""));
    if (compared())
      notes += paragraph(fmt::format(
          "Scalings: {}; dynamic ones follow the length{}.",
          options.factor ? fmt::format("all factors are {:g}", *options.factor)
                         : fmt::format("linear, ntk and yarn stretch by length / {}", plan_.original_ctx),
          options.stale_cache ? ", with stale cached keys" : ""));
    else
      notes +=
          paragraph(fmt::format("Scaling {}, factor {}.", plan_.columns.front().name(),
                                options.factor ? fmt::format("{:g}", *options.factor) : "set by the length"));
    for (const auto& [name, all] : plan_.methods.items())
      notes += paragraph(fmt::format("Position method {}: {}.", name, all.get<std::string>()));
    notes += paragraph(fmt::format(
        "Backend {}, weights {}{}, keys {}, values {}{}.", options.backend,
        options.weights ? *options.weights + " as " : "", options.dtype, options.k_dtype, options.v_dtype,
        options.activations ? fmt::format(", activations of {} bits", *options.activations) : ""));
    const std::string gaps = missing();
    return gaps.empty() ? notes : notes + paragraph("Not measured: " + gaps + ".");
  }

  const Measurements& log_;
  const Plan& plan_;
  const SweepTable& table_;
  std::vector<SweepPicture> pictures_;
};

}  // namespace

std::string report_page(Measurements log, const SweepTable& table, const Json& more) {
  for (Record& record : log.records) {
    if (record.kind() != Kind::kSpeed) record.timing.reset();
  }
  std::ranges::stable_sort(log.records, {}, &Record::key);
  Json data = sweep_json(log, table);
  data.update(more);
  // JSON has "<" only inside strings; escaped, it cannot end the <script> element.
  const std::string json =
      replace_all(data.dump(-1, ' ', true, Json::error_handler_t::replace), "<", "\\u003c");
  const Page page(log, table);
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'\">\n" +
         html("title", xml_escaped(page.title())) + std::string(kSweepSvgStyle) + std::string(kReportStyle) +
         "</head>\n<body>\n" + html("main", page.body(data.at("conclusions"))) +
         html("script", json, "type=\"application/json\" id=\"data\"") + "</body>\n</html>\n";
}

void write_pictures(const SweepTable& table, const std::filesystem::path& folder) {
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) throw Error(folder.string() + ": cannot be created: " + ec.message());
  for (const SweepPicture& picture : sweep_pictures(table))
    write_file_atomically(folder / (picture.name + ".svg"), svg_file(picture.wide));
}

Json sweep_json(const Measurements& log, const SweepTable& table) {
  Json plan = to_json(log.plan), results = Json::array();
  for (const char* key : {"lariat_sweep", "shard"}) plan.erase(key);
  for (const Record& record : log.records) results.push_back(labelled(log.plan, record));
  return {{"sweep", plan},
          {"complete", log.complete()},
          {"results", results},
          {"conclusions", conclusions(table)}};
}

}  // namespace lariat
