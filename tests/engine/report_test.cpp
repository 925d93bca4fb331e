#include "engine/eval/render/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "engine/eval/needles.h"
#include "engine/eval/render/results_csv.h"
#include "engine/eval/render/sweep_svg.h"
#include "engine/eval/sweep_table.h"
#include "engine/eval/verdict.h"
#include "tests/engine/sweep_fixture.h"

namespace lariat::test {
namespace {

const std::vector<Column> kAll = {"none", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn"};

Measurements swept(const std::vector<Column>& scalings, const std::vector<int64_t>& lengths, double growth) {
  Measurements log = empty_log(scalings, lengths);
  double ppl = 8;
  for (const auto& scaling : scalings) {
    for (const int64_t length : lengths) {
      add_record(log, "perplexity", scaling, length,
                 {{"tokens", 1000}, {"ppl", ppl}, {"stderr", 0.1}, {"timing", {{"seconds", 1.5}}}});
      for (const double depth : {0.0, 0.5, 1.0})
        add_record(log, "passkey", scaling, length, {{"depth", depth}, {"trials", 5}, {"correct", 3}});
      add_record(log, "speed", scaling, length,
                 {{"cache_bytes", 1 << 20}, {"timing", {{"prefill_tok_s", 12345}, {"decode_tok_s", 678}}}});
      ppl *= growth;
    }
  }
  return log;
}

// Perplexities of two buckets before 512 and two after.
void add_grown(Measurements& log, const Column& column, double before, double after, double factor = 0) {
  Json values;
  if (factor > 0) values["factor"] = factor;
  for (int64_t i = 0; i < 4; ++i)
    values["positions"].push_back({{"from", 256 * i},
                                   {"to", 256 * (i + 1)},
                                   {"tokens", 100},
                                   {"loss", std::log(i < 2 ? before : after)},
                                   {"stderr", 0.01}});
  add_growing(log, column, 1024, values, 32);
}

Measurements grown() {
  Measurements log = swept({"none", "yarn", "dynamic"}, {512, 1024}, 1.1);
  add_grown(log, "none", 8, 404);
  add_grown(log, "yarn", 8.4, 8.8, 2);
  add_grown(log, "dynamic", 8, 9.2);
  add_grown(log, "dynamic stale", 8, 84);
  return log;
}

std::string data_in(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

TEST(ReportPage, EscapesItsData) {
  const Json more = {{"</script><script>alert(1)</script>", "<!--<script>"},
                     {"quotes", "\" ' ` \\ ${x} \u2028 \x01 &lt;"},
                     {"numbers", {1.5, int64_t{1} << 52, nullptr}}};
  const std::string json = data_in(page_of(grown(), more));
  for (const auto& [key, value] : more.items()) EXPECT_EQ(Json::parse(json)[key], value);
  EXPECT_EQ(json.find_first_of("<\n"), std::string::npos);
  // Invalid UTF-8 does not abort a report.
  EXPECT_EQ(Json::parse(data_in(page_of(grown(), {{"name", "caf\xE9"}})))["name"], "caf\uFFFD");
}

TEST(ReportPage, NeedsNoOtherFile) {
  std::string page = page_of(grown());
  const std::string space = "http://www.w3.org/2000/svg";  // not an address
  for (size_t at = 0; (at = page.find(space, at)) != std::string::npos;) page.erase(at, space.size());
  for (const char* foreign : {"http:", "https:", "<link", "<img", "@import", "url(", "src=", "<script>"})
    EXPECT_FALSE(holds(page, foreign));
  EXPECT_TRUE(holds(page, "default-src 'none'"));
}

TEST(SweepReport, IsTheSameInAnyOrderAndAtAnySpeed) {
  Measurements log = grown();
  const std::string page = page_of(log);
  const Json data = Json::parse(data_in(page));
  EXPECT_EQ(data["results"].size(), log.records.size());
  EXPECT_EQ(data["conclusions"], sweep_json(log, tabulate(log))["conclusions"]);
  std::ranges::reverse(log.records);
  for (auto& record : log.records) {
    if (record.kind() == Kind::kPerplexity) record.timing->seconds = 7;
  }
  EXPECT_EQ(page_of(log), page);
}

std::vector<double> values_of(const std::string& svg, const std::string& pattern) {
  std::vector<double> values;
  const std::regex regex(pattern);
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), regex); it != std::sregex_iterator(); ++it)
    values.push_back(std::stod((*it)[1]));
  return values;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

const SweepPicture& picture_of(const std::vector<SweepPicture>& pictures, const std::string& name) {
  return *std::ranges::find(pictures, name, &SweepPicture::name);
}

// Equal values, exploding values, a single length.
TEST(SweepPictures, LabelsKeepTheirDistance) {
  for (const double growth : {1.0, 1.0001, 1.1, 3.0, 100.0}) {
    const bool one = growth == 1.0001;
    const auto lengths =
        one ? std::vector<int64_t>{512} : std::vector<int64_t>{256, 512, 640, 700, 768, 1024, 131072};
    const auto pictures = sweep_pictures(tabulate(swept(kAll, lengths, growth)));
    const SweepPicture& picture = picture_of(pictures, "perplexity");
    for (const auto& [svg, height] : {std::pair(picture.wide, 420), std::pair(picture.narrow, 340)}) {
      auto labels = values_of(svg, "y=\"([0-9.]+)\" text-anchor=\"start\" class=\"series\"");
      ASSERT_EQ(labels.size(), kAll.size());
      std::sort(labels.begin(), labels.end());
      for (size_t i = 1; i < labels.size(); ++i) EXPECT_GE(labels[i] - labels[i - 1], 16.5);
      EXPECT_GE(labels.front(), 20);
      EXPECT_LE(labels.back(), height - 30);
      for (const double y : values_of(svg, "cy=\"([0-9.]+)\"")) {
        EXPECT_GE(y, 30);
        EXPECT_LE(y, height - 40);
      }
      const auto ticks = values_of(svg, "y=\"([0-9.]+)\" text-anchor=\"end\" class=\"tick\"");
      EXPECT_GE(ticks.size(), 2U);
      EXPECT_LE(ticks.size(), 10U);
      EXPECT_EQ(count_of(svg, "class=\"axis\""), lengths.size() + 1) << "a tick at every length";
    }
  }
}

TEST(SweepPictures, PicturesNeedNoOtherFileAndAcceptAnyName) {
  const std::string hostile = "</svg><script>x</script>\x01\"& stale";
  Measurements log = swept({"none", hostile}, {512, 1024}, 1.1);
  add_grown(log, "none", 8, 9);
  add_grown(log, hostile, 8, 9);
  const auto pictures = sweep_pictures(tabulate(log));
  std::vector<std::string> names;
  for (const SweepPicture& picture : pictures) {
    names.push_back(picture.name);
    const std::string file = svg_file(picture.wide);
    EXPECT_EQ(file.rfind("<svg xmlns=", 0), 0U);
    EXPECT_EQ(count_of(file, "</svg>"), 1U);
    EXPECT_EQ(count_of(file, "<script"), 0U);
    EXPECT_EQ(count_of(file, "<style>"), 1U);
    for (const char* odd : {"\x01", "var(", "nan", "inf"})
      EXPECT_EQ(file.find(odd), std::string::npos) << odd;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"growing", "perplexity", "found-none", "found-1"}));
}

TEST(ResultsCsv, HasOneRowPerMeasurement) {
  Measurements log = grown();
  log.records.resize(5);  // perplexity, three depths and speed at 512
  log.records.push_back(grown().records.back());
  loss_in(log.records.back()).ppl = 26.1;
  loss_in(log.records.back()).positions[1].loss = NAN;
  loss_in(log.records.back()).positions[2].tokens = 1;
  loss_in(log.records.back()).positions[3].tokens = 0;
  log.records[0].column = "a \"b\", c";
  loss_in(log.records[0]).ppl = NAN;
  EXPECT_TRUE(holds(csv_of(log), "\nperplexity,\"a \"\"b\"\", c\",,false,512,,,,,0.1,1000,"));
  const char* names[] = {"measure", "scaling", "position_method", "stale", "length", "depth", "from",
                         "to",      "value",   "error",           "count", "low",    "high",  "unit"};
  std::string chosen;
  for (auto& row : csv_rows(csv_of(log))) {
    for (const char* name : names) chosen += row.at(name) + ",";
    chosen.back() = '\n';
    EXPECT_EQ(row["weights"] + row["factor"] + row["model"] + row["dtype"] + row["cache_dtype"] +
                  row["text"] + row["task"] + row["than"],
              "mbf16k=f16 v=bf16" + std::string(row["measure"] == "passkey" ? "noisepasskey" : "text.txt"));
  }
  EXPECT_EQ(
      chosen,
      "perplexity,a \"b\", c,,false,512,,,,,0.1,1000,,,perplexity\n"
      "passkey,none,,false,512,0.0,,,0.6,0.21908902300206645,5,0.23071993220883702,0.8823817688407467,share\n"
      "passkey,none,,false,512,0.5,,,0.6,0.21908902300206645,5,0.23071993220883702,0.8823817688407467,share\n"
      "passkey,none,,false,512,1.0,,,0.6,0.21908902300206645,5,0.23071993220883702,0.8823817688407467,share\n"
      "prefill_tok_s,none,,false,512,,,,12345.0,,,,,tok/s\n"
      "decode_tok_s,none,,false,512,,,,678.0,,,,,tok/s\n"
      "cache_bytes,none,,false,512,,,,1048576,,,,,bytes\n"
      "growing,dynamic,,true,1024,,,,26.1,,0,,,perplexity\n"
      "growing,dynamic,,true,1024,,0,256,7.999999999999998,0.07999999999999999,100,7.8447266496194255,"
      "8.158346728767768,perplexity\n"
      "growing,dynamic,,true,1024,,256,512,,,100,,,perplexity\n"
      "growing,dynamic,,true,1024,,512,768,83.99999999999999,0.8399999999999999,1,82.36962982100397,"
      "85.66264065206157,perplexity\n");
}

TEST(ResultsCsv, FiguresOfADivergenceHaveIntervals) {
  Measurements log = empty_log({"none"}, {512});
  log.plan.against = {{"base", "", ""}, "yarn", {}};
  log.records = {Record::of({Kind::kDivergence, "none", 512}), Record::of({Kind::kLosses, "none", 512}),
                 Record::of({Kind::kPasskey, "none", 512})};
  auto& divergence = std::get<Divergence>(log.records[0].value);
  divergence.tokens = 9;
  divergence.all[2] = {2, 0.5};
  divergence.all[3] = {2, 0.5};
  divergence.all[5] = {2};
  divergence.positions = {{0, 256, 0}, {256, 512, 1}};
  std::get<Retrieval>(log.records[2].value) = {
      .task = NeedleTask::kMultikey, .trials = 4, .correct = 1, .recall = 2};
  std::vector<std::string> chosen;
  const auto rows = csv_rows(csv_of(log));
  for (auto row : rows) {
    std::string& line = chosen.emplace_back();
    for (const char* name : {"measure", "from", "to", "value", "error", "count", "unit", "than"})
      line += row.at(name) + ",";
  }
  ASSERT_EQ(chosen.size(), 2 * std::size(kFigures) + 1);
  EXPECT_EQ(chosen[0], "divergence_ppl,,,,,9,perplexity,base: yarn,");
  EXPECT_EQ(chosen[2], "ppl_ratio,,,2.0,0.5,9,ratio,base: yarn,");
  EXPECT_EQ(chosen[5], "kl_max,,,2.0,,9,nats,base: yarn,");
  EXPECT_EQ(chosen[10], "divergence_ppl,256,512,,,1,perplexity,base: yarn,");
  EXPECT_EQ(chosen[20], "multikey,,,0.5,0.25,4,share,,");
  EXPECT_EQ(rows[5].at("low") + rows[5].at("high"), "");
  for (const auto& [row, low, high] :
       {std::tuple(2, 2 / std::exp(0.49), 2 * std::exp(0.49)), std::tuple(3, 1.02, 2.98)}) {
    EXPECT_NEAR(std::stod(rows[row].at("low")), low, 1e-9);
    EXPECT_NEAR(std::stod(rows[row].at("high")), high, 1e-9);
  }
}

// Taken from the plan's own fields, so that a new option is tested too.
TEST(ResultsCsv, RowsOfOtherSettingsHaveOtherKeys) {
  const auto keys = [](const Measurements& of) {
    std::set<std::string> found;
    for (auto& row : csv_rows(csv_of(of))) {
      for (const char* number : {"value", "error", "count", "low", "high"}) row.erase(number);
      EXPECT_TRUE(found.insert(Json(row).dump()).second) << Json(row);
    }
    return found;
  };
  Measurements log = grown();
  log.records.push_back(log.records.back());
  log.records.back().value =
      Retrieval{.depth = 0.25, .task = NeedleTask::kMultikey, .trials = 5, .correct = 2};
  log.plan.options.activations = 16;
  log.records.push_back(Record::of({Kind::kDivergence, "none", 512}));
  std::get<Divergence>(log.records.back().value).tokens = 5;
  log.plan.options.factor = log.plan.options.theta = 2;
  log.plan.options.steps_per_octave = log.plan.options.prefill_chunk = 4;
  log.plan.options.weights = log.plan.options.frequencies = "x";
  log.plan.passkey.chat = false;
  log.plan.perplexity.step = 3;
  log.plan.text = {"text.txt", 9, "f"};
  log.plan.against = {{"other", "f", "t"}, "none", log.plan.options};
  const auto before = keys(log);
  const Json plan = to_json(log.plan), flat = plan.flatten();
  int changed = 0;
  // Settings that choose units, not how a unit is measured. A text's bytes follow from its fingerprint.
  // The model's texts hold settings without effect on measurements, such as generation_config.json's.
  const std::regex chooses(
      "^/text/bytes|^/model/texts|measured$|^/(shard|scalings|lengths|lariat_sweep)|/depths|/"
      "columns|buckets|ends");
  for (const auto& [name, value] : flat.items()) {
    if (std::regex_search(name, chooses)) continue;
    Measurements with = log;
    with.plan = plan_from_json(changed_setting(plan, name), "a test");
    EXPECT_TRUE(keys(with) != before) << name;
    ++changed;
  }
  EXPECT_GE(changed, 25) << plan.dump(1);
}

std::string main_of(const Measurements& log) {
  const std::string page = page_of(log);
  const size_t begin = page.find("<main>"), end = page.find("</main>");
  const std::string main = page.substr(std::min(begin, page.size()), end - begin);
  EXPECT_TRUE(names(main, "cpu | bf16"));
  for (const char* odd : {"NaN", ">nan", "inf<"}) EXPECT_FALSE(holds(main, odd));
  return main;
}

std::string picture(const std::string& main, const std::string& name, const std::string& style) {
  const size_t begin = main.find("aria-label=\"" + name + "\" class=\"" + style);
  return begin == std::string::npos ? "" : main.substr(begin, main.find("</svg>", begin) - begin);
}

TEST(ReportPage, HasTablesMapsCurvesAndVerdict) {
  const std::string main = main_of(grown());
  EXPECT_EQ(count_of(main, "<h2>"), 5U);
  EXPECT_TRUE(names(main, "512 | 1024"));
  EXPECT_TRUE(holds(main,
                    "yarn ×2</th>\n<td>8.40<small> ± 0.06</small></td>\n<td "
                    "class=\"best\">8.80<small> ± 0.06</small></td>"));
  EXPECT_TRUE(holds(main, "<td class=\"best\">8.00<small> ± 0.10</small></td>"));
  EXPECT_EQ(count_of(main, ">3/5</text>"), 3U * 2 * 3);
  EXPECT_EQ(count_of(main, "fill-opacity=\"0.60\""), 3U * 2 * 3);
  EXPECT_TRUE(holds(main, "none <small>18 of 30</small>"));
  EXPECT_EQ(count_of(main, "<td>12345 / 678, 1.00 MiB</td>"), 3U * 2);
  EXPECT_TRUE(holds(main, "<li class=\"overall\">" + conclusions(tabulate(grown())).back() + "</li>\n</ul>"));
  // Stale curves are dashed in their scaling's colour; narrow pictures shorten names.
  const std::string name = "Perplexity by position in a growing context";
  for (const char* style : {"wide", "narrow"}) {
    const std::string svg = picture(main, name, style);
    EXPECT_TRUE(holds(svg, "<g class=\"of-dynamic dashed\"><title>dynamic stale"));
    EXPECT_EQ(count_of(svg, "class=\"curve\""), 4U);
  }
  EXPECT_TRUE(holds(picture(main, name, "wide"), ">dynamic stale</text>"));
  EXPECT_TRUE(holds(picture(main, name, "narrow"), ">stale</text>"));
}

TEST(ReportPage, OmitsAndNamesMissingMeasurements) {
  Measurements log = swept({"none", "yarn"}, {512, 1024}, 1.1);
  log.plan.speed.measured = false;
  std::erase_if(log.records, [](const Record& record) {
    return record.kind() == Kind::kSpeed || (record.kind() == Kind::kPerplexity && record.length == 512) ||
           record.key() == "passkey/yarn/1024/0.5";
  });
  const std::string main = main_of(log);
  EXPECT_EQ(count_of(main, "<h2>"), 3U) << "neither throughput nor a growing context";
  EXPECT_TRUE(names(main, "1024 (yarn)"));
  EXPECT_TRUE(holds(main, ">–</text>"));
  EXPECT_EQ(count_of(main, "<td>–</td>"), 2U);
}

TEST(ReportPage, NamesAreEscaped) {
  const std::string hostile = "</script><img src=x onerror=\"document.title='run'\">'&lt; stale";
  Measurements log = swept({"none", hostile}, {512, 1024}, 1.1);
  log.plan.model.name = hostile;
  log.plan.text->name = hostile;
  add_grown(log, hostile, 8, 9);
  loss_in(log.records[0]).ppl = NAN;
  loss_in(log.records[0]).error = NAN;
  const std::string main = main_of(log);
  EXPECT_FALSE(holds(main, "<img"));
  EXPECT_TRUE(holds(main,
                    " &lt;/script&gt;&lt;img src=x onerror=&quot;document.title='run'&quot;&gt;"
                    "'&amp;lt; stale</h1>"));
  EXPECT_EQ(count_of(main, "class=\"of-none"), count_of(main, "class=\"of-"));
}

TEST(ReportPage, MissingCellsAreNamedByTask) {
  Measurements log = empty_log({"none"}, {256, 512});
  log.plan.perplexity.measured = log.plan.speed.measured = log.plan.growing.measured = false;
  log.plan.passkey.depths = {0, 1};
  log.plan.passkey.tasks = {NeedleTask::kPasskey, NeedleTask::kMultikey};
  const auto add = [&](int64_t length, double depth, const char* task) {
    add_record(log, "passkey", "none", length,
               {{"depth", depth}, {"trials", 1}, {"correct", 1}, {"task", task}});
  };
  for (const double depth : {0.0, 1.0}) add(256, depth, "passkey"), add(256, depth, "multikey");
  for (const double depth : {0.0, 1.0}) add(512, depth, "passkey");
  add(512, 0, "multikey");
  const std::string main = main_of(log);
  EXPECT_TRUE(holds(main, "512 (multikey)"));
  EXPECT_FALSE(holds(main, "passkey at 256"));
}

TEST(SweepTables, ValuesBeyondAnyAxisAreOmitted) {
  for (const double ppl : {1.5e308, 0.0, -1.0, 1e-300}) {
    Measurements log = swept({"none"}, {100, 200}, 1);
    for (auto& record : log.records) {
      if (record.loss() != nullptr) loss_in(record).ppl = ppl, loss_in(record).error = -1e308;
    }
    EXPECT_TRUE(tabulate(log).perplexity.empty()) << ppl;
  }
  for (const double error : {-1.0, 0.0, 0.5, 1e200}) {
    Measurements log = swept({"none"}, {100}, 1);
    loss_in(log.records[0]).ppl = 0.99;
    loss_in(log.records[0]).error = error;
    EXPECT_EQ(std::isnan(tabulate(log).perplexity.begin()->second.error), error < 0 || error > 1) << error;
  }
}

}  // namespace
}  // namespace lariat::test
