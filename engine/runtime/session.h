#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/runtime/prefix_cache.h"
#include "engine/runtime/step_builder.h"
#include "models/load/model.h"

namespace lariat {

struct SessionOptions {
  int64_t max_ctx = 0;          // 0: unlimited
  bool fixed_ctx = false;       // max_ctx is the number of learned positions (limit_context)
  int64_t prefill_chunk = 512;  // tokens per forward pass; 0: unlimited
  // Prompts share whole chunks, so that the other tokens are prefilled in the passes of a prompt alone.
  int64_t shared_chunk() const { return std::max(prefill_chunk / kKvPage, int64_t{1}) * kKvPage; }
  DType k_dtype = DType::kF16, v_dtype = DType::kF16;
  int activations = 8;  // bits (Backend::use_activations)
  // Unset: the model's own.
  std::optional<RopeScaling> rope{};
  // Steps per octave of a dynamic scale; 0: exact, new frequencies for every length.
  int rope_steps = 4;
  // Method of sequences created without their own; empty: none.
  PositionMethod positions{};
  int64_t latent_workspace = int64_t{128} << 20;  // bytes (LatentAttention)
  size_t cache_memory = 0;                        // most bytes of all KV caches; 0: the backend's memory
  size_t prefix_memory = 0;                       // most bytes of ended texts' prompts (PrefixCache)
  bool stale_cache = false;                       // keep cached keys when the frequencies change
  Ranks* ranks = nullptr;  // the other processes of a divided model (Model::split); null: one process
  // Called once for non-finite logits: checked on the first logits and by report_not_finite. Loading checks
  // no weights, as they are memory-mapped; find_not_finite locates a damaged tensor.
  std::function<void()> on_not_finite;
  // Called once, when cached keys or values exceed the range of f16: checked after every prefill and in the
  // destructor.
  std::function<void(const Saturation&)> on_saturated;
};

void check_length(const SessionOptions& session, int64_t length);

// Learned positions limit max_ctx. Throws UsageError for a larger max_ctx.
void limit_context(SessionOptions& session, const ModelSpec& spec);
// Throws UsageError for another RoPE than a model without RoPE has.
void check_rope(const RopeScaling& rope, const ModelSpec& spec);

// The scaling at the length's step.
RopeFrequencies frequencies_for(const SessionOptions& session, const RopeScaling& rope, int64_t length);

// New tokens of one sequence. logits_from: first token with requested logits.
struct Prompt {
  static constexpr int64_t kLastToken = -1;
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;
  int64_t logits_from = kLastToken;
  bool drawn = false;   // tokens are drawn_token()s, possibly unknown to the host
  bool decode = false;  // each token gets logits, bitwise identical to a separate decode step

  int64_t first_wanted() const { return logits_from == kLastToken ? std::ssize(tokens) - 1 : logits_from; }
};

void check_prompt(std::span<const int32_t> tokens);

// Unset: the session's.
struct SequenceOptions {
  std::optional<RopeScaling> rope{};  // same dimensions and pairs as the session's
  std::optional<PositionMethod> method{};
};

// Runs a model over any number of sequences. Not thread-safe.
class Session {
 public:
  Session(const Model& model, Backend& backend, const SessionOptions& options);
  Session(const Session&) = delete;  // sequences refer to the pool
  Session& operator=(const Session&) = delete;
  ~Session();

  const Model& model() const { return model_; }
  Backend& backend() const { return backend_; }
  const SessionOptions& options() const { return options_; }
  const RopeScaling& rope() const { return ropes_.front(); }  // of the options, else of the model
  const KvPool& pool() const { return pool_; }
  // Sequences of any scaling and method share a step. Throws UsageError if the model supports no method, or
  // if the method needs second keys and the session has none.
  Sequence new_sequence(const SequenceOptions& own = {});
  // Copies the first `length` tokens, scaling, method and expected length. Pages are shared and copied on
  // write.
  Sequence fork(const Sequence& other, int64_t length);
  // Re-rotates the cached keys to another scaling, in place but for shared pages. Throws CacheFull.
  void set_rope(Sequence& sequence, const RopeScaling& rope);
  // Fills an empty sequence with a saved cache, whose pages are of pool(). Re-rotates the keys to the
  // sequence's frequencies: now if the scaling does not depend on the length, else with the next tokens.
  // mrope, stretch: see SequencePositions. Throws Error when out of memory.
  void restore(Sequence& sequence, KvCache::Contents contents, std::span<const int32_t> mrope,
               double stretch);
  // Fills an empty sequence with pages of prefixes(): up to `most` tokens; none with a position method.
  void share_prefix(Sequence& sequence, std::span<const int32_t> prompt, int64_t most);
  PrefixCache& prefixes() { return prefixes_; }
  // KvPool::free_pages(), and kept pages, which give way.
  int64_t free_pages() const { return pool_.free_pages() + prefixes_.idle_pages(); }
  // Allocates pages for the first `length` tokens. Throws CacheFull.
  void reserve(Sequence& sequence, int64_t length) { sequence.cache_.reserve(length); }
  // Appends n tokens computed elsewhere: `write` fills values, and keys rotated with the cache's frequencies.
  // Throws Error as forward does.
  void extend(Sequence& sequence, int64_t n, const std::function<void(KvCache& cache)>& write);

  // Receives slices of requested logits: rows [first, first + logits.rows) of a prompt, f32 [rows, vocab] in
  // backend memory, valid during the call.
  using LogitsFn = std::function<void(size_t prompt, int64_t first, const Matrix& logits)>;
  using ProgressFn = std::function<void(int64_t tokens_done)>;  // sum over all prompts

  // Appends each prompt to its sequence; the only way into the model. Prompts share passes of up to
  // prefill_chunk tokens; a decode step (prompts of one token, or Prompt::decode) is one pass. RoPE
  // frequencies follow each sequence's length after its prompt, so prefill_chunk only affects rounding: in
  // linear and attention (kernels/backend.h), and with latent attention one rounding to the cache's dtype.
  // Returns the last slice of logits, in a decode step all rows, valid until the next call. Throws Error
  // before any change if a sequence would exceed max_ctx, a token id is out of range, or an empty prompt
  // requests logits.
  Matrix forward(std::span<const Prompt> prompts, const LogitsFn& on_logits = {},
                 const ProgressFn& progress = {});
  // Whether truncating can undo appending n tokens to each sequence: they stay within max_ctx and need no new
  // page, no new RoPE frequencies and no M-RoPE position.
  bool can_take_back(std::span<Sequence* const> sequences, int64_t n = 1) const;

  // Callers report a non-finite loss or drawn token.
  void report_not_finite();
  // Passes every layer's results to `trace` (models/run/trace.h); empty: stops. forward then throws
  // UsageError for a position method with key ranges.
  void observe(TraceFn trace);
  // Throws UsageError if the model is divided among processes.
  void refuse_ranks(const char* what) const;

 private:
  void check(const Prompt& prompt) const;
  void check_method(const Sequence& sequence) const;
  double stretch_for(const Sequence& sequence, int64_t length) const;
  void prepare(std::span<Sequence* const> sequences, std::span<const int64_t> lengths);
  void update_frequencies(std::span<Sequence* const> sequences, std::span<const int64_t> lengths,
                          bool restored);
  struct Piece {
    size_t prompt;
    int64_t first, n;
  };
  Matrix run_pieces(std::span<const Prompt> prompts, std::span<const Piece> pieces);
  Matrix logits_of(const Matrix& hidden, int64_t first, int64_t count);
  Matrix slice_logits(std::span<const Prompt> prompts, std::span<const Piece> pieces, const Matrix& hidden,
                      const LogitsFn& on_logits);
  Matrix prefill(std::span<const Prompt> prompts, const LogitsFn& on_logits, const ProgressFn& progress);
  Matrix decode(std::span<const Prompt> prompts, const LogitsFn& on_logits);
  void check_finite_once(const Matrix& logits);
  Saturation saturated() const;
  void check_saturated();

  const Model& model_;
  Backend& backend_;
  SessionOptions options_;
  std::vector<RopeScaling> ropes_;  // the first may be overridden by the options
  KvPool pool_;
  PrefixCache prefixes_;
  Decoder decoder_;
  StepBuilder step_;
  std::vector<Sequence*> sequences_;  // of forward, with lengths after the call
  std::vector<int64_t> lengths_;
  std::vector<Piece> pieces_;  // of the next pass
  bool observed_ = false;
  bool finite_checked_ = false;
  Saturation saturated_before_;  // before this session
};

inline Matrix forward(Session& session, const Prompt& prompt, const Session::LogitsFn& on_logits = {},
                      const Session::ProgressFn& progress = {}) {
  return session.forward({&prompt, 1}, on_logits, progress);
}

}  // namespace lariat
