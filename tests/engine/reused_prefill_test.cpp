#include <cmath>

#include "engine/eval/measure/windows.h"
#include "tests/engine/saved_context_util.h"
#include "tests/engine/sweep_fixture.h"

namespace lariat::test {
namespace {

class OtherScaling : public OnLlama {};

std::vector<float> layer0_keys(const Session& session, const Sequence& sequence) {
  const KvLayer& layer = session.pool().geometry().layers[0];
  const auto* keys = static_cast<const float*>(layer.keys(sequence.cache().pages()[0]));
  return {keys, keys + layer.n_kv_heads * kKvPage * layer.head_dim};
}

// Layer 0's keys depend on embeddings only. The source of the copy keeps its own.
TEST_F(OtherScaling, AForkHasTheKeysOfItsOwnPrefill) {
  const auto tokens = some_tokens(300, model_.spec.vocab_size);
  for (const Change& change : kScalingChanges) {
    SCOPED_TRACE(std::string(change.from) + " " + change.to);
    const SessionOptions to = scaled_session(model_, change.to, change.to_factor);
    Session session(model_, backend_, scaled_session(model_, change.from, change.from_factor)),
        other(model_, backend_, to);
    Sequence source = session.new_sequence(), fresh = other.new_sequence();
    prefill(session, source, tokens);
    prefill(other, fresh, tokens);
    const std::vector<float> before = layer0_keys(session, source);
    Sequence copy = session.fork(source, source.length());
    session.set_rope(copy, *to.rope);
    decode(session, copy, 7);
    decode(other, fresh, 7);
    EXPECT_EQ(copy.cache().frequencies(), fresh.cache().frequencies());
    EXPECT_LE(max_abs_difference(layer0_keys(session, copy), layer0_keys(other, fresh)), 2e-6);
    EXPECT_EQ(layer0_keys(session, source), before);
    EXPECT_NE(layer0_keys(session, copy), before);
  }
}

class ReusedPrefill : public SmallSweep {
 protected:
  ReusedPrefill() : SmallSweep(256, fox_lines(400)) {
    options_.reuse = "dynamic-yarn";
    options_.tail = 64;
    options_.lengths = {600};
    options_.max_tokens = 1300;  // two windows
    options_.scalings = {"none", "linear", "dca", "dynamic-yarn"};
  }
};

TEST_F(ReusedPrefill, UnderItsOwnScalingHasTheBits) {
  const Schedule schedule(engine_, options_);
  const Unit unit{Kind::kPerplexity, "dynamic-yarn", 600};
  Session session(engine_.model, *engine_.backend, schedule.session_for(unit));
  PerplexityOptions options = schedule.perplexity_options(unit);
  const auto expected = measure_perplexity(session, *schedule.text(), options);
  Prefixes prefixes;
  fill_prefixes(session, *schedule.text(), options, 600, prefixes);
  EXPECT_EQ(prefixes.by_begin.size(), 2U);
  EXPECT_GT(prefixes.by_begin.begin()->second.length(), 0);
  options.prefixes = &prefixes;
  options.rope = session.rope();
  const auto reused = measure_perplexity(session, *schedule.text(), options);
  EXPECT_EQ(expected[0].tokens, 2 * 64);
  EXPECT_EQ(reused[0].nll, expected[0].nll);
}

TEST_F(ReusedPrefill, ACellContinuesAPrefillUnderAnotherScaling) {
  const Measurements log = run("log.jsonl");
  std::vector<std::string> columns;
  for (const Record& record : log.records) columns.push_back(record.column.name());
  // By default two others are prefilled as well, a method always.
  EXPECT_EQ(columns,
            (std::vector<std::string>{"dynamic-yarn", "none reused", "linear", "linear reused", "dca"}));
  EXPECT_EQ(run("log.jsonl").records.size(), columns.size());

  const Schedule schedule(engine_, options_);
  const Unit base{Kind::kPerplexity, "dynamic-yarn", 600};
  Session session(engine_.model, *engine_.backend, schedule.session_for(base));
  const PerplexityOptions options = schedule.perplexity_options(base);
  double nll = 0;
  for (const Window& window : windows_of(options, 600, *schedule.text())) {
    const auto tokens = schedule.text()->after_bos(options.bos, window.begin, window.end);
    Sequence sequence = session.new_sequence(),
             linear = session.new_sequence({.rope = schedule.scaling_for("linear", 600)});
    sequence.expect(600);
    prefill(session, sequence, std::span(tokens).first(512));
    const auto pages = sequence.cache().held_pages();
    session.restore(linear, {{pages.begin(), pages.end()}, 512, sequence.cache().frequencies()}, {}, 1);
    const Reading reading{&linear, tokens, 599, 600 - 64};
    score(session, {&reading, 1}, nullptr, [&](size_t, int64_t, double loss) { nll += loss; });
  }
  const double found = find_record(log, "perplexity", "linear reused")["nll"];
  EXPECT_NEAR(found, nll, 1e-9 * nll);
  EXPECT_NE(found, find_record(log, "perplexity", "linear")["nll"].get<double>());
}

TEST_F(ReusedPrefill, ResultsNameThePrefill) {
  const Measurements log = run("log.jsonl");
  size_t reused = 0;
  std::set<std::string> settings;
  for (const auto& row : csv_rows(csv_of(log))) {
    if (row.at("measure") != "perplexity") continue;
    reused += row.at("prefill") == "dynamic-yarn" ? 1 : 0;
    EXPECT_TRUE(settings.insert(row.at("settings")).second);
    EXPECT_EQ(row.at("step"), "64");
    EXPECT_EQ(row.at("stride"), "");
  }
  EXPECT_EQ(reused, 2U);
  // True prefills of a tail do not depend on what others reuse.
  options_.reuse = "yarn";
  options_.scalings = {"none", "linear"};
  const Measurements other = run("other.jsonl");
  const auto of = [](const Measurements& all, const char* column) {
    return all.plan.identity({column, 600, Loss()});
  };
  EXPECT_EQ(of(log, "linear"), of(other, "linear"));
  EXPECT_NE(of(log, "linear reused"), of(other, "linear reused"));
}

TEST_F(ReusedPrefill, WhatCannotBeReusedIsOneLine) {
  options_.reuse = "dca";
  EXPECT_TRUE(names(error_of([&] { run("log.jsonl"); }), "reuse_prefill | dca"));
  options_.reuse = "dynamic-yarn";
  options_.tail = 600;
  EXPECT_TRUE(names(error_of([&] { run("log.jsonl"); }), "600 | tail"));
  options_.reuse.clear();
  options_.scalings = {"yarn reused"};
  EXPECT_TRUE(names(error_of([&] { run("log.jsonl"); }), "yarn reused"));
}

}  // namespace
}  // namespace lariat::test
