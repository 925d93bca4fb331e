#include "engine/eval/measurement_log.h"

#include <fmt/format.h>

#include <regex>
#include <sstream>

#include "models/text/unicode.h"
#include "tests/engine/sweep_fixture.h"

namespace lariat::test {
namespace {

Plan empty_plan() {
  Plan plan = empty_log({"none"}, {256, 512}).plan;
  plan.growing = {true, 64, {"none"}};
  return plan;
}

// A sweep, a shard, sliding windows, a growing context, passkeys.
TEST(MeasurementLogs, EarlierVersionsAreReadAndWrittenAlike) {
  for (const char* name : {"sweep", "shard", "sliding", "growing", "passkey"}) {
    const auto file = golden_dir() / "logs" / (std::string(name) + ".jsonl");
    const Measurements log = read_log(file);
    std::string written = to_json(log.plan).dump() + "\n";
    for (const Record& record : log.records) written += to_json(record).dump() + "\n";
    EXPECT_EQ(written, slurp(file)) << name;
  }
}

TEST(MeasurementLogs, RecordsOfEveryKindAreReadAsWritten) {
  const auto read = [](const Json& json) { return to_json(record_from_json(json, "log.jsonl")).dump(); };
  Json figures = {{"from", 8}, {"to", 9}, {"tokens", 7}};
  for (const char* figure : kFigures) {
    figures[figure] = figures.size() / 4.0;
    figures[std::string(figure) + "_stderr"] = figures.size() / 4.0;
  }
  Json divergence = {{"kind", "divergence"}, {"scaling", "none"}, {"length", 512}};
  divergence.update(figures);
  divergence.update({{"positions", Json::array({figures})}, {"rope_factor", nullptr}});
  EXPECT_EQ(read(divergence), divergence.dump());
  Json answer = Json::parse(
      R"({"kind":"answer","scaling":"none","length":512,"file":"a","line":3,"prompt":"p","tokens":5,)"
      R"("new_tokens":6,"answer":"b","score":0.0,"rope_factor":2.0})");
  EXPECT_EQ(read(answer), answer.dump());
  answer["score"] = 1.5;
  EXPECT_TRUE(names(error_of([&] { read(answer); }), "score"));
  const Json growing = Json::parse(
      R"({"kind":"growing","scaling":"none","length":1,"tokens":1,"nll":1.0,"ppl":2.0,"stderr":null,)"
      R"("blocks":[1.0,null],"text_tokens":1,"holds":1,)"
      R"("positions":[{"from":0,"to":1,"tokens":1,"loss":1.0,"stderr":null}],"rope_factor":null})");
  EXPECT_EQ(read(growing), growing.dump());

  Json plan = to_json(empty_plan());
  plan["original_ctx"] = plan["lengths"][0] = plan["growing"]["step"] = plan["passkey"]["needles"] = 1;
  plan["rows"] = {{"metric", "all"}, {"prefix", true}, {"chat", false}};
  plan["rows"].update({{"max_new_tokens", 8}, {"template_variables", {{"a", 1}}}});
  EXPECT_EQ(to_json(plan_from_json(plan, "")), plan);
}

TEST(MeasurementLogs, APlanCoversItsUnits) {
  Measurements log = empty_log({"none"}, {256, 512});
  Plan& plan = log.plan;
  plan.growing = {true, 64, {"none", "dynamic"}};
  const auto of = [&](Kind kind, const char* column, int64_t length) {
    return plan.covers(Record::of({kind, column, length}));
  };
  const auto found = [&](double depth, std::optional<int64_t> trial, std::optional<NeedleTask> task) {
    return plan.covers({"none", 512, Retrieval{.depth = depth, .task = task, .trial = trial}});
  };
  EXPECT_TRUE(of(Kind::kGrowing, "dynamic", 512) && of(Kind::kPerplexity, "none", 256));
  EXPECT_FALSE(of(Kind::kGrowing, "none", 256) || of(Kind::kPerplexity, "none", 300));
  EXPECT_FALSE(of(Kind::kSpeed, "yarn", 512) || of(Kind::kDivergence, "none", 512));
  EXPECT_TRUE(found(0.5, {}, {}) && found(1, 4, NeedleTask::kPasskey));
  EXPECT_FALSE(found(0.25, {}, {}) || found(1, 5, {}) || found(1, {}, NeedleTask::kMultikey));
  plan.passkey.tasks = {NeedleTask::kMultikey};
  EXPECT_TRUE(found(0, {}, NeedleTask::kMultikey));
  EXPECT_FALSE(found(0, {}, {}));
  for (const std::optional<int64_t> trial : {std::optional<int64_t>(0), {}}) {
    for (const double depth : plan.passkey.depths) {
      EXPECT_EQ(log.missing({{Kind::kPasskey, "none", 512}}).size(), 1U) << depth;
      log.records.push_back(
          {"none", 512, Retrieval{.depth = depth, .task = NeedleTask::kMultikey, .trial = trial}});
    }
  }
  EXPECT_TRUE(log.missing({{Kind::kPasskey, "none", 512}}).empty());
  plan.growing.measured = plan.speed.measured = false;
  plan.against = PlanAgainst{};
  EXPECT_TRUE(of(Kind::kDivergence, "none", 512));
  EXPECT_FALSE(of(Kind::kGrowing, "none", 512) || of(Kind::kSpeed, "none", 512) ||
               of(Kind::kPerplexity, "dynamic", 512));
}

// "/a/0/b" -> "a[0].b"
std::string member_at(const std::string& pointer) {
  if (pointer.starts_with("/methods")) return "methods";
  const std::string indexed = std::regex_replace(pointer.substr(1), std::regex("/([0-9]+)"), "[$1]");
  return replace_all(indexed, "/", ".");
}

TEST(MeasurementLogs, DamagedLinesAreNamed) {
  const Json header = to_json(empty_plan());
  const auto error = [](const std::string& lines) {
    return error_of([&] { parse_log(lines, "log.jsonl"); });
  };
  // word "": no error
  const auto expect_line = [&](const std::string& lines, const std::string& word) {
    const std::string found = error(lines + "\n");
    const auto number = std::count(lines.begin(), lines.end(), '\n') + 1;
    EXPECT_EQ(found.empty(), word.empty()) << lines << found;
    if (word.empty()) return;
    EXPECT_TRUE(names(found, fmt::format("log.jsonl | {} | {}", number, word))) << lines;
    EXPECT_FALSE(names(found, "null")) << lines;
  };
  for (const char* name : {"sweep", "shard", "sliding", "growing", "passkey"}) {
    std::istringstream log(slurp(golden_dir() / "logs" / (std::string(name) + ".jsonl")));
    std::string first, line;
    for (int number = 1; std::getline(log, line); ++number) {
      if (number == 1) first = line;
      const Json whole = Json::parse(line), flat = whole.flatten();
      for (const auto& [path, value] : flat.items()) {
        Json damaged = whole;
        damaged[Json::json_pointer(path)] = {{"unexpected", true}};
        if (path == "/lariat_sweep") continue;
        expect_line((number == 1 ? "" : first + "\n") + damaged.dump(), "\"" + member_at(path));
      }
    }
  }
  for (const auto& [pointer, value] :
       std::vector<std::pair<const char*, Json>>{{"/text", nullptr},
                                                 {"/model", "x"},
                                                 {"/original_ctx", 0},
                                                 {"/original_ctx", 1e300},
                                                 {"/lengths", Json::array()},
                                                 {"/lengths/0", 1.5},
                                                 {"/scalings", std::vector<std::string>(101, "yarn")},
                                                 {"/passkey/depths/0", 2},
                                                 {"/methods", "x"},
                                                 {"/perplexity/max_tokens", int64_t{5} << 60},
                                                 {"/passkey/needles", 0},
                                                 {"/passkey/task", "x"},
                                                 {"/growing/step", 0},
                                                 {"/growing/columns", Json::array()}}) {
    Json damaged = header;
    damaged[Json::json_pointer(pointer)] = value;
    expect_line(damaged.dump(), "\"" + member_at(pointer));
  }
  Json wide = header;
  wide["lengths"] = wide["passkey"]["depths"] = std::vector<int64_t>(100, 1);
  expect_line(wide.dump(), "");
  wide["passkey"]["tasks"] = {"passkey", "multikey"};
  expect_line(wide.dump(), "lengths");
  for (const char* kind : {"growing", "perplexity"}) {
    Json silent = header;
    silent["text"] = nullptr;
    silent[kind]["measured"] = false;
    expect_line(silent.dump(), "\"text");
  }
  Json newer = header;
  newer["lariat_sweep"] = 2;
  EXPECT_TRUE(names(error(newer.dump() + "\n"), "log.jsonl"));
  EXPECT_TRUE(names(error("{\"results\":[]}\n"), "log.jsonl"));
  EXPECT_TRUE(names(error(header.dump()), "log.jsonl"));
  for (
      const auto& [record, word] : std::vector<std::pair<std::string, std::string>>{
          {"nonsense", "JSON"},
          {"[1]", "JSON"},
          {R"({"kind":"speed"})", "scaling"},
          {R"({"kind":"speeds","scaling":"none","length":512,"cache_bytes":1})", "kind"},
          {R"({"kind":"perplexity","scaling":"none","length":512,"tokens":9})", ""},
          {R"({"kind":"passkey","scaling":"none","length":512,"depth":1.5,"trials":1,"correct":1})",
           "depth | 1.5"},
          {R"({"kind":"passkey","scaling":"none","length":512,"trials":1,"correct":1})", "depth"},
          {R"({"kind":"passkey","scaling":"none","length":512,"depth":1,"trials":1,"correct":2})", "correct"},
          {R"({"kind":"speed","scaling":"none","length":512,"cache_bytes":-1})", "cache_bytes"},
          {R"({"kind":"growing","scaling":"none","length":512,"tokens":1})", "positions"},
          {R"({"kind":"growing","scaling":"none","length":512,"tokens":1,"positions":[{"from":5,"to":5}]})",
           "positions[0].to"},
          {R"({"kind":"losses","scaling":"none","length":1,"sizes":[1],"window":0,"reached":0,"losses":[-1.5]})",
           "losses[0] | -1.5"}})
    expect_line(header.dump() + "\n" + record, word);
  Json perplexity = {{"kind", "perplexity"}, {"scaling", "none"}, {"length", 512}, {"tokens", 9}};
  perplexity["blocks"] = std::vector<double>(kMostBlocks + 1, 1);
  expect_line(header.dump() + "\n" + perplexity.dump(), "blocks");
}

TEST(MeasurementLogs, OtherModelsAndTextsAreRefused) {
  Plan there = empty_plan();
  there.model = {"m", "f1", "t1"};
  there.text = {"text.txt", 7, "f2"};
  there.passkey.haystack = {"hay.txt"};
  const auto refused = [&](const auto& change) {
    Plan here = there;
    change(here);
    const std::string lines = to_json(there).dump() + "\n" + to_json(here).dump() + "\n";
    return error_of([&] { parse_log(lines, "log.jsonl"); });
  };
  EXPECT_EQ(refused([](Plan& plan) { plan.model.name = "renamed"; }), "");
  EXPECT_EQ(refused([](Plan& plan) { plan.text->bytes = 8; }), "");
  EXPECT_TRUE(names(refused([](Plan& plan) { plan.model.fingerprint = "f3"; }), "model.fingerprint"));
  EXPECT_TRUE(names(refused([](Plan& plan) { plan.model.texts = "t3"; }), "model.texts"));
  const auto other_text = [](Plan& plan) { plan.text->fingerprint = "f3"; };
  EXPECT_TRUE(names(refused(other_text), "text.fingerprint"));
  const auto other_haystack = [](Plan& plan) { plan.passkey.haystack.fingerprint = "f3"; };
  EXPECT_TRUE(names(refused(other_haystack), "passkey.haystack.fingerprint"));
  const auto no_passkey = [&](Plan& plan) { other_haystack(plan), plan.passkey.measured = false; };
  const auto no_text = [](Plan& plan) {
    plan.text = {};
    plan.growing.measured = plan.perplexity.measured = false;
  };
  EXPECT_EQ(refused(no_passkey) + refused(no_text), "");
  no_passkey(there), no_text(there);
  EXPECT_EQ(refused([](Plan& plan) { plan.passkey = {.measured = true}; }), "");
  EXPECT_EQ(refused([](Plan& plan) { plan.text = TextFile{"text.txt"}; }), "");
}

TEST(MeasurementLogs, DuplicateLinesCountOnce) {
  const std::string once =
      R"({"kind":"speed","scaling":"none","length":512,"cache_bytes":1,"timing":{"seconds":)";
  const std::string log = to_json(empty_plan()).dump() + "\n" + once + "1}}\n" + once + "2}}\n";
  EXPECT_EQ(parse_log(log, "log.jsonl").records.size(), 1U);
  const std::string other_line = R"({"kind":"speed","scaling":"none","length":512,"cache_bytes":2})";
  EXPECT_TRUE(names(error_of([&] { parse_log(log + other_line + "\n", "log.jsonl"); }),
                    "log.jsonl | 4 | speed/none/512"));
}

TEST(MeasurementLogs, LaterHeadersSelectEarlierResults) {
  const auto sizes = [](const std::vector<Json>& lines) {
    std::string log;
    for (const Json& line : lines) log += line.dump() + "\n";
    std::vector<int64_t> found;
    for (const Record& record : parse_log(log, "log.jsonl").records)
      found.push_back(std::get<Speed>(record.value).cache_bytes);
    return found;
  };
  const auto speed = [](int64_t length, int64_t bytes) {
    return Json{{"kind", "speed"}, {"scaling", "none"}, {"length", length}, {"cache_bytes", bytes}};
  };
  const Json header = to_json(empty_plan()), other = changed_setting(header, "/options/dtype");
  Json longest = header;
  longest["lengths"] = {512};
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes({header, speed(256, 1), speed(512, 2), longest}), Sizes{2});
  EXPECT_EQ(sizes({header, speed(512, 2), header, speed(256, 1), speed(512, 2)}), (Sizes{2, 1}));
  EXPECT_EQ(sizes({header, speed(512, 2), other, speed(512, 3)}), Sizes{3});
}

TEST(MeasurementLogs, LossesOfEveryKindAndWindowAreKept) {
  std::string log = to_json(empty_plan()).dump() + "\n";
  for (const char* of : {"growing", "perplexity"}) {
    for (const int window : {0, 1, 1}) {
      const Json part = {{"kind", "losses"}, {"scaling", "none"}, {"length", 512}, {"of", of},
                         {"window", window}, {"reached", 0},      {"sizes", {1}},  {"losses", {window}}};
      log += part.dump() + "\n";
    }
  }
  EXPECT_EQ(parse_log(log, "log.jsonl").records.size(), 4U);
}

using MeasurementLogsOnDisk = FolderTest;

TEST_F(MeasurementLogsOnDisk, AreResumedAfterTheirLastLine) {
  const auto file = dir_ / "a.jsonl";
  const Plan plan = empty_plan();
  const auto resumed = [&](const Plan& of) {
    return MeasurementLog(file, of, true).contents().records.size();
  };
  MeasurementLog(file, plan, false).append({"none", 512, Speed{1}});
  const std::string whole = slurp(file), header = to_json(plan).dump() + "\n";
  EXPECT_EQ(whole, header + to_json(Record{"none", 512, Speed{1}}).dump() + "\n");
  namespace fs = std::filesystem;
  EXPECT_EQ(fs::status(file).permissions() & fs::perms::others_exec, fs::perms::none);
  put("a.jsonl", whole + whole.substr(0, 30));
  EXPECT_EQ(resumed(plan), 1U);
  EXPECT_EQ(slurp(file), whole);
  Plan other = plan;
  other.lengths = {256};
  EXPECT_EQ(resumed(other), 0U);
  EXPECT_EQ(slurp(file), whole + to_json(other).dump() + "\n");
  MeasurementLog(file, plan, false);
  EXPECT_EQ(slurp(file), header);
  put("a.jsonl", "");
  EXPECT_EQ(resumed(plan), 0U);
  EXPECT_EQ(slurp(file), header);
  EXPECT_TRUE(is_measurement_log(file));
  put("a.jsonl", "x");
  EXPECT_TRUE(names(error_of([&] { resumed(plan); }), "a.jsonl"));
  EXPECT_EQ(slurp(file), "x");
  put("b.jsonl", std::string(header.size(), ' '));
  EXPECT_FALSE(is_measurement_log(dir_ / "b.jsonl"));
}

TEST_F(MeasurementLogsOnDisk, StaySmallEnoughToResume) {
  const Record large{"none", 512, RowAnswer{.answer = std::string(40 << 20, 'x'), .score = 0}};
  for (const bool resume : {false, true}) {
    MeasurementLog log(dir_ / "a.jsonl", empty_plan(), resume);
    if (!resume) log.append(large);
    EXPECT_TRUE(names(error_of([&] { log.append(large); }), "a.jsonl")) << resume;
  }
  MeasurementLog device("/dev/null", empty_plan(), false);
  for (int i = 0; i < 2; ++i) device.append(large);
  EXPECT_TRUE(names(error_of([&] { MeasurementLog("/dev/full", empty_plan(), false); }), "/dev/full"));
  EXPECT_TRUE(names(error_of([&] { MeasurementLog("/dev/null", empty_plan(), true); }), "/dev/null"));
}

TEST_F(MeasurementLogsOnDisk, KeepTheLossesOfUnfinishedUnits) {
  const auto file = dir_ / "a.jsonl";
  MeasurementLog log(file, empty_plan(), false);
  LossJournal journal(log, "none", 512, Kind::kGrowing, true);
  journal.keep(3, {{1, NAN}, {2}}, 1);
  journal.keep(4, {{1}}, 0);
  log.append({"none", 512, Speed{1}});
  MeasurementLog resumed(file, empty_plan(), true);
  const auto known = [&](const Unit& unit, int64_t first, const std::vector<size_t>& sizes) {
    const LossJournal read(resumed, unit.column, unit.length, unit.kind, true);
    const auto* const losses = read.known(first, sizes);
    return losses == nullptr ? "" : Json(*losses).dump();
  };
  const Unit unit{Kind::kGrowing, "none", 512};
  EXPECT_EQ(known(unit, 3, {2, 1}), "[[1.0,null],[2.0]]");
  EXPECT_EQ(known(unit, 4, {1}), "[[1.0]]");
  EXPECT_EQ(known(unit, 5, {1}) + known(unit, 3, {1, 2}), "");
  for (const Unit& other :
       {Unit{Kind::kPerplexity, "none", 512}, {Kind::kGrowing, "yarn", 512}, {Kind::kGrowing, "none", 256}})
    EXPECT_EQ(known(other, 3, {2, 1}), "");
  EXPECT_TRUE(names(error_of([&] { known(unit, 4, {2}); }), "a.jsonl"));

  log.append({"none", 512, RowAnswer{.answer = std::string((64 << 20) - 2000, 'x')}});
  const LossJournal::Losses many(1, std::vector<double>(1000, 1));
  EXPECT_TRUE(names(error_of([&] { journal.keep(5, many, 0); }), "a.jsonl"));
  LossJournal optional(log, "none", 512, {}, false);
  optional.keep(5, many, 0);
  optional.keep(6, {{1}}, 0);
  EXPECT_EQ(std::filesystem::file_size(file), 0U);
}

TEST_F(MeasurementLogsOnDisk, AreMergedIfTheirSettingsAreTheSame) {
  Plan plan = empty_plan(), other = plan;
  other.columns = {"yarn"};
  other.lengths = {1024};
  MeasurementLog(dir_ / "a", plan, false).append({"none", 512, Speed{1}});
  MeasurementLog(dir_ / "b", other, false).append({"yarn", 1024, Speed{2}});
  const Measurements merged = merge_logs({dir_ / "a", dir_ / "b"});
  EXPECT_EQ(merged.keys(), (std::set<std::string>{"speed/none/512", "speed/yarn/1024"}));
  EXPECT_EQ(merged.plan.lengths, (std::vector<int64_t>{256, 512, 1024}));
  other.options.dtype = "f32";
  MeasurementLog(dir_ / "b", other, false).append({"yarn", 1024, Speed{2}});
  EXPECT_TRUE(names(error_of([&] { merge_logs({dir_ / "a", dir_ / "b"}); }), "options.dtype"));
}

}  // namespace
}  // namespace lariat::test
