#include "kernels/cpu/draw.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which defines the macros of math-inl.h.
#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

using I32 = hn::RebindToSigned<F32>;
constexpr auto kLast = static_cast<float>(cpu::kDrawBins - 1);

// Bins, before their fraction is cut off, rise with falling logits; kDrawBins for NaN and -inf.
HWY_INLINE VF32 BinsOf(const cpu::LogitRow& row, VF32 logits) {
  const F32 d;
  const VF32 last = hn::Set(d, kLast);
  const VF32 steps = hn::Mul(hn::Sub(hn::Set(d, row.largest), logits), hn::Set(d, row.bins_per_logit));
  const auto finite = hn::Lt(hn::Abs(logits), hn::Set(d, std::numeric_limits<float>::infinity()));
  const VF32 bins = hn::IfThenElse(hn::Lt(steps, last), steps, last);
  return hn::IfThenElse(finite, bins, hn::Set(d, kLast + 1));
}

// bins[b]: tally of the tokens [begin, end) in bin b.
void TallyBins(const cpu::LogitRow& row, int64_t begin, int64_t end, cpu::Tally* bins) {
  const F32 d;
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d32;
  const auto largest = hn::Set(d64, static_cast<double>(row.largest));
  const auto inverse = hn::Set(d64, 1.0 / static_cast<double>(row.temperature));
  const float* logits = row.logits + begin;
  HWY_ALIGN float values[hn::MaxLanes(F32())];
  HWY_ALIGN int32_t its_bin[hn::MaxLanes(F32())];
  HWY_ALIGN double weights[hn::MaxLanes(F32())];
  std::fill_n(bins, cpu::kDrawBins + 1, cpu::Tally());
  size_t far = 0;
  ForVectors(static_cast<size_t>(end - begin), [&](size_t i, size_t count) LARIAT_INLINE_BODY {
    const VF32 x = LoadUpTo(logits + i, count);
    const VF32 in_bins = BinsOf(row, x);
    if (count == hn::Lanes(d) && hn::AllTrue(d, hn::Ge(in_bins, hn::Set(d, kLast)))) {
      far += hn::CountTrue(d, hn::Eq(in_bins, hn::Set(d, kLast)));
      return;
    }
    hn::Store(x, d, values);
    hn::Store(hn::ConvertTo(I32(), in_bins), I32(), its_bin);
    for (size_t j = 0; j < hn::Lanes(d); j += hn::Lanes(d64)) {
      const auto distance = hn::Sub(hn::PromoteTo(d64, hn::LoadU(d32, values + j)), largest);
      hn::StoreU(hn::Exp(d64, hn::Mul(distance, inverse)), d64, weights + j);
    }
    for (size_t j = 0; j < count; ++j) bins[its_bin[j]] = bins[its_bin[j]] + cpu::Tally{1, weights[j]};
  });
  bins[cpu::kDrawBins - 1] = {bins[cpu::kDrawBins - 1].tokens + static_cast<double>(far), 0};
}

// Writes the tokens of bins first to last in the order of their ids; returns the end.
cpu::Candidate* ListBins(const cpu::LogitRow& row, int32_t first, int32_t last, cpu::Candidate* out) {
  const F32 d;
  const VF32 from = hn::Set(d, static_cast<float>(first)), to = hn::Set(d, static_cast<float>(last + 1));
  HWY_ALIGN int32_t its_bin[hn::MaxLanes(F32())];
  ForVectors(static_cast<size_t>(row.size), [&](size_t i, size_t count) LARIAT_INLINE_BODY {
    const VF32 in_bins = BinsOf(row, LoadUpTo(row.logits + i, count));
    if (hn::AllFalse(d, hn::And(hn::Ge(in_bins, from), hn::Lt(in_bins, to)))) return;
    hn::Store(hn::ConvertTo(I32(), in_bins), I32(), its_bin);
    for (size_t j = 0; j < count; ++j) {
      if (its_bin[j] < first || its_bin[j] > last) continue;
      const auto distance = static_cast<double>(row.logits[i + j]) - static_cast<double>(row.largest);
      *out++ = {row.logits[i + j], static_cast<int32_t>(i + j),
                std::exp(distance / static_cast<double>(row.temperature))};
    }
  });
  return out;
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(TallyBins);
HWY_EXPORT(ListBins);
namespace {

using cpu::Candidate, cpu::kBinsPerUnit, cpu::kDrawBins, cpu::Tally;

constexpr int64_t kChunk = int64_t{1} << 14;  // logits per task; fixed, so that sums do not depend on threads
constexpr int64_t kChunkBins = kDrawBins + 1;

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

class Draw {
 public:
  // bins: kDrawBins + 1 per chunk of the row; sums all chunks into the first.
  Draw(const cpu::LogitRow& row, std::span<Tally> bins, std::vector<Candidate>& listed)
      : row_(row), bins_(bins.data()), listed_(listed) {
    for (size_t chunk = kDrawBins + 1; chunk < bins.size(); chunk += kDrawBins + 1) {
      for (size_t b = 0; b < kDrawBins; ++b) bins[b] = bins[b] + bins[chunk + b];
    }
    for (int32_t b = 0; b < kDrawBins; ++b) {
      all_ = all_ + bins_[b];
      if (bins_[b].tokens > 0) last_bin_ = b;
    }
  }

  int32_t token(const Sampling& how, double uniform) {
    Prefix kept = {{-std::numeric_limits<float>::infinity(), 0, 0}, all_.weight};
    if (how.top_k > 0 && how.top_k < all_.tokens) kept = reach(&Tally::tokens, how.top_k);
    if (how.top_p < 1.0F) kept = reach(&Tally::weight, static_cast<double>(how.top_p) * kept.weight);
    if (how.min_p > 0.0F) {
      const Prefix likely = reach(&Tally::tokens, count_of_weight(static_cast<double>(how.min_p)));
      if (likelier(likely.last, kept.last)) kept = likely;
    }
    const double beyond = std::nextafter(uniform * kept.weight, DBL_MAX);
    const Candidate drawn = reach(&Tally::weight, std::min(beyond, kept.weight)).last;
    return likelier(kept.last, drawn) ? kept.last.id : drawn.id;  // rounding may lead beyond the last
  }

 private:
  // The first tokens in descending order of logits.
  struct Prefix {
    Candidate last;
    double weight;
  };

  // The shortest prefix whose `sum` is at least `wanted`. Halves the tokens of one bin, by quickselect.
  Prefix reach(double Tally::*sum, double wanted) {
    Tally before;
    int32_t bin = 0;
    while (bin < last_bin_ && (before + bins_[bin]).*sum < wanted) before = before + bins_[bin++];
    list(bin, bin);
    auto begin = listed_.begin(), end = listed_.end();
    while (end - begin > 1) {
      const auto middle = begin + (end - begin) / 2;
      std::nth_element(begin, middle, end, likelier);
      Tally half = before;
      for (auto c = begin; c < middle; ++c) half = half + Tally{1, c->weight};
      if (half.*sum >= wanted) {
        end = middle;
      } else {
        before = half;
        begin = middle;
      }
    }
    return {*begin, before.weight + begin->weight};
  }

  // Number of tokens that weigh at least `least`: exact near their bin, where bins may round.
  double count_of_weight(double least) {
    const double distance = -std::log(least) * static_cast<double>(row_.temperature);
    const auto bin = static_cast<int32_t>(
        std::clamp(distance * static_cast<double>(row_.bins_per_logit), 0.0, double{kDrawBins - 1}));
    const int32_t first = std::max(bin - 1, 0);
    double count = 0;
    for (int32_t b = 0; b < first; ++b) count += bins_[b].tokens;
    list(first, std::min(bin + 1, kDrawBins - 1));
    for (const Candidate& c : listed_) count += c.weight >= least ? 1 : 0;
    return count;
  }

  void list(int32_t first, int32_t last) {
    double count = 0;
    for (int32_t b = first; b <= last; ++b) count += bins_[b].tokens;
    listed_.resize(static_cast<size_t>(count));
    HWY_DYNAMIC_DISPATCH(ListBins)(row_, first, last, listed_.data());
  }

  const cpu::LogitRow& row_;
  Tally* bins_;
  std::vector<Candidate>& listed_;
  Tally all_;
  int32_t last_bin_ = 0;  // with a token
};

}  // namespace

void CpuBackend::draw(const Matrix& logits, std::span<const Sampling> how, std::span<const double> uniforms) {
  drawn_.resize(static_cast<size_t>(logits.rows));
  find_largest(logits, drawn_);
  const auto row_of = [&](int64_t t) {
    const auto row = static_cast<size_t>(t);
    const float temperature = how.empty() || uniforms.empty() ? 0.0F : how[row].temperature;
    return cpu::LogitRow{logits.f32(t), logits.cols, logits.f32(t)[token_of(drawn_[row])], temperature,
                         std::min(kBinsPerUnit / temperature, FLT_MAX)};
  };
  const auto sampled = [](const cpu::LogitRow& row) {
    return row.temperature > 0.0F && std::isfinite(row.largest);
  };
  const bool greedy = uniforms.empty() ||
                      std::ranges::none_of(how, [](const Sampling& row) { return row.temperature > 0.0F; });
  const int team = greedy ? 1 : team_for(logits.rows * logits.cols, int64_t{1} << 12, threads_);
  const int64_t chunks = greedy ? 0 : (logits.cols + kChunk - 1) / kChunk, bins_of_row = chunks * kChunkBins;
  auto* bins = static_cast<Tally*>(scratch(static_cast<size_t>(logits.rows * bins_of_row) * sizeof(Tally)));
  for_tasks(team, logits.rows * chunks, [&](int64_t task, int) {
    const cpu::LogitRow row = row_of(task / chunks);
    const int64_t begin = task % chunks * kChunk, end = std::min(begin + kChunk, logits.cols);
    if (sampled(row)) HWY_DYNAMIC_DISPATCH(TallyBins)(row, begin, end, bins + task * kChunkBins);
  });
  candidates_.resize(std::max(candidates_.size(), static_cast<size_t>(team)));
  for_tasks(team, logits.rows, [&](int64_t t, int worker) {
    const auto i = static_cast<size_t>(t);
    const cpu::LogitRow row = row_of(t);
    if (!std::isfinite(row.largest)) drawn_[i] = -1 - drawn_[i];
    if (!sampled(row)) return;
    const std::span<Tally> its_bins(bins + t * bins_of_row, static_cast<size_t>(bins_of_row));
    drawn_[i] = Draw(row, its_bins, candidates_[static_cast<size_t>(worker)]).token(how[i], uniforms[i]);
  });
}

void CpuBackend::read_drawn(std::span<int32_t> ids) { std::copy_n(drawn_.begin(), ids.size(), ids.begin()); }

}  // namespace lariat
#endif  // HWY_ONCE
