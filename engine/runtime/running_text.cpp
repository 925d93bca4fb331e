#include "engine/runtime/running_text.h"

#include <algorithm>
#include <utility>

namespace lariat {
namespace {

// Cost of one more row of a decode step, as a share of a step of one row. Each row reads the keys and values;
// rows share the weights, except experts. The shares of weights are measured on two cores: 0.01 to 0.05 for
// floats, which wait for memory, 0.1 to 0.3 for quantized weights, 0.35 for weights that fit a
// processor's cache.
double row_cost(const Session& session, int64_t length) {
  constexpr size_t kProcessorCache = size_t{16} << 20;
  const Weights& weights = session.model().weights;
  const KvPool& pool = session.pool();
  const double share = weights.token_bytes < weights.bytes     ? 0.8
                       : weights.token_bytes < kProcessorCache ? 0.35
                       : is_quantized(weights.format.dtype)    ? 0.25
                                                               : 0.05;
  const auto read = static_cast<double>(weights.token_bytes),
             cached = static_cast<double>(pool.k_bytes_per_position() + pool.v_bytes_per_position()) *
                      static_cast<double>(length);
  return (share * read + cached) / (read + cached);
}

}  // namespace

RunningText::RunningText(Request given, Session& session, int64_t number)
    : request(std::move(given)),
      id(number),
      prompt_tokens(std::ssize(request.tokens)),
      wanted(request.options.max_new_tokens),
      logits_from(request.logits_from == Prompt::kLastToken ? prompt_tokens - 1 : request.logits_from),
      sampler(request.options.sampler, session.backend()) {
  // The last new token needs no logits, nor does a token that fills the context.
  const int64_t max_ctx = session.options().max_ctx;
  if (max_ctx > 0) wanted = std::min(wanted, max_ctx - prompt_tokens + 1);
}

double RunningText::prepare(Backend& backend, const Matrix& logits) {
  if (request.options.logprobs) logprobs.emplace(backend, logits, *request.options.logprobs);
  return sampler.prepare(logits, request.tokens);
}

int32_t RunningText::draw(Backend& backend, const Matrix& logits) {
  const double uniform = prepare(backend, logits);
  const Sampling how = request.options.sampler;
  int32_t drawn = 0;
  backend.draw(logits, {&how, 1}, {&uniform, 1});
  backend.read_drawn({&drawn, 1});
  return drawn;
}

void RunningText::accept(Session& session, int32_t drawn) {
  const GenerateOptions& options = request.options;
  if (drawn < 0) session.report_not_finite();
  const int32_t token = options.allow_non_finite ? token_of(drawn) : Sampler::checked(drawn);
  if (std::ranges::count(options.eos_ids, token) > 0) return end(StopReason::kEos);
  result.tokens.push_back(token);
  if (logprobs) result.logprobs.push_back(logprobs->of(token));
  if (request.on_progress) request.on_progress(*request.sequence, result);
  request.tokens.push_back(token);
  if (request.on_token && !request.on_token(token)) return end(StopReason::kStop);
  if (options.interrupted != nullptr && options.interrupted->load()) return end(StopReason::kInterrupted);
  ended = std::ssize(result.tokens) == wanted;
}

void RunningText::take_logits(Backend& backend, int64_t first, const Matrix& logits) {
  if (request.on_logits) request.on_logits(first, logits);
  logits_from = first + logits.rows;
  if (logits_from == prompt_tokens && wanted > 0)
    first_token = draw(backend, logits.row_range(logits.rows - 1, 1));
}

bool RunningText::cached() const {
  const auto drawn = std::ssize(result.tokens);
  return request.sequence != nullptr && request.sequence->length() >= prompt_tokens + std::max(drawn - 1, 0L);
}

void RunningText::suspend() {
  const int64_t before = request.prefix != nullptr ? request.prefix->length() : 0;
  if (request.sequence->length() > before) ++result.restarts;
  draft.reset();
  guesses.clear();
  own.reset();
  request.sequence = nullptr;
  started = false;
}

void RunningText::end(StopReason reason) {
  result.stop_reason = reason;
  ended = true;
}

void RunningText::guess(const Session& session, int64_t most) {
  guesses.clear();
  if (request.options.lookup == 0) return;
  most = std::min({most, request.options.lookup, wanted - std::ssize(result.tokens) - 1});
  const double cost = row_cost(session, std::ssize(request.tokens));
  if (request.options.draft != nullptr) {
    if (!draft) draft.emplace(*request.options.draft);
    guesses = draft->guess(request.tokens, most, cost, session.model());
  } else {
    guesses = lookup.guess(request.tokens, most, cost);
  }
  const auto fits = [&] { return session.can_take_back({&request.sequence, 1}, 1 + std::ssize(guesses)); };
  while (!guesses.empty() && !fits()) guesses.pop_back();
  result.proposed += std::ssize(guesses);
}

}  // namespace lariat
