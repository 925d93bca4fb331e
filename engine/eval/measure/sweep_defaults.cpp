// Fills in the defaults of a sweep's options and checks them.
#include <fmt/core.h>

#include <algorithm>

#include "engine/contexts/memory_check.h"
#include "engine/eval/measure/sweep.h"
#include "engine/eval/measure/windows.h"
#include "kernels/counted.h"
#include "kernels/error.h"

namespace lariat {
namespace {

constexpr int64_t kFewestTokens = 8192, kFewestMoved = 256;  // text tokens; minimum stride

RopeScaling own_scaling(const Model& model, RopeOptions options) {
  options.factor.reset();  // applies only to named scalings
  return resolve_rope(model.spec.rope(), options);
}

}  // namespace

Schedule::Schedule(const Engine& engine, const SweepOptions& options)
    : engine_(engine),
      options_(options),
      own_(own_scaling(engine.model, options.rope)),
      session_(engine.session_for(own_)),
      codec_(prompt_codec(*engine.tokenizer)),
      bos_(text_bos(*engine.tokenizer)) {
  if (!options_.rope.original_ctx) options_.rope.original_ctx = own_.original_ctx;
  sort_unique(options_.passkeys.depths);
  for (const std::string& name : options.scalings) {
    const Column column = parse_column(name);
    if (std::ranges::count(columns_, column) == 0) columns_.push_back(column);
  }
  if (columns_.empty()) columns_ = {"none"};
  if (options.scalings.empty() && engine.model.spec.has_rope())
    columns_ = {"none", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn"};
  set_reuse();
  options_.perplexity = options_.perplexity && !options_.text.empty();
  options_.growing = options_.growing && !options_.text.empty();
  options_.passkey = options_.passkey && !options_.quick;
  options_.speed = options_.speed && !options_.quick;
  if (options_.growing_step == 0) options_.growing_step = default_step(session_);
  options_.passkeys.interrupted = options_.interrupted;
  options_.passkeys.eos_ids = engine.eos_ids();
  options_.passkeys.max_new_tokens = answer_tokens(codec_, options_.passkeys.needles);
  fill_in();
  for (const Column& column : columns_) {
    const std::string method = column.method, whole = method_for(column).name;
    if (const std::string note = method + " is " + whole;
        method != whole && std::ranges::count(notes_, note) == 0)
      notes_.push_back(note);
  }
  plan_ = make_plan();
}

void Schedule::set_reuse() {
  if (options_.reuse.empty()) return;
  if (options_.text.empty()) throw UsageError("`reuse_prefill`: scores a text; name one");
  const Column base = parse_column(options_.reuse);
  if (!base.method.empty())
    throw UsageError("`reuse_prefill` " + options_.reuse + ": has a position method; use a scaling");
  options_.method = PerplexityMethod::kTail;
  options_.growing = options_.passkey = options_.speed = false;
  std::erase(columns_, base);
  std::vector<Column> all = {base};
  const auto others = std::ssize(columns_);
  for (int64_t i = 0; i < others; ++i) {
    Column column = columns_[static_cast<size_t>(i)];
    // Evenly among the columns.
    const bool checked =
        options_.checks > 0 && (i + 1) * options_.checks / others > i * options_.checks / others;
    if (checked || !column.method.empty()) all.push_back(column);
    column.reused = column.method.empty();
    if (column.reused) {
      all.push_back(column);
    } else {
      notes_.push_back(column.name() + " is prefilled by itself, as position methods keep other keys");
    }
  }
  columns_ = all;
}

// Lengths, text and its used part depend on each other.
void Schedule::fill_in() {
  const int64_t l0 = *options_.rope.original_ctx;
  const bool open = options_.lengths.empty();
  if (open)
    options_.lengths = engine_.model.spec.learned_positions
                           ? std::vector{std::max<int64_t>(l0 / 4, 1), std::max<int64_t>(l0 / 2, 1), l0}
                           : std::vector{l0, 2 * l0, 4 * l0};
  sort_unique(options_.lengths);
  const auto most = [&] {
    const int64_t holds = options_.lengths.back() - std::ssize(bos_);
    return options_.max_tokens.value_or(options_.quick ? holds : std::max(holds, kFewestTokens));
  };
  if (options_.perplexity || options_.growing)
    text_ = options_.tokens != nullptr ? *options_.tokens
                                       : read_tokens(options_.text, *engine_.tokenizer, most());
  if (open) drop_long_lengths();
  options_.max_tokens = most();
  if (!text_) return;
  const auto tokens = text_->range(0, text_->size());
  text_ = TokenSource({tokens.begin(), tokens.end()}, most(), text_->name());
}

// Keeps the first length.
void Schedule::drop_long_lengths() {
  auto& lengths = options_.lengths;
  Session session(engine_.model, *engine_.backend, session_);
  while (lengths.size() > 1) {
    const bool too_short = text_ && text_->size() + std::ssize(bos_) < lengths.back();
    const std::string why = too_short ? text_->name() + " has " + counted(text_->size(), "token")
                                      : why_too_long(session, most_tokens(), options_.passkey ? 2 : 1);
    if (why.empty()) return;
    notes_.push_back(fmt::format("length {} is skipped: {}", lengths.back(), why));
    lengths.pop_back();
  }
}

int64_t Schedule::stride_of(int64_t length) const {
  if (options_.stride > 0) return options_.stride;
  return std::max(length / window_parts(), kFewestMoved);
}

void Schedule::check() const {
  const int64_t longest = options_.lengths.back(), shortest = options_.lengths.front();
  for (const Column& column : columns_) {
    for (const int64_t length : options_.lengths) scaling_for(column, length);
    if (column.stale && !scaling_for(column, longest).depends_on_length())
      throw UsageError(
          fmt::format("`scalings` {}: only dynamic scalings have stale keys; omit stale, or use "
                      "dynamic or dynamic-yarn",
                      column.name()));
  }
  if (std::ranges::any_of(columns_, &Column::reused) && (options_.reuse.empty() || session_.stale_cache))
    throw UsageError(
        fmt::format("`scalings` {}: needs a prefill to reuse and keys that are re-rotated; use "
                    "`reuse_prefill` without stale keys",
                    std::ranges::find_if(columns_, &Column::reused)->name()));
  Session session(engine_.model, *engine_.backend, session_);
  const int64_t most = most_tokens(), limit = session.options().max_ctx;
  if (limit > 0 && most > limit && !session.options().fixed_ctx) {
    throw ContextFull(
        fmt::format("`lengths` {}: needs sequences of {} with its answer, more than the {} allowed", longest,
                    counted(most, "token"), limit));
  }
  check_memory(session, most, options_.passkey ? 2 : 1, fmt::format("`lengths` {}", longest));
  if (options_.passkey) check_passkey_length(codec_, options_.passkeys, shortest);
  if (!options_.reuse.empty()) {
    const PerplexityOptions tails = perplexity_options({Kind::kPerplexity, columns_.front(), shortest});
    Session* const one = &session;
    check_windows({&one, 1}, *text_, tails);
  }
  if (options_.perplexity || options_.growing) {
    const int64_t bos = std::ssize(bos_), holds = longest - bos, have = text_->size();
    if (have < holds) {
      throw Error(fmt::format("{}, and the longest window holds {}{}", text_->size_in_words(), holds,
                              fitting_settings(*text_, holds, bos, "`lengths`")));
    }
  }
}

}  // namespace lariat
