#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/lariat.h"
#include "engine/stopwatch.h"
#include "engine/text/generate.h"
#include "tools/serve/prompt_store.h"

namespace lariat {

// A running text: cached tokens, the RoPE scale of its keys, re-rotations so far.
struct TextState {
  int64_t length = 0, rerotations = 0;
  double rope_scale = 1;
};

// The engine's work so far, and now.
struct ServiceState {
  int64_t requests = 0, prompt_tokens = 0, shared_tokens = 0, new_tokens = 0, restarts = 0, rerotations = 0;
  int64_t texts = 0;  // running and waiting
  int64_t pages = 0, free_pages = 0;
  double tokens_per_second = 0;            // of the last second or more
  std::map<int64_t, TextState> running{};  // by number
};

// A text to continue, and its answer.
struct ServedText {
  Request request;  // on_logits is called on the engine's thread; the other callbacks are not for the caller
  AnswerOptions options;
  bool continues = true;  // as write_text's
  TextFn on_text{};
  Answer answer{};
  TextState state{};
};

// The texts of one request. Alive until the last has ended.
struct ServedTexts {
  std::vector<ServedText> texts;
  std::function<void(ServedTexts& all)> on_end{};  // all have ended; on the engine's thread
  std::atomic<bool> cancelled{false};
};

struct ServiceOptions {
  int64_t at_once = 8, waiting = 256;  // most texts
  std::filesystem::path cache_dir{};   // PromptStore's; empty: none
  uint64_t cache_dir_bytes = 0;
  std::function<void(const std::string& line)> warn{};
};

// Runs a scheduler on a thread, which alone uses the engine's backend. Other members: any thread.
class Service {
 public:
  // Limits of the texts that run, and that wait. Throws Error if the session or the folder cannot be made.
  Service(const Engine& engine, const ServiceOptions& options);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service();  // ends all texts after the current step

  // Returns false if too many texts wait. An error of a text is in its Generation::error.
  bool add(std::shared_ptr<ServedTexts> texts);
  // Ends its texts, after the current step.
  void cancel(const std::shared_ptr<ServedTexts>& texts);
  void cancel_all();
  ServiceState state() const;

 private:
  struct Running {
    std::shared_ptr<ServedTexts> texts;
    std::vector<int64_t> ids{};
    size_t ended = 0;
  };

  void run();
  bool wait_for_work(bool busy);
  void start(Scheduler& scheduler, const std::shared_ptr<ServedTexts>& texts);
  void start(Scheduler& scheduler, Running& running, ServedText& text);
  void end(Running& running, const ServedText& text, int64_t number);
  void note(bool busy);

  const Engine& engine_;
  const ServiceOptions options_;
  Session session_;  // of the engine's thread, like running_ and prompts_
  std::optional<PromptStore> prompts_{};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<ServedTexts>> added_;
  ServiceState state_;
  bool stopping_ = false, cancel_all_ = false, cancelled_ = false;
  std::list<Running> running_;
  int64_t last_number_ = 0, counted_tokens_ = 0;
  Stopwatch::time_point counted_at_ = Stopwatch::now();
  std::thread thread_;  // last: starts with all other members there
};

}  // namespace lariat
