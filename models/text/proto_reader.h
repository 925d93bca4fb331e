#pragma once
#include <cstdint>
#include <string_view>

namespace lariat::tok {

// Walks the fields of one protobuf message (encoding: protobuf.dev/programming-guides/encoding). Groups,
// which no message here has, count as damage.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : bytes_(bytes) {}

  // The next field; false at the end or where the message is damaged.
  bool next() {
    const std::string_view start = bytes_;
    uint64_t key = 0;
    if (damaged_ || bytes_.empty()) return false;
    damaged_ = !varint(key) || key > UINT32_MAX || !value(key & 7);
    field = key >> 3;
    wire = static_cast<int>(key & 7);
    whole = start.substr(0, start.size() - bytes_.size());
    return !damaged_;
  }
  bool damaged() const { return damaged_; }

  uint64_t field = 0;  // its number
  int wire = 0;        // 0: number; 1, 5: 8 or 4 bytes in text; 2: text
  uint64_t number = 0;
  std::string_view text;
  std::string_view whole;  // the field with its key

 private:
  bool value(uint64_t type) {
    uint64_t size = 0;
    if (type == 0) return varint(number);
    if (type == 1) return take(8);
    if (type == 2) return varint(size) && take(size);
    return type == 5 && take(4);
  }
  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto b = static_cast<uint8_t>(bytes_[0]);
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(b & 0x7F) << shift;
      if (b < 0x80) return true;
    }
    return false;
  }
  bool take(uint64_t size) {
    if (size > bytes_.size()) return false;
    text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  std::string_view bytes_;
  bool damaged_ = false;
};

}  // namespace lariat::tok
