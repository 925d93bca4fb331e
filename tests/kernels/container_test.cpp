#include "kernels/container.h"

#include "tests/test_util.h"

namespace lariat::test {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

class Container : public FolderTest {
 protected:
  ContainerLimits limits(const std::string& groups) const {
    put("groups", groups);
    return container_limits(dir_ / "mounted", dir_ / "groups");
  }
};

TEST_F(Container, WithoutGroupsNothingIsLimited) {
  for (const char* groups : {"", "0::/", "0::/missing\n4:memory:/missing\n", "garbage", "::", "1:cpu:"}) {
    const ContainerLimits none = limits(groups);
    EXPECT_EQ(none.cores, kNone) << groups;
    EXPECT_EQ(none.memory, kNone) << groups;
    EXPECT_EQ(none.free_memory, kNone) << groups;
  }
}

TEST_F(Container, TheLowestLimitOfAllOuterGroupsCounts) {
  put("mounted/cpu.max", "max 100000");
  put("mounted/memory.max", "max");
  put("mounted/outer/cpu.max", "150000 100000\n");
  put("mounted/outer/memory.max", "1000\n");
  put("mounted/outer/memory.high", "max\n");
  put("mounted/outer/memory.current", "700\n");
  put("mounted/outer/memory.stat", "anon 400\nfile 300\ninactive_file 200\nactive_file 50\n");
  put("mounted/outer/inner/cpu.max", "400000 100000");
  put("mounted/outer/inner/memory.max", "5000");
  for (const char* groups : {"0::/outer/inner\n", "0::/outer\n", "12:cpu:/x\n0::/outer/inner"}) {
    const ContainerLimits found = limits(groups);
    EXPECT_EQ(found.cores, 1.5) << groups;
    EXPECT_EQ(found.memory, 1000) << groups;
    EXPECT_EQ(found.free_memory, 550) << groups;  // 450 bytes cannot be reclaimed
  }
  EXPECT_EQ(limits("0::/").memory, kNone);
  put("mounted/memory.high", "300");  // throttled beyond
  EXPECT_EQ(limits("0::/outer").memory, 300);
}

TEST_F(Container, VersionOneHasAHierarchyPerController) {
  put("mounted/cpu/job/cpu.cfs_quota_us", "50000\n");
  put("mounted/cpu/job/cpu.cfs_period_us", "100000\n");
  put("mounted/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("mounted/memory/job/memory.limit_in_bytes", "8000\n");
  put("mounted/memory/job/memory.usage_in_bytes", "9000\n");
  put("mounted/memory/job/memory.stat", "cache 1\ntotal_inactive_file 100\nhierarchical_memory_limit 6000\n");
  const ContainerLimits found = limits("5:name=systemd:/job\n4:memory:/job\n1:cpu,cpuacct:/job\n");
  EXPECT_EQ(found.cores, 0.5);
  EXPECT_EQ(found.memory, 6000);
  EXPECT_EQ(found.free_memory, 0);
  put("mounted/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(limits("1:cpu,cpuacct:/job\n").cores, kNone);
}

}  // namespace
}  // namespace lariat::test
