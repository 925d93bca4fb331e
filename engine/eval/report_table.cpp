#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/eval/chart.h"
#include "engine/eval/report.h"
#include "kernels/counted.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

double number(const Json& record, const char* key) {
  return record.contains(key) && record[key].is_number() ? record[key].get<double>() : std::nan("");
}

double timing(const Json& record, const char* key) {
  return record.contains("timing") ? number(record["timing"], key) : std::nan("");
}

std::string percent(double share) { return fmt::format("{} %", std::llround(100 * share)); }

template <class Map, class Key>
auto find(const Map& map, const Key& key) -> std::optional<typename Map::mapped_type> {
  const auto found = map.find(key);
  if (found == map.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> notes_of(const SweepRecords& log) {
  const Json& header = log.header;
  const auto text = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  const auto tokens = [](const Json& n) { return counted(n.get<int64_t>(), "token"); };
  std::vector<std::string> notes;
  const Json& perplexity = header["perplexity"];
  if (perplexity["measured"]) {
    const std::string windows = perplexity["method"] == "sliding"
                                    ? fmt::format("sliding windows moved by {}", tokens(perplexity["stride"]))
                                    : "disjoint windows, their second half";
    const std::string most =
        perplexity["max_tokens"] == 0 ? "" : ", first " + tokens(perplexity["max_tokens"]);
    notes.push_back(fmt::format("Perplexity of {}, {}{}; bars are one standard error.",
                                text(header["text"]["name"]), windows, most));
  }
  const Json& growing = header["growing"];
  if (growing["measured"]) {
    notes.push_back(fmt::format(
        "The growing context reads {} {} at a time{}.", text(header["text"]["name"]), tokens(growing["step"]),
        perplexity["max_tokens"] == 0 ? std::string(", once")
                                      : fmt::format("; of its first {}, as many contexts as they fill",
                                                    tokens(perplexity["max_tokens"]))));
  }
  const Json& passkey = header["passkey"];
  if (passkey["measured"]) {
    notes.push_back(
        fmt::format("Passkeys: {} for each length and depth, seed {}, the same keys for every scaling.",
                    counted(passkey["trials"].get<int64_t>(), "trial"), text(passkey["seed"])));
  }
  const Json& options = header["options"];
  notes.push_back(fmt::format(
      "Scalings: {}{}; dynamic ones follow the length by themselves{}",
      options["factor"].is_null() ? "linear, ntk and yarn stretch by length / " : "all factors are ",
      text(options["factor"].is_null() ? header["original_ctx"] : options["factor"]),
      options["stale_cache"] ? ", with cached keys left stale." : "."));
  notes.push_back(fmt::format("Backend {}, weights {}, keys {}, values {}.", text(options["backend"]),
                              text(options["dtype"]), text(options["k_dtype"]), text(options["v_dtype"])));
  if (const std::string missing = left_out(log, all_units(header)); !missing.empty())
    notes.push_back("Not measured: " + missing + ".");
  return notes;
}

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

std::string spoken_all(std::vector<std::string> scalings) {
  for (auto& scaling : scalings) scaling = spoken(scaling);
  return joined(scalings);
}

// What was measured at a length: scalings, in the table's order, and their values.
using Values = std::vector<std::pair<std::string, double>>;

Values perplexities(const SweepTable& table, int64_t length) {
  Values values;
  for (const auto& scaling : table.scalings) {
    if (const auto value = table.perplexity_at(scaling, length)) values.emplace_back(scaling, value->ppl);
  }
  return values;
}

Values shares_found(const SweepTable& table, int64_t length) {
  Values values;
  for (const auto& scaling : table.scalings) {
    if (const auto value = table.passkey_at(scaling, length)) values.emplace_back(scaling, value->share());
  }
  return values;
}

bool is_less(const Values::value_type& a, const Values::value_type& b) { return a.second < b.second; }

template <class Wanted>
std::vector<std::string> names_where(const Values& values, const Wanted& wanted) {
  std::vector<std::string> names;
  for (const auto& [scaling, value] : values) {
    if (wanted(value)) names.push_back(scaling);
  }
  return names;
}

// One sentence on who reads a length best.
std::string perplexity_sentence(const SweepTable& table, int64_t length) {
  const Values values = perplexities(table, length);
  if (values.size() < 2) return "";
  const std::string lowest = compact(std::min_element(values.begin(), values.end(), is_less)->second);
  const auto& [worst, highest] = *std::max_element(values.begin(), values.end(), is_less);
  const auto best = best_by_perplexity(table, length);
  if (best.size() == values.size()) {
    return fmt::format("At {} tokens every scaling reads alike (perplexity {}).", length, lowest);
  }
  return fmt::format("At {} tokens {} {} the lowest perplexity, {}; {} is worst with {}.", length,
                     spoken_all(best), best.size() == 1 ? "has" : "have", lowest, spoken(worst),
                     compact(highest));
}

std::string passkey_sentence(const SweepTable& table, int64_t length) {
  const Values values = shares_found(table, length);
  if (values.size() < 2) return "";
  const double most = std::max_element(values.begin(), values.end(), is_less)->second;
  const auto& [last, least] = *std::min_element(values.rbegin(), values.rend(), is_less);
  if (most == 0) return fmt::format("At {} tokens no passkey is found.", length);
  const auto best = best_by_passkey(table, length);
  if (best.size() == values.size()) {
    return fmt::format("At {} tokens every scaling finds {} of the passkeys.", length, percent(most));
  }
  return fmt::format("At {} tokens {} {} the most passkeys, {}; {} finds {}.", length, spoken_all(best),
                     best.size() == 1 ? "finds" : "find", percent(most), spoken(last), percent(least));
}

// Who is best at the most lengths beyond the original, where a scaling has something to do.
struct Winners {
  std::vector<std::string> names;
  std::string where;  // " at 2 of 3 lengths"
};

template <class Best>
Winners winners(const SweepTable& table, const Best& best) {
  std::map<std::string, int> wins;
  int most = 0, measured = 0;
  for (const int64_t length : table.lengths) {
    if (length <= table.original_ctx) continue;
    const std::vector<std::string> names = best(table, length);
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
  const Winners read = winners(table, best_by_perplexity), found = winners(table, best_by_passkey);
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

}  // namespace

std::string RetrievalValue::found() const {
  return recall ? fmt::format("{:.1f}", *recall) : std::to_string(correct);
}

RetrievalValue& RetrievalValue::operator+=(const RetrievalValue& other) {
  if (recall || other.recall) recall = recall.value_or(0) + other.recall.value_or(0);
  trials += other.trials;
  correct += other.correct;
  return *this;
}

std::optional<PerplexityValue> SweepTable::perplexity_at(const std::string& scaling, int64_t length) const {
  return find(perplexity, std::pair(scaling, length));
}

std::optional<RetrievalValue> SweepTable::passkey_at(const std::string& scaling, int64_t length,
                                                     double depth) const {
  return find(passkey, std::tuple(scaling, length, depth));
}

std::optional<RetrievalValue> SweepTable::passkey_at(const std::string& scaling, int64_t length) const {
  RetrievalValue sum;
  for (const double depth : depths) {
    if (const auto value = passkey_at(scaling, length, depth)) sum += *value;
  }
  if (sum.trials == 0) return std::nullopt;
  return sum;
}

std::optional<SpeedValue> SweepTable::speed_at(const std::string& scaling, int64_t length) const {
  return find(speed, std::pair(scaling, length));
}

SweepTable tabulate(const SweepRecords& log) {
  const Json& header = log.header;
  SweepTable table;
  table.model = header["model"]["name"];
  if (!header["text"].is_null()) table.text = header["text"]["name"];
  table.original_ctx = header["original_ctx"];
  table.scalings = header["scalings"].get<std::vector<std::string>>();
  table.lengths = header["lengths"].get<std::vector<int64_t>>();
  table.depths = header["passkey"]["depths"].get<std::vector<double>>();
  table.notes = notes_of(log);
  if (header["growing"]["measured"]) table.growing_columns = header["growing"]["columns"];
  if (const Json& passkey = header["passkey"]; passkey.contains("task") && passkey["task"].is_string()) {
    const std::string hay = passkey["haystack"]["name"];
    table.hidden = hidden_in({needle_task(passkey["task"].get<std::string>()).value(), passkey["needles"]},
                             hay == "noise" ? "" : hay);
  }
  for (const auto& record : log.records) {
    const std::pair<std::string, int64_t> cell(record["scaling"], record["length"]);
    if (record["kind"] == "perplexity") {
      PerplexityValue value{number(record, "ppl"), number(record, "stderr"), record["tokens"]};
      if (!(value.standard_error >= 0 && value.standard_error <= kMostPerplexity))
        value.standard_error = std::nan("");
      if (value.ppl >= 0.5 && value.ppl <= kMostPerplexity) table.perplexity[cell] = value;
    } else if (record["kind"] == "passkey") {
      RetrievalValue value{record["trials"], record["correct"]};
      if (const auto recall = record.value("recall", Json()); recall.is_number()) value.recall = recall;
      table.passkey[{cell.first, cell.second, record["depth"]}] = value;
    } else if (record["kind"] == "growing") {
      if (cell.second == table.lengths.back()) table.growing[cell.first] = growing_value(record);
    } else {
      table.speed[cell] = {timing(record, "prefill_tok_s"), timing(record, "decode_tok_s"),
                           record["cache_bytes"]};
    }
  }
  return table;
}

std::vector<std::string> best_by_perplexity(const SweepTable& table, int64_t length) {
  const Values values = perplexities(table, length);
  const auto lowest = std::ranges::min_element(values, is_less);
  return names_where(values, [&](double ppl) { return ppl <= lowest->second * kTie; });
}

std::vector<std::string> best_by_passkey(const SweepTable& table, int64_t length) {
  const Values values = shares_found(table, length);
  const auto most = std::ranges::max_element(values, is_less);
  return names_where(values, [&](double share) { return share > 0 && share == most->second; });
}

std::vector<std::string> conclusions(const SweepTable& table) {
  std::vector<std::string> sentences;
  const auto add = [&](std::string sentence) {
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
  };
  for (const int64_t length : table.lengths) add(perplexity_sentence(table, length));
  for (const int64_t length : table.lengths) add(passkey_sentence(table, length));
  for (auto& sentence : growing_conclusions(table)) add(std::move(sentence));
  add(overall_sentence(table));
  return sentences;
}

std::string left_out(const SweepRecords& log, const std::vector<SweepUnit>& units) {
  const auto missing = missing_units(log, units);
  std::string text;
  for (auto unit = missing.begin(); unit != missing.end();) {
    const auto is_of = [&](const SweepUnit& other) {
      return other.kind == unit->kind && other.length == unit->length;
    };
    const auto end = std::find_if_not(unit, missing.end(), is_of);
    std::vector<std::string> names;
    for (auto each = unit; each != end; ++each) names.push_back(each->scaling);
    text += fmt::format("{}{} at {}", text.empty() ? "" : "; ", name_of(unit->kind), unit->length);
    if (std::ranges::count_if(units, is_of) > end - unit) text += " (" + joined(names) + ")";
    unit = end;
  }
  return text;
}

std::string spoken(const std::string& scaling) { return scaling == "none" ? "the unscaled model" : scaling; }

std::string compact(double value) {
  if (value >= 1e6) return fmt::format("{:.2g}", value);
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

}  // namespace lariat
