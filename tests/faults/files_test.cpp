#include <sys/mount.h>

#include "engine/eval/measurement_log.h"
#include "tests/faults/process.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

// A tmpfs, where tests may mount.
class SmallDisk {
 public:
  SmallDisk(fs::path dir, int kilobytes) : dir_(std::move(dir)) {
    fs::create_directories(dir_);
    mounted_ = mount("none", dir_.c_str(), "tmpfs", 0, size(kilobytes).c_str()) == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) umount(dir_.c_str());
  }
  bool mounted() const { return mounted_; }
  void grow(int kilobytes) {
    ASSERT_EQ(mount("none", dir_.c_str(), "tmpfs", MS_REMOUNT, size(kilobytes).c_str()), 0);
  }

 private:
  static std::string size(int kilobytes) { return "size=" + std::to_string(kilobytes) + "k"; }
  fs::path dir_;
  bool mounted_ = false;
};

#define SKIP_UNLESS_MOUNTED(disk) \
  if (!(disk).mounted()) LARIAT_SKIP("a small disk can only be mounted by root")

TEST(FullDisk, AReportThatDoesNotFitLeavesTheOldOne) {
  const fs::path dir = fresh_dir();
  SmallDisk disk(dir / "disk", 12);
  SKIP_UNLESS_MOUNTED(disk);
  std::ofstream(dir / "disk/out.html") << "the report of yesterday";
  const auto words = with(small_sweep(dir / "disk/out.html"), {"--results", (dir / "out.jsonl").string()});
  Process sweep(dir / "run", words);
  expect_one_line(sweep.wait(), "out.html | No space left on device");
  EXPECT_EQ(slurp(dir / "disk/out.html"), "the report of yesterday");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "disk"), {}), 1) << "a temporary file is left";
  disk.grow(1000);
  Process again(dir / "again", with(words, {"--resume"}));
  EXPECT_EQ(again.wait().code, 0);
  EXPECT_NE(slurp(dir / "disk/out.html").find("</html>"), std::string::npos);
}

TEST(FullDisk, ResultsThatDoNotFitAreNamedAndTheSweepContinuesLater) {
  const fs::path dir = fresh_dir();
  const std::string depths = "0,0.2,0.4,0.6,0.8,1";  // more than the disk holds
  Process whole(dir / "whole", small_sweep(dir / "whole.html", depths));
  ASSERT_EQ(whole.wait().code, 0);
  ASSERT_GT(fs::file_size(dir / "whole.jsonl"), 20480U);
  SmallDisk disk(dir / "disk", 20);
  SKIP_UNLESS_MOUNTED(disk);
  const auto words =
      with(small_sweep(dir / "part.html", depths), {"--results", (dir / "disk/part.jsonl").string()});
  Process sweep(dir / "run", words);
  expect_one_line(sweep.wait(), "part.jsonl | No space left on device");
  disk.grow(1000);
  EXPECT_GE(read_log(dir / "disk/part.jsonl").records.size(), 2U);
  Process again(dir / "again", with(words, {"--resume"}));
  const Outcome resumed = again.wait();
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(slurp(dir / "part.html"), slurp(dir / "whole.html"));
}

// The limit's signal kills unprepared programs.
TEST(FullDisk, AFileThatMayNotGrowIsAnError) {
  const fs::path dir = fresh_dir();
  Process sweep(dir / "run", small_sweep(dir / "out.html"), [] {
    const rlimit limit{3000, 3000};
    setrlimit(RLIMIT_FSIZE, &limit);
  });
  expect_one_line(sweep.wait(), "File too large");
}

TEST(FullDisk, TextThatCannotBeWrittenIsAnError) {
  const fs::path dir = fresh_dir();
  const auto to_full = [] {
    const int full = open("/dev/full", O_WRONLY);
    dup2(full, 1);
    close(full);
  };
  Process story(dir / "story", endless_story(), to_full);
  expect_one_line(story.wait_ten_seconds(), "standard output");
  Process rope(dir / "rope", {"rope", "--model", demo_model().string(), "--json"}, to_full);
  expect_one_line(rope.wait_ten_seconds(), "standard output");
}

TEST(ChangedFile, WeightsCutShortWhileInUseAreNamed) {
  const fs::path dir = fresh_dir(), model = dir / "model";
  fs::create_directories(model);
  for (const auto& entry : fs::directory_iterator(demo_model())) {
    if (entry.is_regular_file()) fs::copy(entry, model / entry.path().filename());
  }
  Process story(dir / "run", endless_story(model));
  ASSERT_TRUE(eventually([&] { return story.out().size() > 50; }));
  fs::resize_file(model / "model.safetensors", 4096);
  expect_one_line(story.wait_ten_seconds(), "model.safetensors");
}

}  // namespace
}  // namespace lariat::test
