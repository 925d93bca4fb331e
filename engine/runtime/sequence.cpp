#include "engine/runtime/sequence.h"

#include <algorithm>
#include <string>

#include "kernels/error.h"

namespace lariat {

void continue_positions(std::vector<double>& positions, size_t axes, size_t n_tokens) {
  if (positions.size() >= axes * n_tokens) return;
  double next = positions.empty() ? 0 : *std::ranges::max_element(positions) + 1;
  for (; positions.size() < axes * n_tokens; ++next) positions.insert(positions.end(), axes, next);
}

void SequencePositions::set_mrope(std::span<const int32_t> positions, int64_t length) {
  continue_positions(mrope_, 3, static_cast<size_t>(length));
  truncate(length);
  mrope_.insert(mrope_.end(), positions.begin(), positions.end());
}

void SequencePositions::restore(std::span<const int32_t> mrope, double stretch) {
  mrope_.assign(mrope.begin(), mrope.end());
  stretch_ = stretch;
}

void SequencePositions::truncate(int64_t length) {
  mrope_.resize(std::min(mrope_.size(), static_cast<size_t>(3 * length)));
}

int64_t SequencePositions::rope_length(int64_t length) {
  if (mrope_.empty()) return length;
  continue_positions(mrope_, 3, static_cast<size_t>(length));
  return static_cast<int64_t>(*std::max_element(mrope_.begin(), mrope_.begin() + 3 * length)) + 1;
}

std::span<const double> SequencePositions::of(size_t table, int64_t first, int64_t n,
                                              std::vector<double>& memory) {
  if (!mrope_.empty()) {
    continue_positions(mrope_, 3, static_cast<size_t>(first + n));
    return std::span(mrope_).subspan(static_cast<size_t>(3 * first), static_cast<size_t>(3 * n));
  }
  if (table >= method_.positions.size() || !method_.positions[table]) return {};
  memory.resize(static_cast<size_t>(n));
  for (size_t i = 0; i < memory.size(); ++i)
    memory[i] = method_.positions[table](first + static_cast<int64_t>(i), stretch_);
  return memory;
}

void SequencePositions::fill(std::vector<double>& positions, double stretch, int64_t length) const {
  const PositionMethod::Positions& at = method_.positions[second_keys_of(method_.ranges)];
  for (int64_t i = std::ssize(positions); i < length; ++i) positions.push_back(at(i, stretch));
}

std::span<const double> SequencePositions::second_keys(int64_t length) {
  fill(second_keys_, stretch_, length);
  return std::span(second_keys_).first(static_cast<size_t>(length));
}

std::vector<double> SequencePositions::second_keys_at(double stretch, int64_t length) const {
  std::vector<double> positions;
  fill(positions, stretch, length);
  return positions;
}

void Sequence::truncate(int64_t length) {
  if (length >= cache_.length()) return;
  cache_.truncate(length);
  positions_.truncate(length);
}

void Sequence::set_mrope_positions(std::span<const int32_t> positions) {
  if (cache_.pool().mrope_axes().empty())
    throw Error("`positions`: the model has no M-RoPE; remove `positions`");
  if (positions.size() % 3 != 0)
    throw Error("`positions`: not a multiple of three numbers; give three per token");
  for (const int32_t position : positions) {
    if (position < 0 || position > kMaxPosition)
      throw Error("`positions`: found " + std::to_string(position) + "; expected numbers from 0 on");
  }
  positions_.set_mrope(positions, length());
}

// Keeps one unseen page for short truncations.
void Sequence::drop_unseen() {
  if (method().ranges.empty()) return;
  const auto [first, last] = method().unseen(length());
  cache_.drop(first, last - kKvPage);
}

}  // namespace lariat
