#include "models/io/atomic_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

struct AtomicFiles : FolderTest {
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
};

TEST_F(AtomicFiles, WritesAndReplaces) {
  const fs::path file = dir_ / "a.svg";
  write_file_atomically(file, "one");
  EXPECT_EQ(read_file(file, 100), "one");
  write_file_atomically(file, "");
  EXPECT_EQ(read_file(file, 100), "");
  EXPECT_EQ(files(), 1U);
}

TEST_F(AtomicFiles, AppearsOnCommit) {
  const fs::path file = dir_ / "a.svg";
  write_file_atomically(file, "old");
  {
    AtomicFile unfinished(file);
    unfinished.write("half of it");
    EXPECT_EQ(files(), 2U);
  }
  EXPECT_EQ(read_file(file, 100), "old");
  EXPECT_EQ(files(), 1U);
  AtomicFile out(file);
  out.write("all ");
  out.write("of it");
  out.commit(true);
  EXPECT_EQ(read_file(file, 100), "all of it");
  EXPECT_EQ(files(), 1U);
}

TEST_F(AtomicFiles, KeepsASymbolicLink) {
  write_file_atomically(dir_ / "target", "old");
  fs::create_symlink("target", dir_ / "link");
  write_file_atomically(dir_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_EQ(read_file(dir_ / "target", 100), "new");
}

TEST_F(AtomicFiles, ADanglingLinkIsReplaced) {
  fs::create_symlink("nothing", dir_ / "link");
  write_file_atomically(dir_ / "link", "new");
  EXPECT_FALSE(fs::is_symlink(dir_ / "link"));
  EXPECT_EQ(read_file(dir_ / "link", 100), "new");
  EXPECT_EQ(files(), 1U);
}

// A killed process leaves its file; in a container another one has the same pid.
TEST_F(AtomicFiles, KeepsTemporaryFilesOfOthers) {
  const fs::path file = dir_ / "a.svg";
  const std::string left = file.string() + ".tmp" + std::to_string(getpid());
  write_file_atomically(left, "half");
  write_file_atomically(file, "one");
  write_file_atomically(left + ".1", "another half");
  write_file_atomically(file, "two");
  EXPECT_EQ(read_file(file, 100), "two");
  EXPECT_EQ(read_file(left, 100), "half");
  EXPECT_EQ(read_file(left + ".1", 100), "another half");
  EXPECT_EQ(files(), 3U);
}

TEST_F(AtomicFiles, KeepsThePermissionsOfAReplacedFile) {
  const auto mode = [&](const char* name) {
    struct stat status {};
    EXPECT_EQ(::stat((dir_ / name).c_str(), &status), 0);
    return status.st_mode & 07777;
  };
  const mode_t before = ::umask(027);
  write_file_atomically(dir_ / "new", "x");
  EXPECT_EQ(mode("new"), 0640U);
  fs::create_symlink("new", dir_ / "link");
  for (const mode_t bits : {0600U, 0666U, 0400U}) {  // narrower and wider than the umask
    ASSERT_EQ(::chmod((dir_ / "new").c_str(), bits), 0);
    for (const char* name : {"new", "link"}) {
      AtomicFile out(dir_ / name);
      for (const auto& entry : fs::directory_iterator(dir_)) {
        const std::string temporary = entry.path().filename();
        if (temporary.find(".tmp") != std::string::npos) {
          EXPECT_EQ(mode(temporary.c_str()), bits);
        }
      }
      out.write("y");
      out.commit();
      EXPECT_EQ(mode("new"), bits) << name;
    }
  }
  ::umask(before);
}

TEST_F(AtomicFiles, ErrorsNameTheFile) {
  for (const fs::path& bad : {dir_, dir_ / "none" / "a.svg"}) {
    const std::string what = error_of([&] { write_file_atomically(bad, "x"); });
    EXPECT_NE(what.find(bad.string()), std::string::npos) << what;
  }
  EXPECT_EQ(files(), 0U);
}

// A full nonblocking pipe: the error follows the part that fits.
TEST(WriteAll, WritesUntilAnError) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  EXPECT_EQ(write_all(ends[1], ""), 0);
  EXPECT_EQ(write_all(ends[1], "abc"), 0);
  char read_back[4] = {};
  EXPECT_EQ(::read(ends[0], read_back, sizeof read_back), 3);
  EXPECT_EQ(std::string(read_back), "abc");
  EXPECT_EQ(write_all(ends[1], std::string(size_t{8} << 20, 'x')), EAGAIN);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(write_all(ends[1], "x"), EBADF);
}

// A file size limit acts like a full disk.
TEST_F(AtomicFiles, AFailedWriteLeavesTheOldFile) {
  const fs::path file = dir_ / "a.svg";
  write_file_atomically(file, "old");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(write_file_atomically(file, std::string(100000, 'x')), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read_file(file, 100), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(AtomicFiles, ADeviceIsWrittenNotReplaced) {
  write_file_atomically("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THROW(write_file_atomically("/dev/full", "x"), Error);
}

}  // namespace
}  // namespace lariat::test
