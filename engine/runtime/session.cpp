#include "engine/runtime/session.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <list>
#include <tuple>
#include <utility>

#include "engine/runtime/ranks.h"
#include "kernels/counted.h"
#include "kernels/error.h"

namespace lariat {
namespace {

// Logits are computed in slices of this many rows: 64 rows of a 128k vocabulary take 33 MB.
constexpr int64_t kLogitRows = 64;

std::vector<RopeScaling> stretched(std::vector<RopeScaling> ropes, const std::optional<RopeScaling>& first) {
  if (first) ropes.front() = *first;
  return ropes;
}

}  // namespace

Session::Session(const Model& model, Backend& backend, const SessionOptions& options)
    : model_(model),
      backend_(backend),
      options_(options),
      ropes_(stretched(model.spec.ropes, options.rope)),
      pool_(model.cache_spec(), backend, options.k_dtype, options.v_dtype,
            second_keys_of(options.positions.ranges) > 0, options.ranks, options.cache_memory),
      prefixes_(pool_, options.prefix_memory),
      decoder_(model.own_spec(), model.weights, ropes_, pool_.geometry(), backend, options.prefill_chunk,
               options.latent_workspace, model.split,
               options.ranks != nullptr ? &options.ranks->communicator() : nullptr),
      step_(model.spec, ropes_) {
  limit_context(options_, model.spec);
  check_rope(rope(), model.spec);
  check_position_method(options_.positions, model.spec);
  pool_.when_full([this] { return prefixes_.free_oldest(); });
  if (options_.k_dtype != DType::kF16 && options_.v_dtype != DType::kF16) options_.on_saturated = {};
  if (options_.on_saturated) saturated_before_ = saturated();
  if (options.ranks != nullptr)
    options.ranks->open(pool_,
                        {options.k_dtype, options.v_dtype, second_keys_of(options.positions.ranges) > 0,
                         options.prefill_chunk, options.latent_workspace, options.activations});
}

void check_prompt(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw Error("prompt: no tokens; give a text, or a model with a BOS");
}

Session::~Session() {
  try {
    check_saturated();
  } catch (const std::exception&) {  // the backend failed and has reported its failure
    options_.on_saturated = {};
  }
  if (options_.ranks != nullptr) options_.ranks->close(pool_);
}

Sequence Session::new_sequence(const SequenceOptions& own) {
  const PositionMethod& method = own.method ? *own.method : options_.positions;
  check_position_method(method, model_.spec);
  if (second_keys_of(method.ranges) > 0 && second_keys_of(options_.positions.ranges) == 0)
    throw UsageError("`position_method` " + method.name +
                     ": the session has no second keys; open it with this method");
  check_rope(own.rope.value_or(rope()), model_.spec);
  step_.make_room(method);
  return {pool_, own.rope.value_or(rope()), method};
}

Sequence Session::fork(const Sequence& other, int64_t length) {
  Sequence copy = new_sequence({other.rope_, other.method()});
  copy.cache_.share_prefix(other.cache_, std::min(length, other.length()));
  copy.positions_ = other.positions_;
  if (length < other.length()) copy.positions_.truncate(length);
  copy.expected_ = other.expected_;
  return copy;
}

void Session::restore(Sequence& sequence, KvCache::Contents contents, std::span<const int32_t> mrope,
                      double stretch) {
  sequence.cache_.restore(std::move(contents));
  sequence.positions_.restore(mrope, stretch);
  if (!sequence.rope_.depends_on_length()) set_rope(sequence, sequence.rope_);
}

void Session::set_rope(Sequence& sequence, const RopeScaling& rope) {
  Sequence* const one = &sequence;
  const int64_t length = sequence.length();
  sequence.rope_ = rope;
  update_frequencies({&one, 1}, {&length, 1}, true);
}

void Session::share_prefix(Sequence& sequence, std::span<const int32_t> prompt, int64_t most) {
  if (!sequence.method().name.empty() || prompt.empty()) return;
  RopeFrequencies frequencies = frequencies_for(options_, sequence.rope_, std::ssize(prompt));
  std::vector<PrefixCache::Page> pages = prefixes_.find(frequencies, prompt.first(static_cast<size_t>(most)));
  const auto chunk = static_cast<size_t>(options_.shared_chunk() / kKvPage);
  pages.resize(pages.size() / chunk * chunk);
  const int64_t length = std::ssize(pages) * kKvPage;
  if (length > 0) sequence.cache_.restore({std::move(pages), length, std::move(frequencies)});
}

void Session::extend(Sequence& sequence, int64_t n, const std::function<void(KvCache& cache)>& write) {
  refuse_ranks("joined contexts are");
  const int64_t length = sequence.length() + n;
  check_length(options_, length);
  Sequence* const one = &sequence;
  prepare({&one, 1}, {&length, 1});
  write(sequence.cache_);
  sequence.cache_.advance(n);
}

RopeFrequencies frequencies_for(const SessionOptions& session, const RopeScaling& rope, int64_t length) {
  return rope_frequencies(rope, rope_step_length(rope, length, session.rope_steps));
}

// Stretch of far distances, on the steps of a dynamic scale.
double Session::stretch_for(const Sequence& sequence, int64_t length) const {
  if (!sequence.method().stretch) return 1.0;
  RopeScaling steps = sequence.rope_;
  steps.type = RopeType::kDynamic;
  return sequence.method().stretch(rope_step_length(steps, length, options_.rope_steps));
}

void Session::check(const Prompt& prompt) const {
  if (prompt.logits_from == Prompt::kLastToken) check_prompt(prompt.tokens);
  for (size_t i = 0; !prompt.drawn && i < prompt.tokens.size(); ++i) {
    const int32_t token = prompt.tokens[i];
    if (token < 0 || token >= model_.spec.vocab_size) {
      throw Error("token id " + std::to_string(token) + " (index " + std::to_string(i) +
                  "): outside the model's vocabulary of " + std::to_string(model_.spec.vocab_size) +
                  "; check the tokenizer, the config and the list of ids");
    }
  }
  check_length(options_, prompt.sequence->length() + std::ssize(prompt.tokens));
}

void check_length(const SessionOptions& session, int64_t length) {
  if (session.max_ctx == 0 || length <= session.max_ctx) return;
  const std::string what = "the sequence would have " + counted(length, "token") + " and ",
                    most = std::to_string(session.max_ctx);
  if (session.fixed_ctx) throw ContextFull(what + "the model's learned positions end at " + most, true);
  throw ContextFull("`max_ctx`: " + what + "the context allows " + most);
}

void limit_context(SessionOptions& session, const ModelSpec& spec) {
  if (!spec.learned_positions) return;
  const int64_t most = spec.max_position_embeddings;
  if (session.max_ctx > most) {
    throw UsageError("`max_ctx` " + std::to_string(session.max_ctx) + ": the learned positions of a " +
                     spec.family + " end at " + std::to_string(most) + "; use at most that");
  }
  if (session.max_ctx == 0) session.max_ctx = most;
  session.fixed_ctx = session.max_ctx == most;
}

void check_rope(const RopeScaling& rope, const ModelSpec& spec) {
  if (!spec.has_rope() && rope != spec.rope())
    throw UsageError("`rope_scaling`: a " + spec.family + " has " + spec.position_kind() +
                     " instead of RoPE; remove the option");
}

// Checks that tracing is off and that every key visible to the next token is still cached.
void Session::check_method(const Sequence& sequence) const {
  const PositionMethod& method = sequence.method();
  const int64_t length = sequence.length();
  if (observed_ && !method.ranges.empty())
    throw UsageError("`position_method` " + method.name + ": a trace supports no position method; use none");
  for (const VisibleRange& range : method.ranges) {
    if (!sequence.cache_.holds(range.begin.at(length), range.end.at(length)))
      throw Error("`position_method` " + method.name + ": the cache dropped keys that are visible to token " +
                  std::to_string(length) + "; start the text again");
  }
}

void Session::prepare(std::span<Sequence* const> sequences, std::span<const int64_t> lengths) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    check_method(*sequences[i]);
    sequences[i]->cache_.reserve(lengths[i]);
  }
  update_frequencies(sequences, lengths, false);
}

// Re-rotates cached keys before any query attends. restored: frequencies may be of another scaling.
void Session::update_frequencies(std::span<Sequence* const> sequences, std::span<const int64_t> lengths,
                                 bool restored) {
  std::vector<KvCache*> caches;
  std::vector<RopeFrequencies> frequencies;
  std::vector<KeyPositions> positions;
  std::list<std::vector<double>> memory;  // of the positions
  std::vector<std::tuple<SequencePositions&, double, std::vector<double>&>> stretched;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    const bool may_move = sequence.rope_.depends_on_length() || restored;
    if (!may_move && !sequence.method().stretch) continue;
    SequencePositions& own = sequence.positions_;
    const int64_t length = std::max(own.rope_length(lengths[i]), sequence.expected_);
    const double stretch = stretch_for(sequence, length);
    if (!may_move && stretch == own.stretch()) continue;
    caches.push_back(&sequence.cache_);
    frequencies.push_back(frequencies_for(options_, sequence.rope_, length));
    const int64_t cached = sequence.length();
    KeyPositions& keys = positions.emplace_back(KeyPositions{own.of(0, 0, cached, memory.emplace_back())});
    if (second_keys_of(sequence.method().ranges) == 0) continue;
    const auto second = [&](const RopeFrequencies& near, double at) -> std::span<const double> {
      const auto& far = sequence.method().far;
      return memory.emplace_back(far ? far(near.inv_freq, sequence.rope_, at).inv_freq : near.inv_freq);
    };
    keys.second_from = {second(sequence.cache_.frequencies(), own.stretch()), own.second_keys(cached)};
    keys.second_to = {second(frequencies.back(), stretch)};
    if (stretch == own.stretch()) continue;
    stretched.emplace_back(own, stretch, memory.emplace_back(own.second_keys_at(stretch, cached)));
    keys.second_to.positions = memory.back();
  }
  set_frequencies(pool_, caches, frequencies, rope().interleaved, !options_.stale_cache, positions);
  for (const auto& [of, stretch, second_keys] : stretched) of.set_stretch(stretch, std::move(second_keys));
}

void Session::refuse_ranks(const char* what) const {
  if (options_.ranks != nullptr) throw UsageError(std::string(what) + " for one process; run without mpirun");
}

void Session::observe(TraceFn trace) {
  refuse_ranks("traces are");
  observed_ = static_cast<bool>(trace);
  decoder_.observe(std::move(trace));
}

Matrix Session::run_pieces(std::span<const Prompt> prompts, std::span<const Piece> pieces) {
  step_.clear();
  for (const auto& [prompt, first, n] : pieces) {
    const Prompt& of = prompts[prompt];
    step_.add(*of.sequence, lengths_[prompt] - std::ssize(of.tokens) + first,
              of.tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(n)));
  }
  const Matrix hidden = step_.run([&](const Step& step, auto ropes, auto visible) {
    if (options_.ranks != nullptr) options_.ranks->forward(pool_, step, sequences_, ropes, visible);
    return on_all_ranks(options_.ranks, [&] { return decoder_.forward(step, ropes, visible); });
  });
  for (const auto& [prompt, first, n] : pieces) prompts[prompt].sequence->cache_.advance(n);
  return hidden;
}

Matrix Session::logits_of(const Matrix& hidden, int64_t first, int64_t count) {
  if (options_.ranks != nullptr) options_.ranks->logits(pool_, first, count);
  return on_all_ranks(options_.ranks, [&] { return decoder_.logits(hidden.row_range(first, count)); });
}

// Computes requested logits in slices; returns the last slice.
Matrix Session::slice_logits(std::span<const Prompt> prompts, std::span<const Piece> pieces,
                             const Matrix& hidden, const LogitsFn& on_logits) {
  Matrix logits;
  int64_t begin = 0;  // first row of the piece in the pass
  for (const auto& [prompt, first, n] : pieces) {
    for (int64_t row = std::max<int64_t>(prompts[prompt].first_wanted() - first, 0); row < n;
         row += kLogitRows) {
      logits = logits_of(hidden, begin + row, std::min(kLogitRows, n - row));
      check_finite_once(logits);
      if (on_logits) on_logits(prompt, first + row, logits);
    }
    begin += n;
  }
  return logits;
}

Matrix Session::decode(std::span<const Prompt> prompts, const LogitsFn& on_logits) {
  pieces_.clear();
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (int64_t k = 0; k < std::ssize(prompts[i].tokens); ++k) pieces_.push_back({i, k, 1});
  }
  const Matrix hidden = run_pieces(prompts, pieces_);
  Matrix logits = logits_of(hidden, 0, hidden.rows);
  for (const Prompt& prompt : prompts) prompt.sequence->drop_unseen();
  for (int64_t row = 0; on_logits && row < logits.rows; ++row) {
    const Piece& piece = pieces_[static_cast<size_t>(row)];
    on_logits(piece.prompt, piece.first, logits.row_range(row, 1));
  }
  return logits;
}

Matrix Session::prefill(std::span<const Prompt> prompts, const LogitsFn& on_logits,
                        const ProgressFn& progress) {
  int64_t total = 0, done = 0;
  for (const Prompt& prompt : prompts) total += std::ssize(prompt.tokens);
  const int64_t step = options_.prefill_chunk > 0 ? options_.prefill_chunk : std::max<int64_t>(total, 1);
  Matrix logits;
  pieces_.clear();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto size = std::ssize(prompts[i].tokens);
    for (int64_t first = 0, n = 0; first < size; first += n) {
      int64_t room = step;
      for (const Piece& piece : pieces_) room -= piece.n;
      n = std::min(room, size - first);
      pieces_.push_back({i, first, n});
      done += n;
      if (n < room && done < total) continue;
      logits = slice_logits(prompts, pieces_, run_pieces(prompts, pieces_), on_logits);
      pieces_.clear();
      if (progress) progress(done);
    }
  }
  check_saturated();
  return logits;
}

Matrix Session::forward(std::span<const Prompt> prompts, const LogitsFn& on_logits,
                        const ProgressFn& progress) {
  bool decodes = !prompts.empty();
  sequences_.clear();
  lengths_.clear();
  for (const Prompt& prompt : prompts) {
    check(prompt);
    decodes = decodes && (prompt.decode || prompt.tokens.size() == 1) && prompt.first_wanted() == 0;
    sequences_.push_back(prompt.sequence);
    lengths_.push_back(prompt.sequence->length() + std::ssize(prompt.tokens));
  }
  prepare(sequences_, lengths_);
  backend_.use_activations(options_.activations);
  if (!decodes) return prefill(prompts, on_logits, progress);
  const Matrix logits = decode(prompts, on_logits);
  if (progress) progress(std::ssize(prompts));
  return logits;
}

bool Session::can_take_back(std::span<Sequence* const> sequences, int64_t n) const {
  return std::ranges::all_of(sequences, [&](const Sequence* sequence) {
    const KvCache& cache = sequence->cache_;
    const int64_t length = cache.length() + n;
    if (options_.max_ctx > 0 && length > options_.max_ctx) return false;
    if (!cache.has_room(length) || !sequence->positions_.mrope().empty()) return false;
    const int64_t expected = std::max(length, sequence->expected_);
    if (stretch_for(*sequence, expected) != sequence->positions_.stretch()) return false;
    return !sequence->rope_.depends_on_length() ||
           frequencies_for(options_, sequence->rope_, expected) == cache.frequencies();
  });
}

// Checks the last row, which depends on all tokens of the piece.
void Session::check_finite_once(const Matrix& logits) {
  if (finite_checked_ || !options_.on_not_finite) return;
  finite_checked_ = true;
  const std::vector<float> last = to_host(backend_, logits.row_range(logits.rows - 1, 1));
  if (!std::ranges::all_of(last, [](float x) { return std::isfinite(x); })) report_not_finite();
}

void Session::report_not_finite() {
  if (options_.on_not_finite) std::exchange(options_.on_not_finite, {})();
}

Saturation Session::saturated() const {
  Saturation now = backend_.saturated();
  if (options_.ranks == nullptr) return now;
  const Saturation others = options_.ranks->saturated();
  return {now.keys + others.keys, now.values + others.values};
}

void Session::check_saturated() {
  if (!options_.on_saturated) return;
  const Saturation now = saturated();
  const Saturation here{now.keys - saturated_before_.keys, now.values - saturated_before_.values};
  if (here.keys + here.values > 0) std::exchange(options_.on_saturated, {})(here);
}

}  // namespace lariat
