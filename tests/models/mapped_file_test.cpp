#include "models/io/mapped_file.h"

#include <unistd.h>

#include <cstring>

#include "models/io/atomic_file.h"
#include "tests/models/resident_bytes.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

TEST(MappedFiles, WritesToAPrivateMappingNeverReachTheFile) {
  const TempFolder dir;
  const auto file = dir.path / "mapped";
  const std::string content(10000, 'a');
  write_file_atomically(file, content);
  {
    const MappedFile mapped(file, MappedFile::Access::kPrivate), other(file);
    mapped.prefetch();
    ASSERT_EQ(mapped.size(), content.size());
    for (const size_t at : {size_t{0}, size_t{5000}, size_t{9999}})
      mapped.writable_data()[at] = std::byte{'b'};
    EXPECT_EQ(mapped.data()[5000], std::byte{'b'});
    EXPECT_EQ(other.data()[5000], std::byte{'a'});
  }
  EXPECT_EQ(read_file(file, 20000), content);
  write_file_atomically(file, "");
  const MappedFile empty(file, MappedFile::Access::kPrivate);
  empty.prefetch();
  EXPECT_EQ(empty.size(), 0U);
}

TEST(MappedFiles, ReleasedPagesUseNoMemoryAndReload) {
  const TempFolder dir;
  const auto file = dir.path / "mapped";
  constexpr size_t kBytes = size_t{1} << 20, kBegin = 5000, kEnd = 900000;
  std::string content(kBytes, 'a');
  for (size_t i = 0; i < kBytes; ++i) content[i] = static_cast<char>(i * 2654435761U >> 13);
  write_file_atomically(file, content);
  const MappedFile mapped(file);
  const auto same = [&] { return std::memcmp(mapped.data(), content.data(), kBytes) == 0; };
  EXPECT_TRUE(same());
  EXPECT_EQ(resident_bytes(mapped.data()), kBytes);
  mapped.release_pages(kBegin, kEnd);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), whole = kEnd - kBegin;
  EXPECT_LT(resident_bytes(mapped.data()), kBytes - whole + 2 * page);
  EXPECT_TRUE(same());
  mapped.release_pages(10, 20);  // less than a page
  EXPECT_EQ(resident_bytes(mapped.data()), kBytes);
}

}  // namespace
}  // namespace lariat::test
