#include <gtest/gtest.h>

#include <map>

#include "engine/eval/sweep.h"
#include "kernels/error.h"

namespace lariat {
namespace {

Shard shard_of(const std::map<std::string, std::string>& variables) {
  return shard_of_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Shards, FromTheCommandLine) {
  EXPECT_EQ(parse_shard("0/1")->count, 1);
  EXPECT_EQ(parse_shard("3/4")->index, 3);
  for (const char* bad : {"", "/", "1", "4/4", "-1/4", "1/0", "a/b", "1/4x", "1//4", " 1/4"}) {
    EXPECT_FALSE(parse_shard(bad)) << bad;
  }
}

TEST(Shards, FromLaunchers) {
  EXPECT_EQ(shard_of({}).count, 1);
  const Shard open_mpi = shard_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}});
  EXPECT_EQ(open_mpi.index, 1);
  EXPECT_EQ(open_mpi.count, 3);
  EXPECT_EQ(open_mpi.source, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(shard_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}).index, 2);
  const Shard array = shard_of(
      {{"SLURM_ARRAY_TASK_ID", "12"}, {"SLURM_ARRAY_TASK_MIN", "10"}, {"SLURM_ARRAY_TASK_COUNT", "5"}});
  EXPECT_EQ(array.index, 2);
  EXPECT_EQ(array.count, 5);
  EXPECT_EQ(shard_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}).count, 2);
  // One process of one is no shard, and leaves room for what is inside it.
  EXPECT_EQ(shard_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).count, 1);
  EXPECT_EQ(shard_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).count, 1);
}

TEST(Shards, OddNumbersAreNamed) {
  EXPECT_THROW(shard_of({{"PMI_RANK", "x"}, {"PMI_SIZE", "4"}}), Error);
  EXPECT_THROW(shard_of({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}), Error);
  // --array=0-8:4 has ids 0, 4 and 8.
  EXPECT_THROW(
      shard_of(
          {{"SLURM_ARRAY_TASK_ID", "4"}, {"SLURM_ARRAY_TASK_MIN", "0"}, {"SLURM_ARRAY_TASK_COUNT", "3"}}),
      Error);
}

}  // namespace
}  // namespace lariat
