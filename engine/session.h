#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/position_method.h"
#include "kernels/backend.h"
#include "models/decoder.h"
#include "models/model.h"

namespace lariat {

struct SessionOptions {
  int64_t max_ctx = 0;          // longest sequence; 0: as long as memory lasts
  int64_t prefill_chunk = 512;  // tokens per forward pass of a prefill; 0: all at once
  DType k_dtype = DType::kF16, v_dtype = DType::kF16;
  // How RoPE is stretched; unset: as the model's own config has it.
  std::optional<RopeScaling> rope{};
  // Steps per octave in which a dynamic scale moves; 0: exact, new frequencies for every length.
  int rope_steps = 4;
  // At which distances tokens see keys, unless a sequence says otherwise; without ranges: as far as they are
  // apart.
  PositionMethod positions{};
  int64_t latent_workspace = int64_t{128} << 20;  // bytes (LatentAttention)
  bool stale_cache = false;  // leave cached keys as they were rotated when the frequencies change
  // Called once, when logits turn out to hold a NaN or an infinite value: the session's first ones, or later
  // ones in what somebody makes of them (Session::report_not_finite). Weights are mapped and not looked at
  // when a model is loaded (that would read all of them before the first token); damage in them that matters
  // shows here, and only then is it worth looking for (find_not_finite).
  std::function<void()> on_not_finite;
  // Called once, when keys or values of the session's caches turned out to be beyond f16: how many numbers.
  // The caches are looked at behind every prefill and at the session's end.
  std::function<void(const Saturation&)> on_saturated;
};

// What a position method has stretched a text by, and where that puts its second keys, as far as was asked.
struct Stretch {
  double value = 1;
  std::vector<double> positions{};
};

// One growing text: its tokens' keys and values. Made by Session::new_sequence(); the session must outlive
// it.
class Sequence {
 public:
  int64_t length() const { return cache_.length(); }
  const KvCache& cache() const { return cache_; }
  // Forgets everything after the first `length` tokens. What follows has the RoPE frequencies of its own
  // length: a dynamic scale shrinks back when the sequence does.
  void truncate(int64_t length) { cache_.truncate(length); }
  // Goes back to the first `length` tokens, to read those that follow again (for their logits): the same
  // ones, which keep the positions that Session::place gave them and those behind them.
  void rewind(int64_t length) { cache_.rewind(length); }
  // This is the beginning of a text of at least `length` tokens that arrives in pieces: until it is longer,
  // its RoPE frequencies are those of `length`. Without this a dynamic scale would compute the first pieces
  // with the frequencies of a shorter text, and what layers above the first made of them no re-rotation can
  // change afterwards.
  // Where tokens are placed (Session::place) the length is one above the largest position.
  void expect(int64_t length) { expected_ = length; }
  int64_t expected() const { return expected_; }
  double stretch() const { return stretch_.value; }  // PositionMethod::stretch, as it is now
  const RopeScaling& rope() const { return rope_; }
  const PositionMethod& method() const { return method_; }

 private:
  friend class Session;
  Sequence(KvCache cache, RopeScaling rope, PositionMethod method)
      : cache_(std::move(cache)), rope_(std::move(rope)), method_(std::move(method)) {}
  void drop_unseen();
  KvCache cache_;
  RopeScaling rope_;
  PositionMethod method_;
  std::vector<double> key_positions_;  // by the method, as far as they were asked for
  int64_t expected_ = 0;
  Stretch stretch_;
};

// The tokens that one sequence of a batch is to read, and the first of them whose logits are wanted.
struct Prompt {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;
  int64_t logits_from = 0;
};

// Throws Error when there are no tokens: nothing says then what follows.
void check_prompt(std::span<const int32_t> tokens);

// Runs a model: prefills prompts, decodes token by token, for any number of sequences. Not thread-safe; the
// backend threads inside.
class Session {
 public:
  Session(const Model& model, Backend& backend, const SessionOptions& options);
  Session(const Session&) = delete;  // its sequences point at its pool
  Session& operator=(const Session&) = delete;
  ~Session();

  const Model& model() const { return model_; }
  Backend& backend() { return backend_; }
  const SessionOptions& options() const { return options_; }
  const RopeScaling& rope() const { return ropes_.front(); }  // the options', or the model's
  const KvPool& pool() const { return pool_; }
  KvPool& pool() { return pool_; }

  // Throws Error when max_ctx does not allow a sequence of so many tokens.
  void check_length(int64_t length) const;

  Sequence new_sequence() { return new_sequence(rope()); }
  Sequence new_sequence(const RopeScaling& rope) { return new_sequence(rope, options_.positions); }
  // With a scaling of its own, of the session's dimensions and pairs, and a position method of its own.
  // Sequences of any share a step. Throws UsageError where the model goes without methods, or where the
  // method stores keys twice and the session's does not.
  Sequence new_sequence(const RopeScaling& rope, PositionMethod method);
  // A sequence with the first `length` tokens of `other` and its RoPE frequencies, expecting what `other`
  // expects. It shares the pages of its cache: nothing is copied until one of the two writes to one, as a
  // re-rotation does.
  Sequence fork(const Sequence& other, int64_t length);

  // A sequence with such a cache, whose pages are of pool(). Its keys are brought to this session's RoPE
  // frequencies: at once under a scaling that does not depend on the length, else when the next tokens
  // arrive, with which the length is known. (A stale cache leaves them as they are.) expected, stretch: as
  // the sequence had them. Throws Error when there is no memory.
  Sequence restore(KvCache::Contents contents, int64_t expected, double stretch = 1);

  // Puts n tokens behind a sequence that were read elsewhere: `write` makes their keys, rotated with the RoPE
  // frequencies that the cache has then, and values in its pages. Throws Error as prefill does.
  void extend(Sequence& sequence, int64_t n, const std::function<void(KvCache& cache)>& write);

  // Gives the tokens that `sequence` reads next their positions of M-RoPE: time, height and width of each,
  // one token after the other (KvCache::place). Throws Error when the model has no M-RoPE, or for a negative
  // one.
  void place(Sequence& sequence, std::span<const int32_t> positions);

  // Called with consecutive slices of the wanted logits: rows [first, first + logits.rows) of the prompt, f32
  // [rows, vocab] in backend memory, valid during the call.
  using LogitsFn = std::function<void(int64_t first, const Matrix& logits)>;
  using ProgressFn = std::function<void(int64_t tokens_done)>;

  // Appends a prompt to a sequence. The RoPE frequencies are those of the whole length after the prompt, so
  // the result does not depend on prefill_chunk but for the rounding that kernels/backend.h states (linear,
  // attention), and with latent attention for one to the cache's dtype (LatentAttention). Logits
  // are computed for the tokens from index `logits_from` on and handed to `on_logits` in slices. Throws Error
  // when the sequence would exceed max_ctx or a token id is out of range, before anything is changed.
  void prefill(Sequence& sequence, std::span<const int32_t> tokens, int64_t logits_from,
               const LogitsFn& on_logits, const ProgressFn& progress = {});
  // Several prompts, each onto a sequence of its own, packed into common forward passes of prefill_chunk
  // tokens: short prompts share the cost of reading the weights. on_logits also gets the prompt's index;
  // progress counts the tokens of all prompts.
  using BatchLogitsFn = std::function<void(size_t prompt, int64_t first, const Matrix& logits)>;
  void prefill(std::span<const Prompt> prompts, const BatchLogitsFn& on_logits,
               const ProgressFn& progress = {});
  // The usual case: the logits of the last token, f32 [1, vocab] in backend memory, valid until the next
  // call; and the same in host memory. Throws Error when there are no tokens.
  Matrix prefill_last(Sequence& sequence, std::span<const int32_t> tokens, const ProgressFn& progress = {});
  std::span<const float> prefill(Sequence& sequence, std::span<const int32_t> tokens,
                                 const ProgressFn& progress = {});

  // Appends one token to each sequence, in one forward pass. Logits f32 [sequences.size(), vocab] in backend
  // memory, valid until the next call. Each sequence has the RoPE frequencies of its own new length.
  Matrix decode(std::span<Sequence* const> sequences, std::span<const int32_t> tokens);
  // Decodes the tokens that Backend::draw drew last, row i for sequence i, which nobody need have seen
  // yet.
  Matrix decode_drawn(std::span<Sequence* const> sequences);
  // Whether one more token for each can be forgotten again (Sequence::truncate) as if it had never been read:
  // it takes no page of the cache, changes no RoPE frequency, was not placed, and max_ctx allows it.
  bool can_take_back(std::span<Sequence* const> sequences) const;
  // One sequence: its logits, host memory, valid until the next call.
  std::span<const float> decode(Sequence& sequence, int32_t token);

  // The RoPE frequencies of a sequence of `length` tokens: the scaling at that length's step.
  RopeFrequencies frequencies_for(int64_t length) const { return frequencies_for(rope(), length); }

  // Whoever reads a loss, or draws a token, out of logits that are not finite says so here.
  void report_not_finite();

  // From now on, every layer shows what it makes of the tokens that are read (models/trace.h); empty: no
  // longer. Reading tokens then throws UsageError where a position method rotates queries several times.
  void observe(TraceFn trace);

 private:
  RopeFrequencies frequencies_for(const RopeScaling& rope, int64_t length) const;
  void check(const Sequence& sequence, std::span<const int32_t> tokens) const;
  void check_method(const Sequence& sequence) const;
  void enter_lengths(std::span<Sequence* const> sequences, std::span<const int64_t> lengths);
  void turn_keys(std::span<Sequence* const> sequences, std::span<const int64_t> lengths, bool restored);
  void add_to_step(Sequence& sequence, std::span<const int32_t> tokens);
  double stretch_for(const PositionMethod& method, int64_t length) const;
  void add_positions(const Sequence& sequence, size_t n_tokens);
  Matrix run_step();
  Matrix append(std::span<Sequence* const> sequences, std::span<const int32_t> tokens);
  struct Piece;
  void run_pieces(std::span<const Prompt> prompts, std::span<const Piece> pieces,
                  const BatchLogitsFn& on_logits);
  std::span<const float> to_host(const Matrix& logits);
  void check_finite_once(const Matrix& logits);
  void check_saturated();

  const Model& model_;
  Backend& backend_;
  SessionOptions options_;
  std::vector<RopeScaling> ropes_;                  // the model's, the first as the options have it
  std::vector<RopeFrequencies> fixed_frequencies_;  // of the others, which do not depend on the length
  KvPool pool_;
  Decoder decoder_;
  // The step that add_to_step puts together; its memory serves the next one too.
  struct GrowingStep {
    std::vector<int32_t> tokens;
    std::vector<StepSequence> sequences;
    // Of each sequence, for each of ropes_ and for the further tables of any method so far.
    std::vector<std::vector<SequenceRope>> ropes;
    std::vector<SeenAlike> seen;
    std::vector<std::vector<float>>
        query_scales;  // of the tokens of each of `sequences`, where the model has any
    std::vector<std::vector<double>> positions;  // by methods, for each of those tables and keys, likewise
    void clear();
  } step_;
  std::vector<int64_t> lengths_;  // of a decode step
  std::vector<int32_t> drawn_;    // of decode_drawn
  bool observed_ = false;
  std::vector<float> host_logits_;
  bool finite_checked_ = false;
  Saturation saturated_before_;  // by others on this backend
};

}  // namespace lariat
