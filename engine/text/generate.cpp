#include "engine/text/generate.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/interrupt.h"
#include "engine/text/stop_filter.h"

namespace lariat {

void settle_sampling(AnswerOptions& options, const SamplingOptions& given, const GenerationDefaults& model) {
  const GenerationDefaults otherwise = given.as_model ? model : GenerationDefaults();
  // Only settings in use are validated.
  const auto take = [](auto& into, const auto& option, const auto& setting, bool used) {
    into = option ? *option : used ? setting.get() : setting.value;
  };
  SamplerOptions& sampler = options.generate.sampler;
  const bool writes = options.generate.max_new_tokens > 0;
  take(sampler.temperature, given.temperature, otherwise.temperature, writes);
  const bool samples = writes && sampler.temperature > 0.0F;
  take(sampler.top_k, given.top_k, otherwise.top_k, samples);
  take(sampler.top_p, given.top_p, otherwise.top_p, samples);
  take(sampler.min_p, given.min_p, otherwise.min_p, samples);
  take(sampler.repetition_penalty, given.repetition_penalty, model.repetition_penalty, writes);
  sampler.seed = given.seed.value_or(0);
  if (options.stop.empty()) options.stop = writes ? model.stop.get() : model.stop.value;
}

std::vector<int32_t> encode_after(std::span<const int32_t> context, const Tokenizer& tokenizer,
                                  std::string_view text, bool bos) {
  const std::vector<int32_t>& prefix = tokenizer.prefix();
  std::vector<int32_t> tokens = tokenizer.encode(text, false);
  const auto first =
      std::ranges::find_if(tokens, [&](int32_t token) { return std::ranges::count(prefix, token) == 0; });
  const int64_t kept = context.empty() && !bos ? common_prefix(tokens, prefix) : 0;
  tokens.erase(tokens.begin() + kept, first);
  if (context.empty() && bos) tokens.insert(tokens.begin(), prefix.begin(), prefix.end());
  return tokens;
}

std::vector<int32_t> prompt_tokens(std::span<const int32_t> context, const Tokenizer& tokenizer,
                                   std::string_view text, std::optional<int64_t> most) {
  std::vector<int32_t> tokens = encode_after(context, tokenizer, text, tokenizer.adds_bos());
  if (most) tokens.resize(std::min(tokens.size(), static_cast<size_t>(*most)));
  tokens.insert(tokens.begin(), context.begin(), context.end());
  return tokens;
}

int64_t write_text(Scheduler& scheduler, const Tokenizer& tokenizer, Request request,
                   const AnswerOptions& options, bool continues, Answer& answer, const TextFn& on_text) {
  StreamDecoder decoder(tokenizer);
  for (size_t at = 0; continues && at < request.tokens.size(); ++at) decoder.push(request.tokens[at]);
  const auto filter = std::make_shared<StopFilter>(tokenizer, std::move(decoder), options.stop);
  const auto show = [&answer, on_text](const std::string& piece) {
    answer.text += piece;
    return piece.empty() || !on_text || on_text(piece);
  };
  answer.reused = request.held();
  answer.read = std::ssize(request.tokens) - answer.reused;
  request.options = options.generate;
  request.on_progress = [&answer, then = std::move(request.on_progress)](const Sequence& sequence,
                                                                         const Generation& so_far) {
    answer.generation.tokens.push_back(so_far.tokens.back());
    if (!so_far.logprobs.empty()) answer.generation.logprobs.push_back(so_far.logprobs.back());
    if (then) then(sequence, so_far);
  };
  request.on_token = [filter, show](int32_t id) { return show(filter->push(id)) && !filter->stopped(); };
  request.on_end = [&answer, filter, show, then = std::move(request.on_end)](Generation result) {
    answer.generation = std::move(result);
    if (answer.generation.error == nullptr) show(filter->flush());
    if (then) then(answer.generation);
  };
  return scheduler.add(std::move(request));
}

void continue_context(Session& session, const Tokenizer& tokenizer, SavedContext& context,
                      std::vector<int32_t> wanted, const AnswerOptions& options, bool continues,
                      Answer& answer, const TextFn& on_text, const TextProgressFn& progress) {
  Sequence& sequence = context.sequence;
  std::vector<int32_t>& tokens = context.tokens;
  const int64_t common = common_prefix(tokens, wanted);
  sequence.truncate(common);
  // The last token is always prefilled, for its logits.
  sequence.rewind(std::clamp<int64_t>(std::ssize(wanted) - 1, 0, common));
  tokens = std::move(wanted);
  const auto settle = [&] {
    const std::vector<int32_t>& written = answer.generation.tokens;
    // After an interrupted prefill, keeps the tokens that are cached or were cached before.
    if (written.empty()) tokens.resize(static_cast<size_t>(std::max(sequence.length(), common)));
    tokens.insert(tokens.end(), written.begin(), written.end());
  };
  try {
    Scheduler scheduler(session);
    write_text(scheduler, tokenizer, {.tokens = tokens, .sequence = &sequence}, options, continues, answer,
               on_text);
    scheduler.run([&](int64_t done) {
      if (progress) progress(done, answer.read);
    });
  } catch (...) {
    settle();
    throw;
  }
  settle();
}

void prefill_rest(Session& session, SavedContext& context) {
  const auto rest = std::span(context.tokens).subspan(static_cast<size_t>(context.sequence.length()));
  const int64_t most = session.options().max_ctx;
  if (!rest.empty() && (most == 0 || std::ssize(context.tokens) <= most))
    forward(session, {&context.sequence, rest});
}

std::vector<Answer> write_texts(Session& session, const Tokenizer& tokenizer, const SavedContext& context,
                                std::span<const std::vector<int32_t>> texts, const AnswerOptions& options,
                                bool continues) {
  Scheduler scheduler(session);
  std::vector<Answer> answers(texts.size());
  for (size_t i = 0; i < texts.size(); ++i)
    write_text(scheduler, tokenizer, {.tokens = texts[i], .prefix = &context.sequence}, options, continues,
               answers[i]);
  scheduler.run();
  stop_if(options.generate.interrupted);  // a text that was cut short is no answer
  return answers;
}

}  // namespace lariat
