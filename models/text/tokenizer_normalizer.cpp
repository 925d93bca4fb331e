#include "models/text/tokenizer_normalizer.h"

#include "kernels/error.h"

namespace lariat::tok {
namespace {

// NFKC makes at most 11 bytes of one; a chain of replacements could otherwise double a text again and again.
constexpr size_t kMaxGrowth = 64;

}  // namespace

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t hit; (hit = text.find(pattern, at)) != std::string_view::npos; at = hit + pattern.size()) {
    out.append(text.substr(at, hit - at));
    out.append(content);
  }
  out.append(text.substr(at));
  return out;
}

Normalizer::Normalizer(std::vector<NormalizeStep> steps) : steps_(std::move(steps)) {
  bool replaces = false;
  for (const NormalizeStep& step : steps_) {
    has_form_ |= step.kind == NormalizeStep::Kind::kForm;
    if (step.kind != NormalizeStep::Kind::kReplace) continue;
    replaces = true;
    // A longer pattern could lie across the cut.
    if (utf8_step(step.pattern, 0).length != step.pattern.size()) streams_ = false;
  }
  // A replacement could turn a safe place for a cut into an unsafe one.
  if (has_form_ && replaces) streams_ = false;
}

std::string Normalizer::apply(std::string_view text, bool at_start) const {
  std::string out(text);
  for (const NormalizeStep& step : steps_) {
    switch (step.kind) {
      case NormalizeStep::Kind::kForm:
        out = normalize(out, step.form);
        break;
      case NormalizeStep::Kind::kPrepend:
        if (at_start && !out.empty()) out.insert(0, step.content);
        break;
      case NormalizeStep::Kind::kReplace:
        out = replace_all(out, step.pattern, step.content);
        break;
    }
    if (out.size() > kMaxGrowth * (text.size() + 1024)) {
      throw Error("the tokenizer's normalizer makes a text more than " + std::to_string(kMaxGrowth) +
                  " times longer; use another tokenizer.json");
    }
  }
  return out;
}

size_t Normalizer::certain_prefix(std::string_view text) const {
  if (!streams_) return 0;
  return has_form_ ? normalization_boundary(text) : text.size();
}

}  // namespace lariat::tok
