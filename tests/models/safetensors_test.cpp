#include "models/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/error.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

fs::path temp_file(const std::string& name) { return fs::path(testing::TempDir()) / ("lariat-st-" + name); }

void write_file(const fs::path& file, const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << header << data;
}

std::string refusal_of(const fs::path& file) {
  try {
    Checkpoint::open_file(file);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// The file itself, and temporary ones.
int files_named_after(const fs::path& file) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(file.parent_path()))
    count += entry.path().filename().string().starts_with(file.filename().string()) ? 1 : 0;
  return count;
}

TEST(Safetensors, WhatTheWriterWritesTheReaderReads) {
  const auto file = temp_file("roundtrip");
  const float values[] = {1.5F, -2.0F, 3.25F, 0.0F, 5.0F, 6.0F};
  SafetensorsWriter writer(file, {{"logits", {2, 2}}, {"last", {2}}});
  writer.append({values, 3});
  writer.append({values + 3, 3});
  writer.finish();
  const Checkpoint checkpoint = Checkpoint::open_file(file);
  const StoredTensor &logits = checkpoint.get("logits", {2, 2}), &last = checkpoint.get("last", {2});
  EXPECT_EQ(logits.float_dtype(), DType::kF32);
  EXPECT_EQ(std::memcmp(logits.data, values, 4 * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(last.data, values + 4, 2 * sizeof(float)), 0);
  EXPECT_EQ(files_named_after(file), 1);
}

TEST(Safetensors, WritesOtherDtypesMetadataAndAlignedData) {
  const auto file = temp_file("layout");
  const uint16_t halves[] = {0x3C00, 0x4000, 0x4200};
  const double wide = 0.1;
  SafetensorsWriter writer(file, {{"halves", {3}, "F16"}, {"wide", {}, "F64"}}, {{{"k", "v \" é"}}, 4096});
  writer.append(std::as_bytes(std::span(halves)));
  writer.append(std::as_bytes(std::span(&wide, 1)));
  writer.finish(true);
  const MappedFile mapped(file);
  std::map<std::string, std::string> metadata;
  const auto tensors = parse_safetensors({mapped.data(), mapped.size()}, file, &metadata);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].data - mapped.data(), 4096);
  EXPECT_EQ(std::memcmp(tensors[0].data, halves, sizeof halves), 0);
  EXPECT_EQ(tensors[1].dtype, "F64");
  EXPECT_EQ(std::memcmp(tensors[1].data, &wide, sizeof wide), 0);
  EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"k", "v \" é"}}));
}

TEST(Safetensors, MetadataAreTextsAndTheHeaderHasNoZeroByte) {
  std::map<std::string, std::string> metadata;
  const auto refuses = [&](std::string header) {
    const uint64_t size = header.size();
    header.insert(0, reinterpret_cast<const char*>(&size), sizeof size);
    try {
      parse_safetensors(std::as_bytes(std::span(header)), "file", &metadata);
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refuses(R"({"__metadata__":{"a":"b"}} )"));
  EXPECT_TRUE(refuses(R"({"__metadata__":{"a":1}})"));
  EXPECT_TRUE(refuses(R"({"__metadata__":["a"]})"));
  EXPECT_TRUE(refuses(std::string("{}\0", 3)));
}

TEST(Safetensors, AnUnfinishedFileDoesNotAppear) {
  const auto file = temp_file("unfinished");
  fs::remove(file);
  {
    SafetensorsWriter writer(file, {{"logits", {4}}});
    const float value = 1;
    writer.append({&value, 1});
    EXPECT_THROW(writer.finish(), Error);
  }
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(files_named_after(file), 0);
}

TEST(Safetensors, DataOnAnOddByteIsRead) {
  const auto file = temp_file("odd");
  std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  if (header.size() % 2 == 0) header += ' ';
  const float values[] = {1.0F, 2.0F};
  write_file(file, header, std::string(reinterpret_cast<const char*>(values), 8));
  const Checkpoint checkpoint = Checkpoint::open_file(file);
  const StoredTensor& tensor = checkpoint.get("a", {2});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 4, 0U);
  EXPECT_EQ(std::memcmp(tensor.data, values, 8), 0);
}

// A header in front of eight bytes of data, and a part of the line that names the file.
const std::pair<std::string, const char*> kDamagedHeaders[] = {
    {"[]", "not a JSON object"},
    {"{\"a\": 1}", "not an object"},
    {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", "\"dtype\" is missing"},
    {R"({"a":{"dtype":"X9","shape":[2],"data_offsets":[0,8]}})", "unknown dtype"},
    {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "not a size"},
    {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,8]}})", "not a size"},
    {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "list of at most 8 sizes"},
    {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", "at most 8"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "two numbers"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "truncated"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", "truncated"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "do not fit"},
    {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}})", "not a size"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     "overlap"},
    {std::string(100000, '['), "nested deeper"},
};

TEST(Safetensors, DamagedHeadersAreNamed) {
  const auto file = temp_file("damaged");
  for (const auto& [header, part] : kDamagedHeaders) {
    write_file(file, header, "12345678");
    const std::string what = refusal_of(file);
    EXPECT_EQ(what.rfind(file.string(), 0), 0U) << what;
    EXPECT_NE(what.find(part), std::string::npos) << what;
  }
}

TEST(Safetensors, ScalarsAndEmptyTensorsAreFine) {
  const auto file = temp_file("scalar");
  write_file(file,
             R"({"__metadata__":{"x":"y"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
             R"("e":{"dtype":"F32","shape":[0,5],"data_offsets":[2,2]}})",
             "1234");
  const Checkpoint checkpoint = Checkpoint::open_file(file);
  EXPECT_EQ(checkpoint.tensors().size(), 2U);
  EXPECT_THROW(checkpoint.get("a", {1}), Error);
  EXPECT_THROW(checkpoint.get("missing", {1}), Error);
}

}  // namespace
}  // namespace lariat::test
