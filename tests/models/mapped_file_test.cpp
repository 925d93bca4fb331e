#include "models/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "kernels/error.h"
#include "models/atomic_file.h"
#include "models/json_file.h"

namespace lariat {
namespace {

TEST(MappedFiles, WhatIsWrittenToAPrivateOneNeverReachesTheFile) {
  const auto file = std::filesystem::temp_directory_path() / ("lariat_mapped_" + std::to_string(getpid()));
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
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace lariat
