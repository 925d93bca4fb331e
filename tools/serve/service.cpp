#include "tools/serve/service.h"

#include <algorithm>
#include <utility>

namespace lariat {

Service::Service(const Engine& engine, const ServiceOptions& options)
    : engine_(engine), options_(options), session_(engine.session()) {
  if (!options.cache_dir.empty())
    prompts_.emplace(session_, options.cache_dir, options.cache_dir_bytes, options.warn);
  note(false);
  thread_ = std::thread([this] { run(); });
}

Service::~Service() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = cancel_all_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool Service::add(std::shared_ptr<ServedTexts> texts) {
  {
    const std::lock_guard lock(mutex_);
    const auto n = std::ssize(texts->texts);
    if (stopping_ || cancel_all_) return false;
    if (state_.texts > 0 && state_.texts + n > options_.at_once + options_.waiting) return false;
    state_.texts += n;
    ++state_.requests;
    added_.push_back(std::move(texts));
  }
  changed_.notify_one();
  return true;
}

void Service::cancel(const std::shared_ptr<ServedTexts>& texts) {
  texts->cancelled = true;
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  changed_.notify_one();
}

void Service::cancel_all() {
  const std::lock_guard lock(mutex_);
  cancel_all_ = true;
  changed_.notify_one();
}

ServiceState Service::state() const {
  const std::lock_guard lock(mutex_);
  ServiceState state = state_;
  if (state.texts == 0) state.tokens_per_second = 0;
  return state;
}

// Returns false if nothing is left to do.
bool Service::wait_for_work(bool busy) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy || stopping_ || !added_.empty(); });
  return busy || !stopping_ || !added_.empty();
}

void Service::run() {
  Scheduler scheduler(session_, options_.at_once);
  const auto has_ended = [](const Running& one) { return one.ended == one.texts->texts.size(); };
  for (bool busy = false; wait_for_work(busy);) {
    std::vector<std::shared_ptr<ServedTexts>> added;
    bool all = false, some = false;
    {
      const std::lock_guard lock(mutex_);
      added.swap(added_);
      all = cancel_all_;
      some = std::exchange(cancelled_, false);
    }
    for (const auto& texts : added) start(scheduler, texts);
    for (const Running& running : running_)
      if (all || (some && running.texts->cancelled))
        for (const int64_t id : running.ids) scheduler.cancel(id);
    busy = scheduler.step();
    std::erase_if(running_, has_ended);
    note(busy);
  }
}

void Service::start(Scheduler& scheduler, const std::shared_ptr<ServedTexts>& texts) {
  Running& running = *running_.insert(running_.end(), {texts});
  for (ServedText& text : texts->texts) start(scheduler, running, text);
}

void Service::start(Scheduler& scheduler, Running& running, ServedText& text) {
  const std::vector<int32_t> prompt = text.request.tokens;
  const int64_t number = ++last_number_;
  const SequenceOptions own = text.request.sequence_options;
  const auto ended = [this, &running, &text, number, own, prompt](const Generation& result) {
    if (prompts_ && result.error == nullptr) prompts_->keep(own, prompt);
    end(running, text, number);
  };
  text.request.on_end = ended;
  text.request.on_progress = [this, &text, number](const Sequence& sequence, const Generation& /*so_far*/) {
    const double step = rope_step_length(sequence.rope(), std::max(sequence.length(), sequence.expected()),
                                         session_.options().rope_steps);
    text.state = {sequence.length(), sequence.cache().rerotations().count, rope_scale(sequence.rope(), step)};
    const std::lock_guard lock(mutex_);
    ++state_.new_tokens;
    state_.running[number] = text.state;
  };
  try {
    if (prompts_) prompts_->find(own, prompt);
    running.ids.push_back(write_text(scheduler, *engine_.tokenizer, std::move(text.request), text.options,
                                     text.continues, text.answer, text.on_text));
  } catch (...) {
    text.answer.generation.error = std::current_exception();
    ended(text.answer.generation);
  }
}

void Service::end(Running& running, const ServedText& text, int64_t number) {
  {
    const Generation& result = text.answer.generation;
    const std::lock_guard lock(mutex_);
    --state_.texts;
    state_.prompt_tokens += text.answer.read - result.shared;
    state_.shared_tokens += result.shared;
    state_.restarts += result.restarts;
    state_.rerotations += text.state.rerotations;
    state_.running.erase(number);
  }
  if (++running.ended == running.texts->texts.size()) running.texts->on_end(*running.texts);
}

// Asking the system for free memory at every step would cost one per cent of a small model's time.
void Service::note(bool busy) {
  const double seconds = seconds_since(counted_at_);
  if (busy && seconds < 1) return;
  const std::lock_guard lock(mutex_);
  state_.pages = session_.pool().pages();
  state_.free_pages = session_.free_pages();
  if (seconds < 1) return;
  state_.tokens_per_second = static_cast<double>(state_.new_tokens - counted_tokens_) / seconds;
  counted_tokens_ = state_.new_tokens;
  counted_at_ = Stopwatch::now();
}

}  // namespace lariat
