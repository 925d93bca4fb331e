#include "python/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/contexts/join_contexts.h"
#include "engine/eval/measure/score.h"
#include "engine/facts.h"
#include "engine/interrupt.h"
#include "kernels/search_quant.h"
#include "models/positions/parse_position_method.h"
#include "models/text/unicode.h"
#include "python/session.h"

namespace lariat::python {
namespace {

constexpr size_t kBatch = 8,
                 kScored = 64;  // texts per pass of `lariat generate --prompts` and `lariat score`

// A list or tuple; a text is a likely mistake.
std::vector<nb::object> to_list(nb::handle object, const char* name) {
  if (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr()))
    throw UsageError(fmt::format("`{}`: not a list; use a list of texts or of id arrays", name));
  std::vector<nb::object> items;
  for (const nb::handle item : object) items.push_back(nb::borrow(item));
  return items;
}

ScoredText to_scored(const OpenModel& model, const nb::object& prompt, const nb::object& continuation,
                     bool bos) {
  if (nb::isinstance<nb::str>(prompt) && nb::isinstance<nb::str>(continuation)) {
    return scored_text({}, model.tokenizer(), nb::cast<std::string>(prompt),
                       nb::cast<std::string>(continuation), bos);
  }
  ScoredText text;
  text.tokens = to_ids(prompt);
  text.from = std::ssize(text.tokens);
  const std::vector<int32_t> more = to_ids(continuation);
  if (text.from == 0 || more.empty())
    throw UsageError("`prompts`, `continuations`: no ids; give at least one of each");
  text.tokens.insert(text.tokens.end(), more.begin(), more.end());
  const int64_t vocabulary = model.engine.model.spec.vocab_size;
  for (const int32_t id : text.tokens) {  // the last one is not computed, only looked up
    if (id >= vocabulary)
      throw UsageError(fmt::format("token id {} is outside the model's vocabulary of {}", id, vocabulary));
  }
  text.bytes = model.engine.tokenizer ? std::max<size_t>(model.tokenizer().decode(more, false).size(), 1) : 1;
  return text;
}

nb::dict to_record(const ScoredText& text) {
  std::vector<double> logprobs;
  double sum = 0;
  for (const TokenScore& score : text.scores) {
    logprobs.push_back(score.logprob);
    sum += score.logprob;
  }
  nb::dict record;
  record["sum"] = sum;
  record["per_byte"] = sum / static_cast<double>(text.bytes);
  record["greedy"] = std::ranges::all_of(text.scores, &TokenScore::likeliest);
  record["tokens"] = to_array(
      std::vector<int32_t>(text.tokens.begin() + static_cast<std::ptrdiff_t>(text.from), text.tokens.end()));
  record["logprobs"] = to_array(std::move(logprobs));
  return record;
}

}  // namespace

void Warnings::issue() {
  std::vector<std::string> lines;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(lines_);
  }
  for (const std::string& line : lines) {
    if (PyErr_WarnEx(PyExc_UserWarning, printable(line).c_str(), 1) != 0) throw nb::python_error();
  }
}

const Tokenizer& OpenModel::tokenizer() const {
  if (!engine.tokenizer)
    throw UsageError(path.string() + ": opened without its tokenizer; omit `text` False");
  return *engine.tokenizer;
}

SessionOptions session_options(const OpenModel& model, Keywords& keywords, int activations) {
  nb::object scaling = nb::none();
  std::optional<std::string> method, cache;
  keywords.take("rope_scaling", scaling).take("position_method", method).take("rope_cache", cache);
  const Engine& engine = model.engine;
  const ModelSpec& spec = engine.model.spec;
  const RopeScaling rope = to_rope(scaling, *engine.session_options.rope, spec.rope());
  check_rope(rope, spec);
  SessionOptions options = engine.session_for(rope);
  if (method) options.positions = parse_position_method(*method, rope.original_ctx, options.max_ctx);
  check_position_method(options.positions, spec);
  if (cache && *cache != "stale" && *cache != "consistent")
    throw UsageError("`rope_cache`: found \"" + *cache + "\"; use consistent or stale");
  if (cache) options.stale_cache = *cache == "stale";
  if (is_quantized(engine.model.weights.format.dtype))
    options.activations = model.activations.value_or(activations);
  return options;
}

AnswerOptions answer_options(const OpenModel& model, Keywords& keywords) {
  AnswerOptions options;
  SamplingOptions sampling;
  bool ignore_eos = false;
  keywords.take("max_tokens", options.generate.max_new_tokens).take("logprobs", options.generate.logprobs);
  keywords.take("stop", options.stop)
      .take("ignore_eos", ignore_eos)
      .take("model_defaults", sampling.as_model);
  keywords.take("temperature", sampling.temperature)
      .take("top_k", sampling.top_k)
      .take("top_p", sampling.top_p);
  keywords.take("min_p", sampling.min_p).take("repetition_penalty", sampling.repetition_penalty);
  keywords.take("seed", sampling.seed);
  check_range("max_tokens", static_cast<double>(options.generate.max_new_tokens), 0, 0x1p40);
  check_range("temperature", sampling.temperature.value_or(0), 0, 1000);
  check_range("top_k", sampling.top_k.value_or(0), 0, 1 << 30);
  check_range("top_p", sampling.top_p.value_or(1), 0, 1);
  check_range("min_p", sampling.min_p.value_or(0), 0, 1);
  check_range("repetition_penalty", sampling.repetition_penalty.value_or(1), 0.01F, 100);
  check_range("logprobs", static_cast<double>(options.generate.logprobs.value_or(0)), 0, 1 << 20);
  if (std::ranges::count(options.stop, "") > 0)
    throw UsageError("`stop`: an empty text ends every answer; give a text");
  settle_sampling(options, sampling, model.engine.model.spec.generation);
  if (!ignore_eos) options.generate.eos_ids = model.engine.eos_ids();
  return options;
}

nb::dict to_python(const Answer& answer) {
  nb::dict record;
  record["text"] = to_python(nlohmann::ordered_json(answer.text));
  record["tokens"] = to_array(answer.generation.tokens);
  record["stop_reason"] = name_of(answer.generation.stop_reason);
  record["prompt_tokens"] = answer.reused + answer.read;
  std::vector<double> logprobs;
  for (const TokenScore& score : answer.generation.logprobs) logprobs.push_back(score.logprob);
  if (!logprobs.empty()) record["logprobs"] = to_array(std::move(logprobs));
  return record;
}

std::vector<int32_t> to_prompt(const OpenModel& model, std::span<const int32_t> context, nb::handle prompt) {
  if (nb::isinstance<nb::str>(prompt))
    return prompt_tokens(context, model.tokenizer(), nb::cast<std::string>(prompt));
  std::vector<int32_t> ids(context.begin(), context.end());
  const std::vector<int32_t> more = to_ids(prompt);
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

std::shared_ptr<OpenModel> PyModel::opened() const {
  if (!model_) throw UsageError("the model is closed; open it again");
  return model_;
}

void PyModel::close() { destroy_later(std::move(model_)); }

Array<int32_t, 1> PyModel::tokenize(const std::string& text, std::optional<bool> special) const {
  const Tokenizer& tokenizer = opened()->tokenizer();
  return to_array(tokenizer.encode(text, special.value_or(tokenizer.adds_bos())));
}

std::string PyModel::detokenize(nb::handle ids, bool special) const {
  const Tokenizer& tokenizer = opened()->tokenizer();
  const std::vector<int32_t> tokens = to_ids(ids);
  for (const int32_t id : tokens) {
    if (id >= tokenizer.vocab_size())
      throw UsageError(
          fmt::format("token id {0} is outside the tokenizer's vocabulary of {1}; use ids below {1}", id,
                      tokenizer.vocab_size()));
  }
  return tokenizer.decode(tokens, !special);
}

nb::object PyModel::chat(nb::handle messages, bool answer, bool tokenize) const {
  const Engine& engine = opened()->engine;
  if (!engine.chat)
    throw Error(opened()->path.string() + ": no chat template; use an instruct model, or `tokenize`");
  const auto parsed = parse_messages(to_json_text(messages, "messages"), "`messages`");
  const std::string text = engine.chat->render(parsed, answer);
  if (!tokenize) return to_python(nlohmann::ordered_json(text));
  return nb::cast(to_array(engine.tokenizer->encode(text, false)));
}

nb::object PyModel::facts() const {
  const std::filesystem::path path = opened()->path;
  Facts facts;
  compute([&](const Flag&) { facts = facts_of(path); });
  return to_python(facts.json);
}

nb::list PyModel::generate(nb::handle prompts, const nb::kwargs& given) {
  const std::shared_ptr<OpenModel> model = opened();
  Keywords keywords(given);
  std::vector<std::vector<int32_t>> texts;
  for (const nb::object& prompt : to_list(prompts, "prompts")) texts.push_back(to_prompt(*model, {}, prompt));
  AnswerOptions options = answer_options(*model, keywords);
  const SessionOptions session = session_options(*model, keywords, 8);
  bool continues = true;
  keywords.take("continues", continues).finish();
  std::vector<Answer> answers;
  compute([&](const Flag& interrupted) {
    options.generate.interrupted = &interrupted;
    Runner runner(model, session);
    for (const auto& text : texts) check_prompt(text);
    const SavedContext empty{runner.session.new_sequence(), {}};
    for (size_t first = 0; first < texts.size(); first += kBatch) {
      const auto batch = std::span(texts).subspan(first, std::min(kBatch, texts.size() - first));
      std::ranges::move(write_texts(runner.session, model->tokenizer(), empty, batch, options, continues),
                        std::back_inserter(answers));
    }
  });
  model->warnings->issue();
  nb::list records;
  for (const Answer& answer : answers) records.append(to_python(answer));
  return records;
}

nb::list PyModel::score(nb::handle prompts, nb::handle continuations, const nb::kwargs& given) {
  const std::shared_ptr<OpenModel> model = opened();
  Keywords keywords(given);
  bool special = !model->engine.tokenizer || model->engine.tokenizer->adds_bos();
  keywords.take("special", special);
  const SessionOptions session = session_options(*model, keywords);
  keywords.finish();
  const std::vector<nb::object> first = to_list(prompts, "prompts"),
                                second = to_list(continuations, "continuations");
  if (first.size() != second.size())
    throw UsageError(
        fmt::format("`continuations`: {} for {} prompts; give one for each", second.size(), first.size()));
  std::vector<ScoredText> texts;
  for (size_t i = 0; i < first.size(); ++i) {
    texts.push_back(to_scored(*model, first[i], second[i], special));
    check_length(session, std::ssize(texts.back().tokens) - 1);
  }
  compute([&](const Flag& interrupted) {
    Runner runner(model, session);
    const SavedContext empty{runner.session.new_sequence(), {}};
    Scorer scorer(runner.session, empty, 0, &interrupted);
    for (size_t at = 0; at < texts.size(); at += kScored)
      scorer.score(std::span(texts).subspan(at, std::min(kScored, texts.size() - at)));
  });
  model->warnings->issue();
  nb::list records;
  for (const ScoredText& text : texts) records.append(to_record(text));
  return records;
}

std::unique_ptr<PySession> PyModel::session(const nb::kwargs& given) {
  return std::make_unique<PySession>(opened(), given, [](Session& session, const Flag&) {
    return SavedContext{session.new_sequence(), {}};
  });
}

std::unique_ptr<PySession> PyModel::load(const std::filesystem::path& file, const nb::kwargs& given) {
  return std::make_unique<PySession>(
      opened(), given, [&](Session& session, const Flag&) { return load_context(session, file); });
}

std::unique_ptr<PySession> PyModel::join(const std::vector<std::filesystem::path>& files,
                                         const std::string& how, const nb::kwargs& given) {
  const JoinOptions options = parse_join(how);
  const std::vector<int32_t>& bos = opened()->tokenizer().prefix();
  return std::make_unique<PySession>(opened(), given, [&](Session& session, const Flag& interrupted) {
    return join_contexts(session, files, options, bos, [&](int64_t) { stop_if(&interrupted); });
  });
}

std::unique_ptr<PyModel> open_model(const std::filesystem::path& path, const nb::kwargs& given) {
  auto model = std::make_shared<OpenModel>();
  model->path = path;
  OpenOptions options;
  std::string dtype = "auto", quantize = "none", kv_dtype = "auto";
  bool text = true;
  Keywords keywords(given);
  keywords.take("dtype", dtype).take("quantize", quantize).take("kv_dtype", kv_dtype).take("text", text);
  keywords.take("activations", model->activations).take("threads", options.threads);
  if (const int bits = model->activations.value_or(8); bits != 8 && bits != 16)
    throw UsageError(fmt::format("`activations`: found {}; use 8 or 16", bits));
  check_range("threads", options.threads, 0, 1024);
  options.reads = text ? Reads::kServed : Reads::kTokens;
  options.device = "cpu";
  if (dtype != "auto" && dtype != "f32" && dtype != "bf16" && dtype != "f16")
    throw UsageError("`dtype`: found \"" + dtype + "\"; use auto, f32, bf16 or f16");
  if (dtype != "auto") options.dtype = parse_dtype(dtype);
  if (quantize == "q8") options.quantize = WeightFormat(DType::kQ8);
  if (quantize == "q4") options.quantize = searched_format(DType::kQ4, kSearchBlock);
  if (!options.quantize && quantize != "none")
    throw UsageError("`quantize`: found \"" + quantize + "\"; use none, q8 or q4");
  options.kv_dtype = parse_kv_dtypes(kv_dtype);
  options.warn = [warnings = model->warnings](const std::string& line) { warnings->add(line); };
  compute([&](const Flag& interrupted) {
    options.progress = [&](size_t, size_t) { stop_if(&interrupted); };
    model->engine = Engine::open(path, options);
    model->engine.options.progress = nullptr;
  });
  model->engine.session_options = session_options(*model, keywords, 8);
  keywords.finish();
  for (const std::string& line : model->engine.warnings) model->warnings->add(line);
  model->warnings->issue();
  return std::make_unique<PyModel>(std::move(model));
}

}  // namespace lariat::python
