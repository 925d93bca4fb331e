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
  bool bytes_wide, minimum, halves, plain, narrow;
  int zero, shift;  // shift: from an input's index to its scale's index
  int64_t groups;   // of 32 inputs
  int64_t scale_width, outer_bytes, inner_bytes, scale_bytes, group_bytes, block_bytes;
  std::array<int8_t, 16> table{};  // for integer codes with a table

  explicit QuantBlock(const Matrix& m) : QuantBlock(QuantLayout(m)) {}
  explicit QuantBlock(const QuantLayout& layout)
      : code(layout.form.grouping.code),
        scales(layout.form.grouping.scales),
        bytes_wide(layout.bytes_wide()),
        minimum(layout.form.grouping.minimum),
        halves(layout.size() < kQuantGroup),
        plain(layout.form.grouping.plain()),
        narrow(layout.form.grouping.narrow),
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
template <bool kBytes_, bool kTable_, bool kHalves_, bool kPlain_ = false>
struct QuantKind {
  static constexpr bool kBytes = kBytes_, kTable = kTable_, kPlain = kPlain_, kNarrow = false,
                        kNested = false;
  static constexpr int kParts = kHalves_ ? 2 : 1;  // of a group, each with its own scale
  static int32_t of_x(const int32_t* sums, int part) {
    return part == 1 ? sums[1] : kParts == 2 ? sums[0] - sums[1] : sums[0];
  }
};

template <class Body>
void with_kind(const QuantBlock& block, const Body& body) {
  if (block.plain) {
    return block.bytes_wide ? body(block, QuantKind<true, false, false, true>())
                            : body(block, QuantKind<false, false, false, true>());
  }
  const auto with_parts = [&]<bool kHalves>(std::bool_constant<kHalves>) {
    block.bytes_wide    ? body(block, QuantKind<true, false, kHalves>())
    : block.has_table() ? body(block, QuantKind<false, true, kHalves>())
                        : body(block, QuantKind<false, false, kHalves>());
  };
  block.halves ? with_parts(std::true_type()) : with_parts(std::false_type());
}

}  // namespace lariat::cpu
