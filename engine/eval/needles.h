#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/eval/answer_score.h"

namespace lariat {

// Retrieval tasks over a long text. All but kPasskey follow RULER (arXiv 2404.06654) with different wording.
enum class NeedleTask {
  kPasskey,     // a number; prompt of landmark-attention (arXiv 2305.16300) and YaRN's repository
  kMultikey,    // numbers of several names; the question asks for one name
  kMultivalue,  // several numbers of one name; all are requested
  kMultiquery,  // numbers of several names; all are requested
  kTracking,    // a variable and a chain of assignments from it; all are requested
};
inline constexpr NeedleTask kNeedleTasks[] = {NeedleTask::kPasskey, NeedleTask::kMultikey,
                                              NeedleTask::kMultivalue, NeedleTask::kMultiquery,
                                              NeedleTask::kTracking};
std::string_view name_of(NeedleTask task);
std::optional<NeedleTask> needle_task(std::string_view name);

struct NeedleOptions {
  NeedleTask task = NeedleTask::kPasskey;
  int64_t count = 4;  // names or numbers, kTracking: chain steps; at most kMostNeedles
};
inline constexpr int64_t kMostNeedles = 100;

// A prompt without its haystack.
struct Needles {
  struct Line {
    std::string text;
    double depth;  // fraction of the haystack before the line
  };
  std::string task;                   // the first line
  std::vector<Line> lines;            // in prompt order
  std::string question, answer;       // last line; start of the answer
  std::vector<std::string> expected;  // strings that a correct answer contains
};

// Portable random numbers: splitmix64 (Steele, Lea, Flood 2014).
class NeedleRandom {
 public:
  NeedleRandom(uint64_t seed, int64_t length, double depth, int64_t trial);
  int64_t below(int64_t limit);  // uniform in [0, limit)

 private:
  void mix(uint64_t value);
  uint64_t state_;
};

inline constexpr int64_t kLargestPasskey = 50000;
// Passkey prompt for a key in [1, kLargestPasskey] at `depth`.
Needles passkey_needles(int64_t key, double depth);
// Places one needle at `depth`: for kMultikey the requested one. The others are spread evenly, each at a
// random position of its section. kTracking keeps the chain's order.
Needles make_needles(const NeedleOptions& options, double depth, NeedleRandom random);

// "passkeys", "numbers (multikey)"
std::string needles_noun(NeedleTask task);

// file: haystack name; "": the noise text.
std::string hidden_in(const NeedleOptions& options, const std::string& file);

inline Metric metric_of(NeedleTask task) {
  return task == NeedleTask::kPasskey ? Metric::kKey : Metric::kAll;
}
// Expected strings that the answer contains, by the task's metric.
std::vector<std::string> found_in(NeedleTask task, std::string_view answer,
                                  const std::vector<std::string>& expected);

// "a", "a and b", "a, b and c"
std::string joined(const std::vector<std::string>& words);

}  // namespace lariat
