#include "engine/session.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "kernels/counted.h"
#include "kernels/error.h"

namespace lariat {
namespace {

// Rows of logits computed at a time: 64 rows of a 128k vocabulary are 33 MB.
constexpr int64_t kLogitRows = 64;

std::vector<RopeScaling> stretched(std::vector<RopeScaling> ropes, const std::optional<RopeScaling>& first) {
  if (first) ropes.front() = *first;
  return ropes;
}

// Adds the positions of places up to `length` that are not there yet.
void add_places(std::vector<double>& positions, const PositionMethod::Positions& at, double stretch,
                int64_t length) {
  for (auto p = std::ssize(positions); at && p < length; ++p) positions.push_back(at(p, stretch));
}

}  // namespace

Session::Session(const Model& model, Backend& backend, const SessionOptions& options)
    : model_(model),
      backend_(backend),
      options_(options),
      ropes_(stretched(model.spec.ropes, options.rope)),
      pool_(model.spec, backend, options.k_dtype, options.v_dtype,
            second_keys_of(options.positions.ranges) > 0),
      decoder_(model.spec, model.weights, ropes_, pool_.geometry(), backend, options.prefill_chunk,
               options.latent_workspace),
      step_{} {
  check_position_method(options_.positions, model.spec);
  step_.ropes.resize(ropes_.size());
  for (size_t r = 1; r < ropes_.size(); ++r) fixed_frequencies_.push_back(rope_frequencies(ropes_[r], 0));
  if (options_.k_dtype != DType::kF16 && options_.v_dtype != DType::kF16) options_.on_saturated = {};
  if (options_.on_saturated) saturated_before_ = backend_.saturated();
  if (!model.spec.has_rope() && rope().type != RopeType::kDefault) {
    throw Error(model.spec.file.string() + ": a " + model.spec.family +
                " has no RoPE that could be stretched; its positions are ALiBi, a bias by distance");
  }
}

void check_prompt(std::span<const int32_t> tokens) {
  if (tokens.empty())
    throw Error("the prompt has no tokens; give some text, or a model whose tokenizer adds a BOS");
}

Session::~Session() {
  try {
    check_saturated();
  } catch (const std::exception&) {  // the backend has failed, which whoever runs it has been told of
    options_.on_saturated = {};
  }
}

Sequence Session::new_sequence(const RopeScaling& rope, PositionMethod method) {
  check_position_method(method, model_.spec);
  if (second_keys_of(method.ranges) > 0 && second_keys_of(options_.positions.ranges) == 0)
    throw UsageError("`position_method` " + method.name + ": the session's own stores no keys twice");
  const size_t tables = ropes_.size() + std::max<size_t>(method.positions.size(), 1) - 1;
  step_.ropes.resize(std::max(step_.ropes.size(), tables));
  return {KvCache(pool_, rope_frequencies(rope, 0)), rope, std::move(method)};
}

Sequence Session::fork(const Sequence& other, int64_t length) {
  Sequence copy = new_sequence(other.rope_, other.method_);
  copy.cache_.share_prefix(other.cache_, std::min(length, other.length()));
  copy.expected_ = other.expected_;
  copy.stretch_ = other.stretch_;
  return copy;
}

Sequence Session::restore(KvCache::Contents contents, int64_t expected, double stretch) {
  Sequence sequence = new_sequence();
  sequence.cache_.restore(std::move(contents));
  sequence.expected_ = expected;
  sequence.stretch_.value = stretch;
  Sequence* const one = &sequence;
  const int64_t length = sequence.length();
  if (!rope().depends_on_length()) turn_keys({&one, 1}, {&length, 1}, true);
  return sequence;
}

void Session::extend(Sequence& sequence, int64_t n, const std::function<void(KvCache& cache)>& write) {
  const int64_t length = sequence.length() + n;
  check_length(length);
  Sequence* const one = &sequence;
  enter_lengths({&one, 1}, {&length, 1});
  write(sequence.cache_);
  sequence.cache_.advance(n);
}

RopeFrequencies Session::frequencies_for(const RopeScaling& rope, int64_t length) const {
  return rope_frequencies(rope, rope_step_length(rope, length, options_.rope_steps));
}

void Session::check(const Sequence& sequence, std::span<const int32_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= model_.spec.vocab_size) {
      throw Error("token id " + std::to_string(tokens[i]) + " (at index " + std::to_string(i) +
                  ") is outside the model's vocabulary of " + std::to_string(model_.spec.vocab_size) +
                  "; the tokenizer and the config do not match, or the list of ids is wrong");
    }
  }
  check_length(sequence.length() + static_cast<int64_t>(tokens.size()));
}

void Session::check_length(int64_t length) const {
  if (options_.max_ctx > 0 && length > options_.max_ctx) {
    throw ContextFull("the sequence would have " + counted(length, "token") + " and the context allows " +
                      std::to_string(options_.max_ctx));
  }
}

// Memory and RoPE frequencies for sequences that are about to have these lengths.
void Session::enter_lengths(std::span<Sequence* const> sequences, std::span<const int64_t> lengths) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    check_method(*sequences[i]);
    sequences[i]->cache_.reserve(lengths[i]);
  }
  turn_keys(sequences, lengths, false);
}

// Cached keys are re-rotated before anything attends. Restored ones may have frequencies of another scaling.
void Session::turn_keys(std::span<Sequence* const> sequences, std::span<const int64_t> lengths,
                        bool restored) {
  std::vector<KvCache*> caches;
  std::vector<RopeFrequencies> frequencies;
  std::vector<KeyPositions> key_positions;
  std::vector<std::pair<Sequence*, Stretch>> moving;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    const PositionMethod& method = sequence.method_;
    const bool may_move = sequence.rope_.depends_on_length() || restored;
    if (!may_move && !method.stretch) continue;
    int64_t length = lengths[i];  // as RoPE sees it: one above the largest position
    if (const auto positions = sequence.cache_.positions(length); !positions.empty())
      length = static_cast<int64_t>(*std::max_element(positions.begin(), positions.end())) + 1;
    length = std::max(length, sequence.expected_);
    const double stretch = stretch_for(method, length);
    if (!may_move && stretch == sequence.stretch_.value) continue;
    caches.push_back(&sequence.cache_);
    frequencies.push_back(frequencies_for(sequence.rope_, length));
    if (!method.positions.empty())
      add_places(sequence.key_positions_, method.positions[0], stretch, lengths[i]);
    KeyPositions& own = key_positions.emplace_back(KeyPositions{sequence.key_positions_});
    const size_t second = second_keys_of(method.ranges);
    if (second == 0) continue;
    std::vector<double>& from = sequence.stretch_.positions;
    add_places(from, method.positions[second], sequence.stretch_.value, sequence.length());
    own.second_from = own.second_to = from;
    if (stretch == sequence.stretch_.value) continue;
    std::vector<double>& to = moving.emplace_back(&sequence, Stretch{stretch}).second.positions;
    add_places(to, method.positions[second], stretch, sequence.length());
    own.second_to = to;
  }
  set_frequencies(pool_, caches, frequencies, rope().interleaved, !options_.stale_cache, key_positions);
  for (auto& [sequence, stretch] : moving) sequence->stretch_ = std::move(stretch);
}

void Session::observe(TraceFn trace) {
  observed_ = static_cast<bool>(trace);
  decoder_.observe(std::move(trace));
}

void Session::place(Sequence& sequence, std::span<const int32_t> positions) {
  if (model_.spec.mrope_axes.empty())
    throw Error(model_.spec.file.string() + ": a " + model_.spec.family +
                " has no M-RoPE; a token of it has one position");
  if (positions.size() % 3 != 0) throw Error("the positions are no three for each token");
  for (const int32_t position : positions) {
    if (position < 0 || position > kMaxPosition)
      throw Error("the positions hold " + std::to_string(position) + "; expected numbers from 0 on");
  }
  sequence.cache_.place(positions);
}

void Session::GrowingStep::clear() {
  tokens.clear();
  sequences.clear();
  for (auto& of_sequences : ropes) of_sequences.clear();
  seen.clear();
}

void Session::add_to_step(Sequence& sequence, std::span<const int32_t> tokens) {
  KvCache& cache = sequence.cache_;
  const RopeFrequencies& frequencies = cache.frequencies();
  step_.tokens.insert(step_.tokens.end(), tokens.begin(), tokens.end());
  step_.sequences.push_back({cache.length(), static_cast<int64_t>(tokens.size()), cache.pages()});
  // transformers multiplies cos and sin of q and of k by the attention factor; keys here are pure rotations,
  // so q carries both.
  step_.query_scales.resize(std::max(step_.query_scales.size(), step_.sequences.size()));
  std::vector<float>& query_scales = step_.query_scales[step_.sequences.size() - 1];
  query_scales.clear();
  const auto score_scale =
      model_.spec.scores_take_mscale ? static_cast<float>(rope_score_scale(sequence.rope_)) : 1.0F;
  const auto& temperature = sequence.method_.temperature;
  for (int64_t i = 0; (model_.spec.scales_queries() || temperature) && i < std::ssize(tokens); ++i) {
    const int64_t place = cache.length() + i;
    const double of_method = temperature ? temperature(place) : 1.0;
    query_scales.push_back(score_scale * static_cast<float>(model_.spec.query_scale.at(place) * of_method));
  }
  const auto with_scale = [&](const RopeFrequencies& of) {
    SequenceRope rope{of.inv_freq, static_cast<float>(of.attention_factor * of.attention_factor)};
    rope.whole_q_scale = query_scales;
    return rope;
  };
  SequenceRope& rope = step_.ropes[0].emplace_back(with_scale(frequencies));
  const auto n_tokens = static_cast<int64_t>(tokens.size());
  if (const auto positions = cache.positions(cache.length() + n_tokens); !positions.empty()) {
    rope.positions = positions.last(3 * tokens.size());
    rope.axes = model_.spec.mrope_axes;
  }
  for (size_t r = 1; r < ropes_.size(); ++r) step_.ropes[r].push_back(with_scale(fixed_frequencies_[r - 1]));
  add_positions(sequence, tokens.size());
}

Matrix Session::run_step() {
  return decoder_.forward({step_.tokens, step_.sequences}, step_.ropes, step_.seen);
}

// Tokens [first, first + n) of a prompt, in one forward pass.
struct Session::Piece {
  size_t prompt;
  int64_t first, n;
};

void Session::run_pieces(std::span<const Prompt> prompts, std::span<const Piece> pieces,
                         const BatchLogitsFn& on_logits) {
  step_.clear();
  for (const Piece& piece : pieces) {
    const Prompt& prompt = prompts[piece.prompt];
    add_to_step(*prompt.sequence,
                prompt.tokens.subspan(static_cast<size_t>(piece.first), static_cast<size_t>(piece.n)));
  }
  const Matrix hidden = run_step();
  int64_t begin = 0;  // of the piece, in the pass
  for (const Piece& piece : pieces) {
    const Prompt& prompt = prompts[piece.prompt];
    prompt.sequence->cache_.advance(piece.n);
    for (int64_t row = std::max<int64_t>(prompt.logits_from - piece.first, 0); row < piece.n;
         row += kLogitRows) {
      const Matrix rows = hidden.row_range(begin + row, std::min(kLogitRows, piece.n - row));
      const Matrix logits = decoder_.logits(rows);
      check_finite_once(logits);
      on_logits(piece.prompt, piece.first + row, logits);
    }
    begin += piece.n;
  }
}

void Session::prefill(std::span<const Prompt> prompts, const BatchLogitsFn& on_logits,
                      const ProgressFn& progress) {
  int64_t total = 0, done = 0;
  std::vector<Sequence*> sequences;
  std::vector<int64_t> lengths;
  for (const Prompt& prompt : prompts) {
    check(*prompt.sequence, prompt.tokens);
    const auto size = static_cast<int64_t>(prompt.tokens.size());
    total += size;
    sequences.push_back(prompt.sequence);
    lengths.push_back(prompt.sequence->length() + size);
  }
  enter_lengths(sequences, lengths);
  const int64_t step = options_.prefill_chunk > 0 ? options_.prefill_chunk : std::max<int64_t>(total, 1);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto size = static_cast<int64_t>(prompts[i].tokens.size());
    for (int64_t first = 0, n = 0; first < size; first += n) {
      int64_t room = step;
      for (const Piece& piece : pieces) room -= piece.n;
      n = std::min(room, size - first);
      pieces.push_back({i, first, n});
      done += n;
      if (n < room && done < total) continue;
      run_pieces(prompts, pieces, on_logits);
      pieces.clear();
      if (progress) progress(done);
    }
  }
  check_saturated();
}

void Session::prefill(Sequence& sequence, std::span<const int32_t> tokens, int64_t logits_from,
                      const LogitsFn& on_logits, const ProgressFn& progress) {
  const Prompt prompt{&sequence, tokens, logits_from};
  prefill(
      {&prompt, 1}, [&](size_t, int64_t first, const Matrix& logits) { on_logits(first, logits); }, progress);
}

Matrix Session::prefill_last(Sequence& sequence, std::span<const int32_t> tokens,
                             const ProgressFn& progress) {
  check_prompt(tokens);
  Matrix last;
  prefill(
      sequence, tokens, static_cast<int64_t>(tokens.size()) - 1,
      [&](int64_t, const Matrix& logits) { last = logits; }, progress);
  return last;
}

std::span<const float> Session::prefill(Sequence& sequence, std::span<const int32_t> tokens,
                                        const ProgressFn& progress) {
  return to_host(prefill_last(sequence, tokens, progress));
}

Matrix Session::decode(std::span<Sequence* const> sequences, std::span<const int32_t> tokens) {
  for (size_t i = 0; i < sequences.size(); ++i) check(*sequences[i], tokens.subspan(i, 1));
  return append(sequences, tokens);
}

Matrix Session::decode_drawn(std::span<Sequence* const> sequences) {
  drawn_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) drawn_.push_back(drawn_token(i));
  return append(sequences, drawn_);
}

bool Session::can_take_back(std::span<Sequence* const> sequences) const {
  return std::all_of(sequences.begin(), sequences.end(), [&](const Sequence* sequence) {
    const KvCache& cache = sequence->cache_;
    const int64_t length = cache.length() + 1;
    if (options_.max_ctx > 0 && length > options_.max_ctx) return false;
    if (!cache.has_room(length) || !cache.placed().empty()) return false;
    const int64_t expected = std::max(length, sequence->expected_);
    if (stretch_for(sequence->method_, expected) != sequence->stretch_.value) return false;
    return !sequence->rope_.depends_on_length() ||
           frequencies_for(sequence->rope_, expected) == cache.frequencies();
  });
}

Matrix Session::append(std::span<Sequence* const> sequences, std::span<const int32_t> tokens) {
  lengths_.clear();
  for (const Sequence* sequence : sequences) lengths_.push_back(sequence->length() + 1);
  enter_lengths(sequences, lengths_);
  step_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) add_to_step(*sequences[i], tokens.subspan(i, 1));
  const Matrix logits = decoder_.logits(run_step());
  for (Sequence* sequence : sequences) {
    sequence->cache_.advance(1);
    sequence->drop_unseen();
  }
  return logits;
}

std::span<const float> Session::decode(Sequence& sequence, int32_t token) {
  Sequence* const one = &sequence;
  return to_host(decode({&one, 1}, {&token, 1}));
}

// The last row, which depends on all of the piece.
void Session::check_finite_once(const Matrix& logits) {
  if (finite_checked_ || !options_.on_not_finite) return;
  finite_checked_ = true;
  const Matrix last = logits.row_range(logits.rows - 1, 1);
  std::vector<float> host(static_cast<size_t>(last.cols));
  backend_.copy_out(host.data(), last.data, host.size() * sizeof(float));
  const bool finite = std::all_of(host.begin(), host.end(), [](float x) { return std::isfinite(x); });
  if (!finite) report_not_finite();
}

void Session::report_not_finite() {
  if (options_.on_not_finite) std::exchange(options_.on_not_finite, {})();
}

void Session::check_saturated() {
  if (!options_.on_saturated) return;
  const Saturation now = backend_.saturated();
  const Saturation here{now.keys - saturated_before_.keys, now.values - saturated_before_.values};
  if (here.keys + here.values > 0) std::exchange(options_.on_saturated, {})(here);
}

std::span<const float> Session::to_host(const Matrix& logits) {
  host_logits_.resize(static_cast<size_t>(logits.rows * logits.cols));
  backend_.copy_out(host_logits_.data(), logits.data, host_logits_.size() * sizeof(float));
  return host_logits_;
}

}  // namespace lariat
