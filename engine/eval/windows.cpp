#include "engine/eval/windows.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/memory_check.h"
#include "kernels/counted.h"
#include "kernels/error.h"

namespace lariat {
namespace {

constexpr int64_t kMinCtx = 4;

}  // namespace

Windows::Windows(const PerplexityOptions& options, int64_t ctx)
    : sliding_(options.method == PerplexityMethod::kSliding),
      bos_(options.bos ? 1 : 0),
      ctx_(ctx),
      holds_(ctx - bos_),
      step_(sliding_ ? std::min(options.stride, ctx - 1) : ctx) {}

std::optional<Window> Windows::next(TokenSource& text) {
  if (ended_) return std::nullopt;
  const int64_t begin = index_++ * step_;
  if (!sliding_) {
    // Position i of a chunk is token begin + i - bos_ of the text.
    ended_ = text.count(begin + holds_) < begin + holds_;
    if (ended_) return std::nullopt;
    return Window{begin, begin + holds_, begin + ctx_ / 2 + 1 - bos_};
  }
  const int64_t end = text.count(begin + holds_);
  const int64_t score_from = begin == 0 ? 1 - bos_ : scored_;
  scored_ = end;
  ended_ = !text.has(end);
  return Window{begin, end, score_from};
}

void check_windows(std::span<Session* const> sessions, TokenSource& text, const std::string& text_name,
                   const PerplexityOptions& options, const std::string& what) {
  if (options.stride < 1) throw Error("a stride is at least 1");
  for (const int64_t ctx : options.ctx) {
    const std::string window = fmt::format("a {} of {}", what, counted(ctx, "token"));
    if (ctx < kMinCtx) throw Error(fmt::format("{} is too short; it has at least {}", window, kMinCtx));
    check_memory(sessions, ctx, 1, window);
    const int64_t holds = ctx - (options.bos ? 1 : 0), have = text.count(holds);
    if (have < holds) {
      throw Error(fmt::format("{}: has {} and {} holds {} of them{}", text_name, counted(have, "token"),
                              window, holds, kTextTooShort));
    }
  }
}

}  // namespace lariat
