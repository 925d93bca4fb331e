#include "engine/eval/sweep_results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// A model that predicts worse than this says nothing, and charts need room for powers of ten.
constexpr double kMostPerplexity = 1e100;
constexpr double kTie = 1.005;  // perplexities closer than this are called equal

double number(const Json& record, const char* key) {
  return record.contains(key) && record[key].is_number() ? record[key].get<double>() : std::nan("");
}

double timing(const Json& record, const char* key) {
  return record.contains("timing") ? number(record["timing"], key) : std::nan("");
}

std::string percent(double share) { return std::to_string(std::llround(100 * share)) + " %"; }

std::string tokens(int64_t n) { return std::to_string(n) + " tokens"; }

std::string has_have(const std::vector<std::string>& names) { return names.size() == 1 ? "has" : "have"; }

template <class Map, class Key>
auto find(const Map& map, const Key& key) -> std::optional<typename Map::mapped_type> {
  const auto found = map.find(key);
  if (found == map.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> notes_of(const Json& header) {
  std::vector<std::string> notes;
  const Json& perplexity = header["perplexity"];
  if (perplexity["measured"]) {
    std::string note = "Perplexity of " + header["text"]["name"].get<std::string>() + ", ";
    note += perplexity["method"] == "sliding"
                ? "sliding windows moved by " + perplexity["stride"].dump() + " tokens"
                : "disjoint windows, their second half";
    if (perplexity["max_tokens"] != 0) note += ", first " + perplexity["max_tokens"].dump() + " tokens";
    notes.push_back(note + "; bars are one standard error.");
  }
  const Json& passkey = header["passkey"];
  if (passkey["measured"]) {
    notes.push_back("Passkeys: " + passkey["trials"].dump() + " trials for each length and depth, seed " +
                    passkey["seed"].dump() + ", the same keys for every scaling.");
  }
  const Json& options = header["options"];
  const std::string factor = options["factor"].is_null()
                                 ? "linear, ntk and yarn stretch by length / " + header["original_ctx"].dump()
                                 : "all factors are " + options["factor"].dump();
  notes.push_back("Scalings: " + factor + "; dynamic ones follow the length by themselves" +
                  (options["stale_cache"] ? ", with cached keys left stale." : "."));
  notes.push_back("Backend " + options["backend"].get<std::string>() + ", weights " +
                  options["dtype"].get<std::string>() + ", keys " + options["k_dtype"].get<std::string>() +
                  ", values " + options["v_dtype"].get<std::string>() + ".");
  return notes;
}

// A scaling's name inside a sentence, where "none" would be misread.
std::string spoken(const std::string& scaling) { return scaling == "none" ? "the unscaled model" : scaling; }

std::string spoken(std::vector<std::string> scalings) {
  for (auto& scaling : scalings) scaling = spoken(scaling);
  return joined(scalings);
}

// One sentence on who reads a length best.
std::string perplexity_sentence(const SweepTable& table, int64_t length) {
  const auto best = best_by_perplexity(table, length);
  size_t measured = 0;
  std::string worst;
  double lowest = HUGE_VAL, highest = 0;
  for (const auto& scaling : table.scalings) {
    const auto value = table.perplexity_at(scaling, length);
    if (!value) continue;
    ++measured;
    lowest = std::min(lowest, value->ppl);
    if (value->ppl > highest) worst = scaling;
    highest = std::max(highest, value->ppl);
  }
  if (measured < 2) return "";
  if (best.size() == measured) {
    return "At " + tokens(length) + " every scaling reads alike (perplexity " + compact(lowest) + ").";
  }
  return "At " + tokens(length) + " " + spoken(best) + " " + has_have(best) + " the lowest perplexity, " +
         compact(lowest) + "; " + spoken(worst) + " is worst with " + compact(highest) + ".";
}

std::string passkey_sentence(const SweepTable& table, int64_t length) {
  std::vector<std::string> measured;
  double most = 0, least = 1;
  std::string last;
  for (const auto& scaling : table.scalings) {
    const auto value = table.passkey_at(scaling, length);
    if (!value) continue;
    measured.push_back(scaling);
    most = std::max(most, value->share());
    if (value->share() <= least) last = scaling;
    least = std::min(least, value->share());
  }
  if (measured.size() < 2) return "";
  const std::string at = "At " + tokens(length) + " ";
  if (most == 0) return at + "no passkey is found.";
  const auto best = best_by_passkey(table, length);
  if (best.size() == measured.size())
    return at + "every scaling finds " + percent(most) + " of the passkeys.";
  return at + spoken(best) + (best.size() == 1 ? " finds" : " find") + " the most passkeys, " +
         percent(most) + "; " + spoken(last) + " finds " + percent(least) + ".";
}

std::vector<std::string> most_wins(const SweepTable& table, const std::map<std::string, int>& wins,
                                   int& count) {
  std::vector<std::string> names;
  count = 0;
  for (const auto& [name, n] : wins) count = std::max(count, n);
  for (const auto& scaling : table.scalings) {
    const auto found = wins.find(scaling);
    if (count > 0 && found != wins.end() && found->second == count) names.push_back(scaling);
  }
  return names;
}

std::string at_lengths(int count, int of) {
  if (of == 1) return " at the one length measured";
  return " at " + std::to_string(count) + " of " + std::to_string(of) + " lengths";
}

// Over the lengths beyond the original, where a scaling has something to do.
std::string overall_sentence(const SweepTable& table) {
  std::map<std::string, int> reading, finding;
  int read = 0, found = 0;
  for (const int64_t length : table.lengths) {
    if (length <= table.original_ctx) continue;
    for (const auto& name : best_by_perplexity(table, length)) ++reading[name];
    for (const auto& name : best_by_passkey(table, length)) ++finding[name];
    read += best_by_perplexity(table, length).empty() ? 0 : 1;
    found += best_by_passkey(table, length).empty() ? 0 : 1;
  }
  if (table.scalings.size() < 2 || read + found == 0) return "";
  std::string sentence = "Beyond the original " + tokens(table.original_ctx) + ", ";
  int count = 0;
  const auto readers = most_wins(table, reading, count);
  const std::string at_read = at_lengths(count, read);
  const auto finders = most_wins(table, finding, count);
  const std::string at_found = at_lengths(count, found);
  const auto verb = [](const auto& names, const char* one, const char* many) {
    return names.size() == 1 ? one : many;
  };
  if (!readers.empty() && readers == finders) {
    return sentence + spoken(readers) + verb(readers, " wins", " win") + ": lowest perplexity" + at_read +
           ", most passkeys" + at_found + ".";
  }
  if (!readers.empty()) sentence += spoken(readers) + verb(readers, " reads", " read") + " best" + at_read;
  if (!readers.empty() && !finders.empty()) sentence += ", and ";
  if (!finders.empty())
    sentence += spoken(finders) + verb(finders, " finds", " find") + " the most passkeys" + at_found;
  return sentence + ".";
}

}  // namespace

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
    const auto value = passkey_at(scaling, length, depth);
    if (!value) continue;
    sum.trials += value->trials;
    sum.correct += value->correct;
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
  table.notes = notes_of(header);
  for (const auto& record : log.records) {
    const std::pair<std::string, int64_t> cell(record["scaling"], record["length"]);
    if (record["kind"] == "perplexity") {
      PerplexityValue value{number(record, "ppl"), number(record, "stderr"), record["tokens"]};
      if (!(value.standard_error >= 0 && value.standard_error <= kMostPerplexity))
        value.standard_error = std::nan("");
      if (value.ppl >= 0.5 && value.ppl <= kMostPerplexity) table.perplexity[cell] = value;
    } else if (record["kind"] == "passkey") {
      table.passkey[{cell.first, cell.second, record["depth"]}] = {record["trials"], record["correct"]};
    } else {
      table.speed[cell] = {timing(record, "prefill_tok_s"), timing(record, "decode_tok_s"),
                           record["cache_bytes"]};
    }
  }
  return table;
}

std::vector<std::string> best_by_perplexity(const SweepTable& table, int64_t length) {
  double lowest = HUGE_VAL;
  for (const auto& scaling : table.scalings) {
    if (const auto value = table.perplexity_at(scaling, length)) lowest = std::min(lowest, value->ppl);
  }
  std::vector<std::string> best;
  for (const auto& scaling : table.scalings) {
    const auto value = table.perplexity_at(scaling, length);
    if (value && value->ppl <= lowest * kTie) best.push_back(scaling);
  }
  return best;
}

std::vector<std::string> best_by_passkey(const SweepTable& table, int64_t length) {
  double most = 0;
  for (const auto& scaling : table.scalings) {
    if (const auto value = table.passkey_at(scaling, length)) most = std::max(most, value->share());
  }
  std::vector<std::string> best;
  for (const auto& scaling : table.scalings) {
    const auto value = table.passkey_at(scaling, length);
    if (most > 0 && value && value->share() == most) best.push_back(scaling);
  }
  return best;
}

std::vector<std::string> conclusions(const SweepTable& table) {
  std::vector<std::string> sentences;
  const auto add = [&](std::string sentence) {
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
  };
  for (const int64_t length : table.lengths) add(perplexity_sentence(table, length));
  for (const int64_t length : table.lengths) add(passkey_sentence(table, length));
  add(overall_sentence(table));
  return sentences;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

std::string compact(double value) {
  char text[48];
  if (value >= 1e6) {
    std::snprintf(text, sizeof text, "%.2g", value);
  } else {
    std::snprintf(text, sizeof text, "%.*f", value >= 100 ? 0 : value >= 10 ? 1 : 2, value);
  }
  return text;
}

}  // namespace lariat
