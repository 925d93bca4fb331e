#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lariat {

// random.Random(seed) of CPython 3.11, draw for draw (Lib/random.py). Ranges are below 2^32.
class PythonRandom {
 public:
  explicit PythonRandom(uint32_t seed);
  uint32_t bits(int count) { return static_cast<uint32_t>(engine_() >> (32 - count)); }  // 1 to 32
  double real();                                                                         // random()
  uint32_t below(size_t limit);
  std::vector<size_t> sample(size_t limit, size_t count);  // sample(range(limit), count); count <= limit
  std::string letters(char first, size_t count);           // choices of the 26 letters from `first`
  std::string uuid();                                      // UUID(int=getrandbits(128), version=4)
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[below(i + 1)]);
  }

 private:
  std::mt19937 engine_;
};

// randint(low, high) without high of numpy.random after seed(s), which is std::mt19937(s).
int64_t numpy_randint(std::mt19937& engine, int64_t low, int64_t high);

}  // namespace lariat
