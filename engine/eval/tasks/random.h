#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lariat {

// random.Random(seed) of CPython 3.11, draw for draw (Lib/random.py, Modules/_randommodule.c). Ranges are
// below 2^32.
class PythonRandom {
 public:
  explicit PythonRandom(uint32_t seed);

  uint32_t bits(int count);  // getrandbits of 1 to 32 bits
  double real();             // random()
  uint32_t below(uint32_t limit);
  int64_t between(int64_t low, int64_t high);            // randint: includes both
  std::vector<size_t> sample(size_t limit, size_t count);  // sample(range(limit), count); count <= limit
  std::string letters(char first, size_t count);         // choices of the 26 letters from `first`
  std::string uuid();                                    // str(uuid.UUID(int=getrandbits(128), version=4))
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[below(static_cast<uint32_t>(i + 1))]);
  }

 private:
  std::mt19937 engine_;
};

// randint(low, high), without high, of numpy's legacy generator; numpy.random.seed(s) is std::mt19937(s).
int64_t numpy_randint(std::mt19937& engine, int64_t low, int64_t high);

}  // namespace lariat
