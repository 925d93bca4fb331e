#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/runtime/sequence.h"
#include "engine/runtime/step_builder.h"
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
  // Called once, when logits hold a NaN or an infinite value: the session's first logits, or later ones by
  // Session::report_not_finite. Weights are memory-mapped and not checked when a model is loaded (a check
  // reads all of them before the first token); damage in them shows here, and find_not_finite then finds it.
  std::function<void()> on_not_finite;
  // Called once, when keys or values of the session's caches exceed f16: the number of such numbers. Checked
  // after every prefill and at the session's end.
  std::function<void(const Saturation&)> on_saturated;
};

// Throws Error when max_ctx does not allow a sequence of `length` tokens.
void check_length(const SessionOptions& session, int64_t length);

// The RoPE frequencies of a sequence of `length` tokens: the scaling at that length's step.
RopeFrequencies frequencies_for(const SessionOptions& session, const RopeScaling& rope, int64_t length);

// New tokens of one sequence, and the first of them whose logits are wanted; kLastToken: only the last one's.
struct Prompt {
  static constexpr int64_t kLastToken = -1;
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;
  int64_t logits_from = kLastToken;
  bool drawn = false;   // the tokens are drawn_token()s, which the host may not know yet
  bool decode = false;  // each token gets its logits, bitwise identical to a separate decode step

  int64_t first_wanted() const { return logits_from == kLastToken ? std::ssize(tokens) - 1 : logits_from; }
};

// Throws Error when there are no tokens: no logits follow them.
void check_prompt(std::span<const int32_t> tokens);

// Settings of one sequence; unset: the session's.
struct SequenceOptions {
  std::optional<RopeScaling> rope{};  // of the session's dimensions and pairs
  std::optional<PositionMethod> method{};
};

// Runs a model over any number of sequences. Not thread-safe; the backend threads inside.
class Session {
 public:
  Session(const Model& model, Backend& backend, const SessionOptions& options);
  Session(const Session&) = delete;  // its sequences point at its pool
  Session& operator=(const Session&) = delete;
  ~Session();

  const Model& model() const { return model_; }
  Backend& backend() const { return backend_; }
  const SessionOptions& options() const { return options_; }
  const RopeScaling& rope() const { return ropes_.front(); }  // the options', or the model's
  const KvPool& pool() const { return pool_; }
  // An empty sequence. Sequences of all scalings and methods share a step. Throws UsageError where the model
  // takes no method, or where the method stores keys twice and the session's does not.
  Sequence new_sequence(const SequenceOptions& own = {});
  // A sequence with the first `length` tokens of `other`, its scaling, its method and its expected length.
  // The pages are shared: one is copied when either sequence writes to it, as a re-rotation does.
  Sequence fork(const Sequence& other, int64_t length);
  // Gives an empty sequence the cache of a saved one, whose pages are of pool(). The keys are brought to the
  // sequence's RoPE frequencies: at once under a scaling that does not depend on the length, else with the
  // next tokens, when the length is known. (A stale cache leaves them as they are.) mrope, stretch: as
  // SequencePositions had them. Throws Error when there is no memory.
  void restore(Sequence& sequence, KvCache::Contents contents, std::span<const int32_t> mrope,
               double stretch);
  // Appends n tokens that were computed elsewhere: `write` fills their keys, rotated with the cache's RoPE
  // frequencies, and values. Throws Error as forward does.
  void extend(Sequence& sequence, int64_t n, const std::function<void(KvCache& cache)>& write);

  // Called with slices of the wanted logits: rows [first, first + logits.rows) of a prompt, f32 [rows, vocab]
  // in backend memory, valid during the call.
  using LogitsFn = std::function<void(size_t prompt, int64_t first, const Matrix& logits)>;
  using ProgressFn = std::function<void(int64_t tokens_done)>;  // of all prompts

  // The one way into the model: appends each prompt to its sequence. A prefill is a prompt of many tokens, a
  // decode step has prompts of one token or with Prompt::decode. Prompts share forward passes of up to
  // prefill_chunk tokens; prompts of one token each are one pass. The RoPE frequencies follow each sequence's
  // whole length after its prompt, so the result does not depend on prefill_chunk but for the rounding that
  // kernels/backend.h states (linear, attention), and with latent attention for one rounding to the cache's
  // dtype (LatentAttention). Returns the last slice of logits, valid until the next call: of a decode step
  // all of them, a row for each prompt. Throws Error, before anything is changed, when a sequence would
  // exceed max_ctx, a token id is out of range, or the last token's logits are wanted of no tokens.
  Matrix forward(std::span<const Prompt> prompts, const LogitsFn& on_logits = {},
                 const ProgressFn& progress = {});
  // Whether n more tokens for each can be truncated again as if they had never been appended: they take no
  // page of the cache, change no RoPE frequency, have no position of M-RoPE, and max_ctx allows them.
  bool can_take_back(std::span<Sequence* const> sequences, int64_t n = 1) const;

  // For a caller that finds a loss or a drawn token that is not finite.
  void report_not_finite();
  // From now on every layer shows its results (models/trace.h); empty: no longer. forward then throws
  // UsageError where a position method rotates queries several times.
  void observe(TraceFn trace);

 private:
  void check(const Prompt& prompt) const;
  void check_method(const Sequence& sequence) const;
  double stretch_for(const Sequence& sequence, int64_t length) const;
  void prepare(std::span<Sequence* const> sequences, std::span<const int64_t> lengths);
  void update_frequencies(std::span<Sequence* const> sequences, std::span<const int64_t> lengths,
                          bool restored);
  // Tokens [first, first + n) of a prompt, in one forward pass.
  struct Piece {
    size_t prompt;
    int64_t first, n;
  };
  Matrix run_pieces(std::span<const Prompt> prompts, std::span<const Piece> pieces);
  Matrix slice_logits(std::span<const Prompt> prompts, std::span<const Piece> pieces, const Matrix& hidden,
                      const LogitsFn& on_logits);
  Matrix prefill(std::span<const Prompt> prompts, const LogitsFn& on_logits, const ProgressFn& progress);
  Matrix decode(std::span<const Prompt> prompts, const LogitsFn& on_logits);
  void check_finite_once(const Matrix& logits);
  void check_saturated();

  const Model& model_;
  Backend& backend_;
  SessionOptions options_;
  std::vector<RopeScaling> ropes_;  // the model's, the first as the options have it
  KvPool pool_;
  Decoder decoder_;
  StepBuilder step_;
  std::vector<Sequence*> sequences_;  // of a call of forward, with their lengths after it
  std::vector<int64_t> lengths_;
  std::vector<Piece> pieces_;  // of the next forward pass
  bool observed_ = false;
  bool finite_checked_ = false;
  Saturation saturated_before_;  // by others on this backend
};

// Session::forward of one prompt.
inline Matrix forward(Session& session, const Prompt& prompt, const Session::LogitsFn& on_logits = {},
                      const Session::ProgressFn& progress = {}) {
  return session.forward({&prompt, 1}, on_logits, progress);
}

}  // namespace lariat
