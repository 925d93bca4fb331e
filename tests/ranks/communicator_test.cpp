#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/ranks/ranks.h"

namespace lariat::test {
namespace {

// Values of a rank whose sum depends on the order of additions.
std::vector<float> values_of(int rank, size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    values[i] = std::sin(static_cast<float>(i * 7 + 1) * static_cast<float>(rank + 1)) *
                std::ldexp(1.0F, (rank * 5) % 12);
  }
  return values;
}

// Sum of all ranks, added in the given direction.
std::vector<float> sum_of_ranks(size_t n, bool reversed = false) {
  std::vector<float> sum;
  for (int i = 0; i < ranks().size(); ++i) {
    const auto values = values_of(reversed ? ranks().size() - 1 - i : i, n);
    if (i == 0) {
      sum = values;
    } else {
      for (size_t j = 0; j < n; ++j) sum[j] += values[j];
    }
  }
  return sum;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Bytes of a rank: 0, 1, 1000, 3, 2001, ...
size_t bytes_of(int rank) {
  return rank % 2 == 0 ? static_cast<size_t>(rank) * 500 + (rank > 0 ? 1 : 0) : static_cast<size_t>(rank);
}

struct Parts {
  std::vector<size_t> sizes;
  std::string mine, all;
};

Parts uneven_parts() {
  Parts parts;
  for (int r = 0; r < ranks().size(); ++r) {
    std::string part(bytes_of(r), ' ');
    for (size_t i = 0; i < part.size(); ++i)
      part[i] = static_cast<char>('a' + (i + static_cast<size_t>(r)) % 26);
    parts.sizes.push_back(part.size());
    parts.all += part;
    if (r == ranks().rank()) parts.mine = part;
  }
  return parts;
}

// All operations, on one group.
void expect_every_operation(Communicator& group) {
  for (const size_t n : {0, 1, 7, 1000, 4096, 4097, 100003}) {
    auto values = values_of(group.rank(), n);
    group.all_reduce(values);
    EXPECT_TRUE(equal_bits(values, sum_of_ranks(n))) << n << " values";
  }
  const Parts parts = uneven_parts();
  std::string all(parts.all.size(), '?');
  group.all_gather(parts.mine.data(), parts.sizes, all.data());
  EXPECT_EQ(all, parts.all);
  all.assign(parts.all.size(), '?');
  group.gather(parts.mine.data(), parts.sizes, group.rank() == 0 ? all.data() : nullptr);
  if (group.rank() == 0) {
    EXPECT_EQ(all, parts.all);
  }
  std::string text = group.rank() == 0 ? parts.all : std::string(parts.all.size(), '?');
  group.broadcast(text.data(), text.size());
  EXPECT_EQ(text, parts.all);
  group.broadcast(nullptr, 0);
  group.barrier();
}

TEST(CommunicatorTest, EveryOperationHasTheResultOfRankOrder) { expect_every_operation(ranks()); }

TEST(CommunicatorTest, MessagesInPiecesHaveTheSameResult) {
  // The group of mpirun again: the program's communicator ends MPI.
  for (const size_t bytes : {40, 2000, 20000}) expect_every_operation(*make_communicator(bytes));
}

TEST(CommunicatorTest, TheTestSumDependsOnTheOrder) {
  EXPECT_EQ(ranks().size() < 3, equal_bits(sum_of_ranks(1000), sum_of_ranks(1000, true)));
}

TEST(CommunicatorTest, APartMayBeInItsPlace) {
  std::vector<size_t> parts(static_cast<size_t>(ranks().size()), sizeof(int));
  std::vector<int> numbers(parts.size(), -1), expected(parts.size());
  std::iota(expected.begin(), expected.end(), 0);
  int* mine = &numbers[static_cast<size_t>(ranks().rank())];
  *mine = ranks().rank();
  ranks().all_gather(mine, parts, numbers.data());
  EXPECT_EQ(numbers, expected);
}

}  // namespace
}  // namespace lariat::test
