#include "engine/eval/sweep_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/eval/needles.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// Perplexities closer than this are called equal; worse than that a model says nothing.
constexpr double kTie = 1.005, kMostPerplexity = 1e100;

double number(const Json& record, const char* key) {
  return record.contains(key) && record[key].is_number() ? record[key].get<double>() : std::nan("");
}

std::string percent(double share) { return fmt::format("{} %", std::llround(100 * share)); }

GrowingValue growing_value(const Json& record) {
  GrowingValue value{record["scaling"], {}};
  const double factor = number(record, "factor");
  if (!std::isnan(factor)) value.label += fmt::format(" ×{:g}", factor);
  for (const auto& bucket : record["positions"]) {
    const int64_t tokens = bucket["tokens"];
    value.positions.push_back(
        {bucket["from"], bucket["to"], tokens, static_cast<double>(tokens) * number(bucket, "loss")});
  }
  return value;
}

// A scaling's name inside a sentence, where "none" would be misread.
std::string spoken(const std::string& scaling) { return scaling == "none" ? "the unscaled model" : scaling; }

std::string spoken_all(std::vector<std::string> scalings) {
  for (auto& scaling : scalings) scaling = spoken(scaling);
  return joined(scalings);
}

// The scalings that were measured at a length, in the table's order, with their values; and the best of them.
struct Ranking {
  std::vector<std::string> names, best;
  std::vector<double> values;

  void add(const std::string& name, double value) {
    names.push_back(name);
    values.push_back(value);
  }
  template <class IsBest>
  void choose(const IsBest& is_best) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (is_best(values[i])) best.push_back(names[i]);
    }
  }
  double lowest() const { return *std::ranges::min_element(values); }
  double highest() const { return *std::ranges::max_element(values); }
};

// The best: whose perplexity is within half a percent of the lowest.
Ranking by_perplexity(const SweepTable& table, int64_t length) {
  Ranking ranking;
  for (const auto& scaling : table.scalings) {
    if (const auto* value = find_cell(table.perplexity, {scaling, length})) ranking.add(scaling, value->ppl);
  }
  ranking.choose([&](double ppl) { return ppl <= ranking.lowest() * kTie; });
  return ranking;
}

// The best: who found the most keys, if any were found.
Ranking by_passkeys(const SweepTable& table, int64_t length) {
  Ranking ranking;
  for (const auto& scaling : table.scalings) {
    if (const auto value = table.retrieval(scaling, length)) ranking.add(scaling, value->share());
  }
  ranking.choose([&](double share) { return share > 0 && share == ranking.highest(); });
  return ranking;
}

// One sentence on who reads a length best.
std::string perplexity_sentence(const SweepTable& table, int64_t length) {
  const Ranking ranking = by_perplexity(table, length);
  const auto& [names, best, values] = ranking;
  if (names.size() < 2) return "";
  const std::string lowest = compact(ranking.lowest());
  if (best.size() == names.size())
    return fmt::format("At {} tokens every scaling reads alike (perplexity {}).", length, lowest);
  const auto worst = static_cast<size_t>(std::ranges::max_element(values) - values.begin());
  return fmt::format("At {} tokens {} {} the lowest perplexity, {}; {} is worst with {}.", length,
                     spoken_all(best), best.size() == 1 ? "has" : "have", lowest, spoken(names[worst]),
                     compact(values[worst]));
}

std::string passkey_sentence(const SweepTable& table, int64_t length) {
  const Ranking ranking = by_passkeys(table, length);
  const auto& [names, best, values] = ranking;
  if (names.size() < 2) return "";
  if (best.empty()) return fmt::format("At {} tokens no passkey is found.", length);
  const std::string most = percent(ranking.highest());
  if (best.size() == names.size())
    return fmt::format("At {} tokens every scaling finds {} of the passkeys.", length, most);
  size_t last = names.size() - 1;  // of equals, the last
  while (values[last] != ranking.lowest()) --last;
  return fmt::format("At {} tokens {} {} the most passkeys, {}; {} finds {}.", length, spoken_all(best),
                     best.size() == 1 ? "finds" : "find", most, spoken(names[last]), percent(values[last]));
}

// The scalings that are best at the most lengths beyond the original, where a scaling has something to do.
struct Winners {
  std::vector<std::string> names;
  std::string where;  // " at 2 of 3 lengths"
};

Winners winners(const SweepTable& table, Ranking (*rank)(const SweepTable&, int64_t)) {
  std::map<std::string, int> wins;
  int most = 0, measured = 0;
  for (const int64_t length : table.lengths) {
    if (length <= table.original_ctx) continue;
    const std::vector<std::string> names = rank(table, length).best;
    measured += names.empty() ? 0 : 1;
    for (const auto& name : names) most = std::max(most, ++wins[name]);
  }
  Winners result;
  for (const auto& scaling : table.scalings) {
    if (most > 0 && wins[scaling] == most) result.names.push_back(scaling);
  }
  result.where =
      measured == 1 ? " at the one length measured" : fmt::format(" at {} of {} lengths", most, measured);
  return result;
}

std::string overall_sentence(const SweepTable& table) {
  const Winners read = winners(table, by_perplexity), found = winners(table, by_passkeys);
  if (table.scalings.size() < 2 || (read.names.empty() && found.names.empty())) return "";
  const auto verb = [](const Winners& by, const char* word) {
    return fmt::format("{} {}{}", spoken_all(by.names), word, by.names.size() == 1 ? "s" : "");
  };
  std::string sentence = fmt::format("Beyond the original {} tokens, ", table.original_ctx);
  if (read.names == found.names) {
    return sentence + fmt::format("{}: lowest perplexity{}, most passkeys{}.", verb(read, "win"), read.where,
                                  found.where);
  }
  if (!read.names.empty()) sentence += fmt::format("{} best{}", verb(read, "read"), read.where);
  if (!read.names.empty() && !found.names.empty()) sentence += ", and ";
  if (!found.names.empty())
    sentence += fmt::format("{} the most passkeys{}", verb(found, "find"), found.where);
  return sentence + ".";
}

// --- a growing context ---

// The end of a bucket that is nearest to `position`, but not the beginning of the first.
int64_t nearest_end(const std::vector<PositionBucket>& buckets, int64_t position) {
  const auto distance = [&](const PositionBucket& bucket) { return std::abs(bucket.to - position); };
  return std::ranges::min_element(buckets, {}, distance)->to;
}

// Says what growing costs the scalings that follow the length, with keys left stale and not.
std::string growing_sentence(const SweepTable& table, const PositionRange& before,
                             const PositionRange& after) {
  std::vector<std::string> parts;
  const auto times = [&](const std::string& column) -> std::optional<double> {
    const auto early = growing_perplexity(table, column, before);
    const auto late = growing_perplexity(table, column, after);
    if (!early || !late) return std::nullopt;
    return *late / *early;
  };
  for (const auto& column : table.growing_columns) {
    if (!is_stale(column)) continue;
    const std::string scaling = scaling_of(column);
    const auto consistent = times(scaling), stale = times(column);
    if (!consistent || !stale) continue;
    const char* that = parts.empty() ? " times that of the positions before" : "";
    parts.push_back(fmt::format("under {} {}{} ({} with stale keys)", scaling, compact(*consistent), that,
                                compact(*stale)));
  }
  const auto unscaled = times("none");
  if (parts.empty()) return "";
  if (unscaled) parts.push_back("under the unscaled model " + compact(*unscaled));
  return fmt::format("While the context grows from {} to {} tokens, perplexity is {}.", after.from, after.to,
                     joined(parts));
}

// Says what a factor for the longest text costs the short ones, beside the first column that is as good as
// any.
std::string early_sentence(const SweepTable& table, const PositionRange& before) {
  Ranking ranking;
  for (const auto& column : table.growing_columns) {
    if (const auto ppl = growing_perplexity(table, column, before))
      ranking.add(spoken(table.growing.at(column).label), *ppl);
  }
  const auto& [names, unused, values] = ranking;
  size_t good = 0;
  while (good < names.size() && values[good] > ranking.lowest() * kTie) ++good;
  std::vector<std::string> parts;
  for (size_t i = 0; i < names.size(); ++i) {
    const double ratio = values[i] / values[good];
    if (ratio <= kTie) continue;
    parts.push_back(ratio < 2 ? fmt::format("{} {:.1f} % more", names[i], 100 * (ratio - 1))
                              : fmt::format("{} {} times that", names[i], compact(ratio)));
  }
  if (parts.empty()) return "";
  return fmt::format("Before position {} perplexity is {} under {}; {}.", before.to, compact(values[good]),
                     names[good], joined(parts));
}

std::vector<std::string> growing_sentences(const SweepTable& table) {
  const auto ranges = growing_ranges(table);
  if (ranges.size() < 2) return {};
  const PositionRange before = ranges.front(), after{before.to, ranges.back().to};
  return {growing_sentence(table, before, after), early_sentence(table, before)};
}

}  // namespace

RetrievalValue& RetrievalValue::operator+=(const RetrievalValue& other) {
  trials += other.trials;
  found += other.found;
  in_parts = in_parts || other.in_parts;
  return *this;
}

std::optional<RetrievalValue> SweepTable::retrieval(const std::string& scaling, int64_t length) const {
  RetrievalValue sum;
  for (const double depth : depths) {
    if (const auto* value = find_cell(passkey, {scaling, length, depth})) sum += *value;
  }
  if (sum.trials == 0) return std::nullopt;
  return sum;
}

SweepTable tabulate(const SweepRecords& log) {
  const Json& header = log.header;
  SweepTable table;
  table.original_ctx = header["original_ctx"];
  table.scalings = header["scalings"].get<std::vector<std::string>>();
  table.lengths = header["lengths"].get<std::vector<int64_t>>();
  table.depths = header["passkey"]["depths"].get<std::vector<double>>();
  if (header["growing"]["measured"]) table.growing_columns = header["growing"]["columns"];
  for (const auto& record : log.records) {
    const std::pair<std::string, int64_t> cell(record["scaling"], record["length"]);
    if (record["kind"] == "perplexity") {
      PerplexityValue value{number(record, "ppl"), number(record, "stderr")};
      if (!(value.standard_error >= 0 && value.standard_error <= kMostPerplexity))
        value.standard_error = std::nan("");
      if (value.ppl >= 0.5 && value.ppl <= kMostPerplexity) table.perplexity[cell] = value;
    } else if (record["kind"] == "passkey") {
      const bool in_parts = record.value("recall", Json()).is_number();
      table.passkey[{cell.first, cell.second, record["depth"]}] = {
          record["trials"], record[in_parts ? "recall" : "correct"], in_parts};
    } else if (record["kind"] == "growing") {
      if (cell.second == table.lengths.back()) table.growing[cell.first] = growing_value(record);
    } else {
      const Json timing = record.value("timing", Json());
      table.speed[cell] = {number(timing, "prefill_tok_s"), number(timing, "decode_tok_s"),
                           record["cache_bytes"]};
    }
  }
  return table;
}

std::vector<std::string> conclusions(const SweepTable& table) {
  std::vector<std::string> sentences;
  for (const int64_t length : table.lengths) sentences.push_back(perplexity_sentence(table, length));
  for (const int64_t length : table.lengths) sentences.push_back(passkey_sentence(table, length));
  for (auto& sentence : growing_sentences(table)) sentences.push_back(std::move(sentence));
  sentences.push_back(overall_sentence(table));
  std::erase(sentences, "");
  return sentences;
}

std::vector<PositionRange> growing_ranges(const SweepTable& table) {
  for (const auto& column : table.growing_columns) {
    const GrowingValue* value = find_cell(table.growing, column);
    if (value == nullptr || value->positions.empty()) continue;
    const auto& buckets = value->positions;
    std::vector<PositionRange> ranges;
    int64_t from = 0;
    for (const int64_t end : {table.original_ctx, 2 * table.original_ctx, buckets.back().to}) {
      const int64_t to = nearest_end(buckets, end);
      if (to > from) ranges.push_back({from, to});
      from = std::max(from, to);
    }
    return ranges;
  }
  return {};
}

std::optional<double> growing_perplexity(const SweepTable& table, const std::string& column,
                                         const PositionRange& range) {
  const GrowingValue* value = find_cell(table.growing, column);
  if (value == nullptr) return std::nullopt;
  double nll = 0, tokens = 0;
  for (const auto& bucket : value->positions) {
    if (bucket.from < range.from || bucket.to > range.to || bucket.tokens == 0) continue;
    nll += bucket.nll;
    tokens += static_cast<double>(bucket.tokens);
  }
  const double ppl = std::exp(nll / tokens);
  if (tokens == 0 || !(ppl >= 0.5 && ppl <= kMostPerplexity)) return std::nullopt;
  return ppl;
}

std::string compact(double value) {
  if (std::isnan(value)) return "nan";  // whose sign would be printed
  if (value >= 1e6) return fmt::format("{:.2g}", value);
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

}  // namespace lariat
