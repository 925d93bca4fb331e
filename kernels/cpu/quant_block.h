#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/quant.h"

namespace lariat::cpu {

// Values of QuantLayout, computed once.
struct QuantBlock {
  Code code;
  ScaleType scales;
  // halves: 16 inputs share a scale; plain, narrow: see Grouping
  bool minimum, halves, plain, narrow;
  int bits, zero, shift;  // shift: from an input's index to its scale's index
  int64_t groups;         // of 32 inputs
  int64_t scale_width, outer_bytes, inner_bytes, scale_bytes, group_bytes, block_bytes;
  std::array<int8_t, 16> table{};  // for integer codes with a table

  explicit QuantBlock(const Matrix& m) : QuantBlock(QuantLayout(m)) {}
  explicit QuantBlock(const QuantLayout& layout)
      : code(layout.format.grouping.code),
        scales(layout.format.grouping.scales),
        minimum(layout.format.grouping.minimum),
        halves(layout.size() < kQuantGroup),
        plain(layout.format.grouping.plain()),
        narrow(layout.format.grouping.narrow),
        bits(layout.bits()),
        zero(layout.zero()),
        shift(std::countr_zero(static_cast<uint64_t>(layout.size()))),
        groups(layout.block() / kQuantGroup),
        scale_width(layout.scale_width()),
        outer_bytes(layout.outer_bytes()),
        inner_bytes(layout.inner_bytes()),
        scale_bytes(layout.scale_bytes()),
        group_bytes(layout.group_bytes()),
        block_bytes(layout.block_bytes()) {
    if (!has_table() || !is_integer(code)) return;
    std::ranges::transform(code_table(code), table.begin(),
                           [](float value) { return static_cast<int8_t>(value); });
  }

  bool has_table() const { return code != Code::kLinear && code != Code::kE4M3; }
  int64_t scales_at(int64_t input) const { return outer_bytes + (input >> shift) * kQuantRows * scale_width; }
};

// Variants of the inner loops over integer codes.
template <int kBits_, bool kTable_, bool kHalves_, bool kPlain_ = false>
struct QuantKind {
  static constexpr int kBits = kBits_;
  static constexpr bool kPlanes = kBits != 8 && kBits != 4, kTable = kTable_, kPlain = kPlain_,
                        kNarrow = false, kNested = false, kPairs = false;
  static constexpr int kParts = kHalves_ ? 2 : 1;  // of a group, each with its own scale
  static int32_t of_x(const int32_t* sums, int part) {
    return part == 1 ? sums[1] : kParts == 2 ? sums[0] - sums[1] : sums[0];
  }
};

// Whether kernels unpack these planes in registers, as GGUF files and MLX have them. Products widen other
// planes first, because each kind of planes takes seconds to compile.
constexpr bool unpacks(int bits, bool halves, ScaleType scales) {
  if (!halves) return !is_nested(scales) || (bits == 5 && scales == ScaleType::kNested);
  return bits == 2 ? scales == ScaleType::kPairs : bits != 5 && scales == ScaleType::kNested;
}

// kPlanes: whether body accepts values of 2, 3, 5 and 6 bits.
template <bool kPlanes, class Body>
void with_kind(const QuantBlock& block, const Body& body) {
  if (block.plain) {
    return block.bits == 8 ? body(block, QuantKind<8, false, false, true>())
                           : body(block, QuantKind<4, false, false, true>());
  }
  const auto with_parts = [&]<bool kHalves>(std::bool_constant<kHalves>) {
    if constexpr (kPlanes) {
      if (block.bits == 6) return body(block, QuantKind<6, false, kHalves>());
      if constexpr (!kHalves) {
        if (block.bits == 5) return body(block, QuantKind<5, false, kHalves>());
      }
      if (block.bits == 3) return body(block, QuantKind<3, false, kHalves>());
      if (block.bits == 2) return body(block, QuantKind<2, false, kHalves>());
    }
    block.bits == 8     ? body(block, QuantKind<8, false, kHalves>())
    : block.has_table() ? body(block, QuantKind<4, true, kHalves>())
                        : body(block, QuantKind<4, false, kHalves>());
  };
  block.halves ? with_parts(std::true_type()) : with_parts(std::false_type());
}

}  // namespace lariat::cpu
