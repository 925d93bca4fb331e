#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Scores of an answer against its references, in [0, 1], as the benchmarks' own scorers compute them. Case is
// ignored as by Python's str.lower().
namespace lariat {

enum class Metric { kAll, kPart, kChoice, kF1, kMrcr, kExact, kRuler2All, kRuler2Steps, kRuler2Part, kKey };
struct MetricRow {
  std::string_view name, rule;
};
inline constexpr MetricRow kMetrics[] = {
    {"all", "RULER string_match_all: share of references that the answer contains"},
    {"part", "RULER string_match_part: 1 if the answer contains a reference"},
    {"choice", "letter in \\boxed{}, else after the last \"Answer:\", equals the reference"},
    {"f1",
     "GraphWalks: F1 of the nodes in the last line, \"Final Answer: [a, b]\"; unreadable 0, both empty 1"},
    {"mrcr", "MRCR: ratio of Python's difflib after the required first string; without that string 0"},
    {"exact", "1 if the answer without surrounding white space equals a reference"},
    {"rulerv2-all",
     "RULERv2 all: after \"</think>\" and \"Answer:\", mean of max(contained, 1 - word error rate)"},
    {"rulerv2-2steps", "RULERv2 2steps: as rulerv2-all, of the last paragraph"},
    {"rulerv2-part", "RULERv2 part: as rulerv2-all without \"Document N\" blocks, best reference"},
    {"passkey", "1 if the answer's first integer equals the reference"},
};
inline const MetricRow& row_of(Metric metric) { return kMetrics[static_cast<size_t>(metric)]; }
std::optional<Metric> find_metric(std::string_view name);

// references: kMrcr: the expected answer, then the string that answers must begin with. Only kF1 allows none.
double score_of(Metric metric, std::string_view answer, const std::vector<std::string>& references);
// Whether scores are 0 or 1 with this number of references.
bool is_binary(Metric metric, size_t references);
// RULER's "nulls": no character but white space and control characters.
bool is_empty_answer(std::string_view answer);

}  // namespace lariat
