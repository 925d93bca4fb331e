#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lariat {

// The tasks: something is hidden in a long text and asked for at its end. All but the first follow RULER
// (arXiv 2404.06654), in other words than its own.
enum class NeedleTask {
  kPasskey,     // a number: the prompt of landmark-attention (arXiv 2305.16300) and of the YaRN repository
  kMultikey,    // the numbers of several names, one of which is asked for
  kMultivalue,  // several numbers of one name, all asked for
  kMultiquery,  // the numbers of several names, all asked for
  kTracking,    // a variable with a value and a chain of others that take it over, all asked for
};
inline constexpr NeedleTask kNeedleTasks[] = {NeedleTask::kPasskey, NeedleTask::kMultikey,
                                              NeedleTask::kMultivalue, NeedleTask::kMultiquery,
                                              NeedleTask::kTracking};
std::string_view name_of(NeedleTask task);
std::optional<NeedleTask> needle_task(std::string_view name);

struct NeedleOptions {
  NeedleTask task = NeedleTask::kPasskey;
  int64_t count = 4;  // names or numbers that are hidden, at most kMostNeedles; of a chain, its steps
};
inline constexpr int64_t kMostNeedles = 100;

// A prompt without its hay.
struct Needles {
  struct Line {
    std::string text;
    double depth;  // the share of the hay that stands before it
  };
  std::string task;                   // the first line
  std::vector<Line> lines;            // in the order in which they stand
  std::string question, answer;       // the last line, and how the answer begins
  std::vector<std::string> expected;  // the words that the answer has to hold
};

// Numbers that are the same wherever this is built: splitmix64 (Steele, Lea, Flood 2014).
class NeedleRandom {
 public:
  // The numbers of one trial, whatever else is measured.
  NeedleRandom(uint64_t seed, int64_t length, double depth, int64_t trial);
  int64_t below(int64_t limit);  // 0 ... limit - 1

 private:
  void mix(uint64_t value);
  uint64_t state_;
};

inline constexpr int64_t kLargestPasskey = 50000;
// The passkey prompt of a key, 1 ... kLargestPasskey, at `depth`.
Needles passkey_needles(int64_t key, double depth);
// A needle stands at `depth`, of kMultikey the one that is asked for; the others are spread evenly, each at a
// random place of its part of the hay. A chain keeps its order: its steps take these places one by one. A
// passkey is uniform in its range.
Needles make_needles(const NeedleOptions& options, double depth, NeedleRandom random);

// The word for what is found in a sentence or heading: "passkeys", "numbers (multikey)".
std::string things_of(NeedleTask task);

// A sentence that says what is hidden and asked for; `file`: the name of the hay, "" for the noise.
std::string hidden_in(const NeedleOptions& options, const std::string& file);

// Those of `expected` that the answer holds. A passkey is to be its first integer (leading zeros do not
// matter; a longer number that holds it is wrong). Of other tasks all count that stand anywhere in it, as
// parts of longer words and numbers too, and whether letters are large or small: their share is RULER's score
// (string_match_all).
std::vector<std::string> found_in(NeedleTask task, std::string_view answer,
                                  const std::vector<std::string>& expected);

// The words as a list in a sentence: "a", "a and b", "a, b and c".
std::string joined(const std::vector<std::string>& words);

}  // namespace lariat
