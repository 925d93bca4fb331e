#include "engine/eval/measure/measure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "engine/contexts/memory_check.h"
#include "engine/eval/measure/run_log.h"
#include "engine/eval/measure/sweep.h"
#include "engine/interrupt.h"
#include "python/model.h"

namespace lariat::python {
namespace {

nb::list to_records(const Plan& plan, const std::vector<Record>& records) {
  nb::list list;
  for (const Record& record : records) list.append(to_python(labelled(plan, record)));
  return list;
}

nb::list perplexity(const PyModel& of, const std::filesystem::path& file, const nb::kwargs& given) {
  const std::shared_ptr<OpenModel> model = of.opened();
  const Engine& engine = model->engine;
  Keywords keywords(given);
  const SessionOptions settings = session_options(*model, keywords);
  PerplexityOptions options;
  options.step = 0;
  options.bos = text_bos(model->tokenizer());
  std::string name = "sliding";
  std::vector<int64_t> buckets = {32};
  int64_t max_tokens = 0;
  keywords.take("method", name).take("stride", options.stride).take("step", options.step);
  keywords.take("max_tokens", max_tokens).take_lengths("ctx", options.ctx).take_lengths("buckets", buckets);
  keywords.finish();
  options.method = parse_perplexity_method(name);
  check_range("stride", static_cast<double>(options.stride), 1, 0x1p40);
  check_range("step", static_cast<double>(options.step), 0, 0x1p40);
  check_range("max_tokens", static_cast<double>(max_tokens), 0, 0x1p60);
  if (buckets.empty() || buckets[0] < 1 || !std::ranges::is_sorted(buckets, std::less_equal()))
    throw UsageError("`buckets`: give a number from 1, or rising ends such as [8192, 12288]");
  options.buckets = static_cast<int>(std::min<int64_t>(buckets[0], 1 << 20));
  if (buckets.size() > 1) options.ends = buckets;
  const bool grows = options.method == PerplexityMethod::kGrowing;
  if (options.step == 0) options.step = default_step(settings, options.method);
  Plan plan;
  std::vector<Record> records;
  compute([&](const Flag& interrupted) {
    const TokenSource text = read_tokens(file, model->tokenizer(), max_tokens);
    options.interrupted = &interrupted;
    if (options.ctx.empty()) options.ctx = {default_ctx(options, settings.rope->original_ctx, text.size())};
    plan = plan_of(engine, settings, options.ctx);
    plan.text = TextFile{.name = file.filename()};
    plan.perplexity = perplexity_plan(options, max_tokens);
    Runner runner(model, settings);
    const Measurement what{.kind = grows ? Kind::kGrowing : Kind::kPerplexity,
                           .column = column_of(settings),
                           .lengths = options.ctx,
                           .text = &text,
                           .losses = options};
    measure(runner.session, what, [&](const Measured& measured) { records.push_back(measured.record); });
  });
  model->warnings->issue();
  return to_records(plan, records);
}

// Also takes the haystack's name.
PasskeyOptions passkey_options(Keywords& keywords, std::string& haystack) {
  PasskeyOptions options;
  std::string name = "passkey";
  keywords.take("depths", options.depths).take("trials", options.trials).take("seed", options.seed);
  keywords.take("task", name).take("needles", options.needles.count).take("haystack", haystack);
  const auto task = needle_task(name);
  if (!task)
    throw UsageError("`task`: found \"" + name +
                     "\"; use passkey, multikey, multivalue, multiquery or tracking");
  options.needles.task = *task;
  if (options.depths.empty()) throw UsageError("`depths`: no depth; give numbers from 0 to 1");
  for (const double depth : options.depths) check_range("depths", depth, 0, 1);
  check_range("trials", static_cast<double>(options.trials), 1, 1 << 20);
  check_range("needles", static_cast<double>(options.needles.count), 1, kMostNeedles);
  sort_unique(options.depths);
  return options;
}

nb::list passkey(const PyModel& of, const nb::kwargs& given) {
  const std::shared_ptr<OpenModel> model = of.opened();
  const Engine& engine = model->engine;
  Keywords keywords(given);
  const SessionOptions settings = session_options(*model, keywords);
  std::string haystack = "noise";
  PasskeyOptions options = passkey_options(keywords, haystack);
  std::vector<int64_t> lengths;
  bool chat = false;
  keywords.take_lengths("lengths", lengths).take("chat", chat).finish();
  if (chat && !engine.chat) throw Error(model->path.string() + ": no chat template; use chat=False");
  if (lengths.empty()) lengths = default_passkey_lengths(settings.rope->original_ctx);
  sort_unique(lengths);
  Plan plan;
  std::vector<Record> records;
  compute([&](const Flag& interrupted) {
    options.hay = open_hay(haystack);
    const TextCodec codec = prompt_codec(model->tokenizer(), chat ? &*engine.chat : nullptr);
    options.eos_ids = engine.eos_ids();
    options.interrupted = &interrupted;
    options.max_new_tokens = answer_tokens(codec, options.needles);
    plan = plan_of(engine, settings, lengths);
    plan.passkey = passkey_plan(options);
    plan.passkey.chat = chat;
    Runner runner(model, settings);
    check_memory(runner.session, lengths.back() + options.max_new_tokens, 2,
                 fmt::format("`lengths` {}", lengths.back()));
    const Measurement what{.kind = Kind::kPasskey,
                           .column = column_of(settings),
                           .lengths = lengths,
                           .codec = &codec,
                           .passkeys = options};
    measure(runner.session, what, [&](const Measured& measured) {
      records.push_back(measured.record);
      std::get<Retrieval>(records.back().value).task = options.needles.task;
    });
  });
  model->warnings->issue();
  return to_records(plan, records);
}

// A file that is removed at the end, because a sweep keeps its results in one.
struct TemporaryLog {
  std::string name = (std::filesystem::temp_directory_path() / "lariat-sweep-XXXXXX").string();
  TemporaryLog() {
    const int fd = mkstemp(name.data());
    if (fd < 0) throw Error(name + ": cannot be created; set TMPDIR to a writable folder");
    ::close(fd);
  }
  TemporaryLog(const TemporaryLog&) = delete;
  TemporaryLog& operator=(const TemporaryLog&) = delete;
  ~TemporaryLog() {
    std::error_code ec;
    std::filesystem::remove(name, ec);
    std::filesystem::remove(part_file(name), ec);
  }
};

nb::list sweep(const PyModel& of, const nb::kwargs& given) {
  const std::shared_ptr<OpenModel> model = of.opened();
  const Engine& engine = model->engine;
  if (*engine.session_options.rope != engine.model.spec.rope())
    throw UsageError("`scalings`: sweep compares several; open the model without `rope_scaling`");
  Keywords keywords(given);
  SweepOptions options;
  std::string method = "sliding", haystack = "noise";
  options.passkeys = passkey_options(keywords, haystack);
  keywords.take("file", options.text)
      .take("scalings", options.scalings)
      .take_lengths("lengths", options.lengths);
  keywords.take("quick", options.quick)
      .take("growing", options.growing)
      .take("perplexity", options.perplexity);
  keywords.take("passkey", options.passkey).take("speed", options.speed).take("stale", options.stale_too);
  keywords.take("method", method)
      .take("stride", options.stride)
      .take("max_tokens", options.max_tokens)
      .finish();
  options.method = parse_perplexity_method(method);
  if (options.method != PerplexityMethod::kSliding && options.method != PerplexityMethod::kChunks)
    throw UsageError("`method`: found \"" + method + "\"; use sliding or chunks");
  check_range("max_tokens", static_cast<double>(options.max_tokens.value_or(0)), 0, 0x1p60);
  check_range("stride", static_cast<double>(options.stride), 0, 0x1p40);
  std::error_code ec;
  if (options.text.empty() && std::filesystem::exists(model->path / "heldout.txt", ec))
    options.text = model->path / "heldout.txt";
  Measurements found;
  compute([&](const Flag& interrupted) {
    if (options.passkey) options.passkeys.hay = open_hay(haystack);
    options.interrupted = &interrupted;
    const Schedule schedule(engine, options);
    schedule.check();
    const TemporaryLog file;
    MeasurementLog log(file.name, schedule.plan(), false);
    run_sweep(schedule, {}, log, [](const SweepProgress&) {});
    found = log.contents();
  });
  model->warnings->issue();
  return to_records(found.plan, found.records);
}

}  // namespace

void add_measure(nb::module_& module) {
  module.def("perplexity", &perplexity, nb::arg("model"), nb::arg("file"), nb::arg("options"));
  module.def("passkey", &passkey, nb::arg("model"), nb::arg("options"));
  module.def("sweep", &sweep, nb::arg("model"), nb::arg("options"));
}

}  // namespace lariat::python
