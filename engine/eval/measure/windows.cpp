#include "engine/eval/measure/windows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/contexts/memory_check.h"
#include "engine/interrupt.h"
#include "kernels/counted.h"
#include "kernels/error.h"

namespace lariat {

std::string fitting_settings(const TokenSource& text, int64_t wanted, int64_t bos, const char* lengths) {
  const int64_t limit = text.max_tokens(), longest = text.size() + bos;
  const bool cut = limit > 0 && limit == text.size();  // the text may be longer
  return fmt::format("; use {}{}", cut ? fmt::format("`max_tokens` {} or more", wanted) : "a longer text",
                     longest < kMinCtx ? "" : fmt::format(", or {} up to {}", lengths, longest));
}

int64_t window_stride(const PerplexityOptions& options, int64_t ctx) {
  return std::min(options.stride, ctx - std::max<int64_t>(std::ssize(options.bos), 1));
}

std::vector<Window> windows_of(const PerplexityOptions& options, int64_t ctx, const TokenSource& text) {
  const bool sliding = options.method == PerplexityMethod::kSliding;
  const int64_t n = text.size(), bos = std::ssize(options.bos), holds = ctx - bos;
  const int64_t first = bos > 0 ? 0 : 1;  // without a BOS the first token has no predecessor
  std::vector<Window> windows;
  if (options.method == PerplexityMethod::kGrowing) {
    const int64_t stretches = text.max_tokens() > 0 ? std::max<int64_t>(n / holds, 1) : 1;
    for (int64_t i = 0; i < stretches; ++i)
      windows.push_back({i * holds, (i + 1) * holds, i * holds + first});
    return windows;
  }
  if (options.method == PerplexityMethod::kAnchored) {
    for (int64_t end = options.step; end <= ctx; end += options.step)
      windows.push_back({0, end - bos, std::max(end - options.step - bos, first)});
    return windows;
  }
  if (options.method == PerplexityMethod::kTail) {
    for (int64_t end = holds; end <= n; end += holds)
      windows.push_back({end - holds, end, end - options.step});
    return windows;
  }
  int64_t scored = first;  // scored so far
  for (int64_t begin = 0; sliding ? scored < n : begin + holds <= n;) {
    const int64_t end = std::min(begin + holds, n);
    // Position i of a chunk is token begin + i - bos of the text.
    windows.push_back({begin, end, sliding ? scored : begin + std::max<int64_t>(ctx / 2 + 1 - bos, 0)});
    scored = end;
    begin += sliding ? window_stride(options, ctx) : ctx;
  }
  return windows;
}

bool follows_length(const RopeScaling& rope, const PositionMethod& method, int64_t length) {
  const auto& stretch = method.stretch;
  return rope.depends_on_length() || (stretch && stretch(1) != stretch(static_cast<double>(length)));
}

int64_t end_of_step(const Session& session, int64_t length, int64_t end) {
  const RopeScaling& rope = session.rope();
  const bool moves_always = rope.type != RopeType::kLongRope && session.options().rope_steps == 0;
  if (!rope.depends_on_length() || moves_always) return end;
  const RopeFrequencies first = frequencies_for(session.options(), rope, length + 1);
  while (end > length + 1 && frequencies_for(session.options(), rope, end) != first) --end;
  return end;
}

void check_windows(std::span<Session* const> sessions, const TokenSource& text,
                   const PerplexityOptions& options) {
  if (options.stride < 1) throw Error("stride: below 1; use at least 1");
  if (options.step < 1) throw Error("step: below 1; use at least 1");
  const int64_t before = std::max<int64_t>(std::ssize(options.bos), 1);  // the first scored token
  const bool anchored = options.method == PerplexityMethod::kAnchored;
  if (anchored && options.step <= before)
    throw Error(fmt::format("step: too small for anchored windows; use at least {}", before + 1));
  const char* what = options.method == PerplexityMethod::kGrowing ? "context" : "window";
  for (const int64_t ctx : options.ctx) {
    const std::string window = fmt::format("{} of {}", what, counted(ctx, "token"));
    const int64_t bos = std::ssize(options.bos);
    const int64_t least = std::max({kMinCtx, bos + 1, anchored ? options.step : 0});
    if (options.method == PerplexityMethod::kTail && options.step >= ctx - before)
      throw Error(fmt::format("{}: too short for a tail of {}; use at most {}", window,
                              counted(options.step, "token"), ctx - before - 1));
    if (ctx < least) throw Error(fmt::format("{}: too short; use at least {}", window, least));
    check_memory(sessions, ctx, 1, window);
    const int64_t holds = ctx - bos, have = text.size();
    if (have < holds) {
      throw Error(fmt::format("{}, and a {} holds {} of them{}", text.size_in_words(), window, holds,
                              fitting_settings(text, holds, ctx - holds, "`max_ctx`")));
    }
  }
}

void score(Session& session, std::span<const Reading> readings, const std::atomic<bool>* interrupted,
           const std::function<void(size_t reading, int64_t position, double loss)>& on_loss,
           const Session::ProgressFn& progress) {
  std::vector<Prompt> prompts;
  std::vector<int64_t> begins;
  for (const auto& [sequence, tokens, end, score_from] : readings) {
    const int64_t begin = begins.emplace_back(sequence->length());
    prompts.push_back({sequence, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                       std::clamp(score_from - 1 - begin, int64_t{0}, end - begin)});
  }
  std::vector<double> losses;
  stop_if(interrupted);
  session.forward(
      prompts,
      [&](size_t i, int64_t row, const Matrix& logits) {
        const auto tokens = readings[i].tokens;
        const int64_t at = begins[i] + row + 1;  // position predicted by the first row
        const int64_t count = std::min(logits.rows, std::ssize(tokens) - at);
        if (count <= 0) return;  // the last token has no target
        losses.resize(static_cast<size_t>(count));
        session.backend().token_nll(logits.row_range(0, count),
                                    tokens.subspan(static_cast<size_t>(at), losses.size()), losses);
        if (!std::ranges::all_of(losses, [](double x) { return std::isfinite(x); }))
          session.report_not_finite();
        for (size_t k = 0; k < losses.size(); ++k) on_loss(i, at + static_cast<int64_t>(k), losses[k]);
      },
      [&](int64_t done) {
        if (progress) progress(done);
        stop_if(interrupted);
      });
}

}  // namespace lariat
