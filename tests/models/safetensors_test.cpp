#include "models/files/safetensors.h"

#include <cstring>
#include <utility>

#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

class Safetensors : public FolderTest {
 protected:
  void write(const std::string& header, const std::string& data) const {
    const uint64_t length = header.size();
    put("file", std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
  }
  int64_t files() const { return std::distance(fs::directory_iterator(dir_), {}); }

  const fs::path file_ = dir_ / "file";
};

TEST_F(Safetensors, WrittenFilesAreReadBack) {
  const float values[] = {1.5F, -2.0F, 3.25F, 0.0F, 5.0F, 6.0F};
  SafetensorsWriter writer(file_, {{"logits", {2, 2}}, {"last", {2}}});
  writer.append({values, 3});
  writer.append({values + 3, 3});
  writer.finish();
  const Tensors checkpoint = open_safetensors_file(file_);
  const StoredTensor &logits = checkpoint.get("logits", {2, 2}), &last = checkpoint.get("last", {2});
  EXPECT_EQ(logits.float_dtype(), DType::kF32);
  EXPECT_EQ(std::memcmp(logits.data, values, 4 * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(last.data, values + 4, 2 * sizeof(float)), 0);
  EXPECT_EQ(files(), 1);
}

TEST_F(Safetensors, WritesOtherDtypesMetadataAndAlignedData) {
  const uint16_t halves[] = {0x3C00, 0x4000, 0x4200};
  const double wide = 0.1;
  SafetensorsWriter writer(file_, {{"halves", {3}, "F16"}, {"wide", {}, "F64"}}, {{{"k", "v \" é"}}, 4096});
  writer.append(std::as_bytes(std::span(halves)));
  writer.append(std::as_bytes(std::span(&wide, 1)));
  writer.finish(true);
  const MappedFile mapped(file_);
  std::map<std::string, std::string> metadata;
  const auto tensors = parse_safetensors({mapped.data(), mapped.size()}, file_, &metadata);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].data - mapped.data(), 4096);
  EXPECT_EQ(std::memcmp(tensors[0].data, halves, sizeof halves), 0);
  EXPECT_EQ(tensors[1].dtype, "F64");
  EXPECT_EQ(std::memcmp(tensors[1].data, &wide, sizeof wide), 0);
  EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"k", "v \" é"}}));
}

TEST_F(Safetensors, AnUnfinishedFileDoesNotAppear) {
  {
    SafetensorsWriter writer(file_, {{"logits", {4}}});
    const float value = 1;
    writer.append({&value, 1});
    EXPECT_THROW(writer.finish(), Error);
  }
  EXPECT_EQ(files(), 0);
}

TEST_F(Safetensors, MisalignedDataIsRead) {
  std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  if (header.size() % 2 == 0) header += ' ';
  const float values[] = {1.0F, 2.0F};
  write(header, std::string(reinterpret_cast<const char*>(values), 8));
  const Tensors checkpoint = open_safetensors_file(file_);
  const StoredTensor& tensor = checkpoint.get("a", {2});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 4, 0U);
  EXPECT_EQ(std::memcmp(tensor.data, values, 8), 0);
}

// Headers before eight bytes of data, and words of their errors.
const struct {
  std::string header;
  const char* words = "w1";
} kDamagedHeaders[] = {
    {"[]", "JSON"},
    {"{\"w1\": 1}"},
    {R"({"w1":{"shape":[2],"data_offsets":[0,8]}})", "w1 | dtype"},
    {R"({"w1":{"dtype":"X9","shape":[2],"data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":[1.5],"data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "8"},
    {R"({"w1":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", "8"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[0]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})"},
    {R"({"w1":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w1":{}})"},
    {R"({"w1":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":"F32","data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":[0,281474976710657],"data_offsets":[0,0]}})"},
    {R"({"w1":{"dtype":"F32","shape":[281474976710656,281474976710656],"data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":"08"}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":{"a":0,"b":8}}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[-1,8]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[0,"8"]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})"},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[4,8]}})", "w1 | 4"},
    {R"({"w1":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", ""},
    {R"({"w1":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
     R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"},
    {R"({"w1":{"dtype":"U8","shape":[1],"data_offsets":[7,8]},"b":{"dtype":"U8","shape":[1],"data_offsets":[7,8]}})"},
    {std::string(100000, '['), "64"},
    {R"({"__metadata__":{"w1":1}})", "__metadata__ | w1"},
    {R"({"__metadata__":["w1"]})", "__metadata__"},
    {std::string("{}\0", 3), ""},
};

TEST_F(Safetensors, DamagedHeadersAreNamed) {
  for (const auto& [header, words] : kDamagedHeaders) {
    write(header, "12345678");
    const MappedFile mapped(file_);
    std::map<std::string, std::string> metadata;
    const std::string what = error_of([&] {
      parse_safetensors({mapped.data(), mapped.size()}, file_, &metadata);
    });
    EXPECT_EQ(what.rfind(file_.string(), 0), 0U) << what;
    EXPECT_TRUE(names(what, words));
  }
}

TEST_F(Safetensors, OtherFilesAreNamed) {
  put("file", "1234567");
  EXPECT_NE(error_of([&] { open_safetensors_file(file_); }).find("too short"), std::string::npos);
  put("file", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
  EXPECT_NE(error_of([&] { open_safetensors_file(file_); }).find("Git LFS"), std::string::npos);
  for (const uint64_t claimed : {uint64_t{3}, kMaxSafetensorsHeader + 1}) {  // of 2 bytes, and of zeros
    put("file", std::string(reinterpret_cast<const char*>(&claimed), 8) + "{}");
    if (claimed > kMaxSafetensorsHeader) fs::resize_file(file_, 8 + claimed);
    EXPECT_NE(error_of([&] { open_safetensors_file(file_); }).find("the header claims"), std::string::npos);
  }
  write("{}", "");
  EXPECT_TRUE(open_safetensors_file(file_).all().empty());
}

TEST_F(Safetensors, DtypesHaveTheBytesOfTheirNames) {
  for (const std::string name : {"U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I16", "U16", "F16", "BF16",
                                 "I32", "U32", "F32", "I64", "U64", "F64"})
    EXPECT_EQ(8 * safetensors_element_bytes(name), std::stoul(name.substr(name.find_first_of("0123456789"))));
  EXPECT_EQ(safetensors_element_bytes("BOOL"), 1U);
}

TEST_F(Safetensors, AnIndexNamesFilesInItsFolder) {
  EXPECT_EQ(parse_safetensors_index(R"({"weight_map": {"a": "x", "b": "..x", "c": "b/x"}})", "index"),
            (std::set<std::string>{"..x", "b/x", "x"}));
  for (const char* bad :
       {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": ""}})",
        R"({"weight_map": {"a": "."}})", R"({"weight_map": {"a": ".."}})", R"({"weight_map": {"a": "../x"}})",
        R"({"weight_map": {"a": "b/../../x"}})", R"({"weight_map": {"a": "b/"}})",
        R"({"weight_map": {"a": "/x"}})", R"({"weight_map": {"a": "x\u0000"}})"})
    EXPECT_EQ(error_of([&] { parse_safetensors_index(bad, "index"); }).rfind("index: ", 0), 0U) << bad;
}

TEST_F(Safetensors, AFolderHasOneFileOrAnIndexOfShards) {
  const auto tensor = [](const std::string& name) {
    return R"({")" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  };
  EXPECT_NE(error_of([&] { open_safetensors(dir_ / "none"); }).find("no such folder"), std::string::npos);
  EXPECT_NE(error_of([&] { open_safetensors(dir_); }).find("neither"), std::string::npos);
  put("model.safetensors.index.json", R"({"weight_map": {"a": "first", "b": "second"}})");
  for (const auto& [shard, name] : {std::pair("first", "a"), std::pair("second", "b")}) {
    write(tensor(name), "x");
    fs::rename(file_, dir_ / shard);
  }
  EXPECT_EQ(open_safetensors(dir_).all().size(), 2U);
  write(tensor("c"), "x");
  fs::rename(file_, dir_ / "model.safetensors");
  EXPECT_EQ(open_safetensors(dir_).all().size(), 1U);
}

TEST_F(Safetensors, ScalarsAndEmptyTensorsAreFine) {
  write(R"({"__metadata__":{"x":"y"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
        R"("e":{"dtype":"F32","shape":[0,5],"data_offsets":[2,2]},)"
        R"("f":{"dtype":"F32","shape":[0,281474976710656,1,1,1,1,1,1],"data_offsets":[4,4]}})",
        "1234");
  const Tensors checkpoint = open_safetensors_file(file_);
  EXPECT_EQ(checkpoint.all().size(), 3U);
  EXPECT_EQ(checkpoint.get("a", {1}).bytes, 4U);
  EXPECT_THROW(checkpoint.get("a", {2}), Error);
  EXPECT_THROW(checkpoint.get("missing", {1}), Error);
}

}  // namespace
}  // namespace lariat::test
