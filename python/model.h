#pragma once
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/lariat.h"
#include "engine/text/generate.h"
#include "python/convert.h"
#include "python/worker.h"

namespace lariat::python {

// Lines of OpenOptions::warn, which become Python warnings after a call.
class Warnings {
 public:
  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
  }
  void issue();  // may throw nb::python_error

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

struct OpenModel {
  std::filesystem::path path;
  Engine engine;
  std::optional<int> activations;  // unset: as the command line's, 8 bits to generate and 16 to measure
  std::shared_ptr<Warnings> warnings = std::make_shared<Warnings>();
  const Tokenizer& tokenizer() const;  // throws UsageError without one
};

// A session that sequences share, and what must outlive it.
struct Runner {
  std::shared_ptr<OpenModel> model;
  Session session;
  Runner(std::shared_ptr<OpenModel> of, const SessionOptions& options)
      : model(std::move(of)), session(model->engine.model, *model->engine.backend, options) {}
};

// Takes rope_scaling, position_method and rope_cache, by default the model's.
SessionOptions session_options(const OpenModel& model, Keywords& keywords, int activations = 16);
// Takes the settings of `lariat generate`.
AnswerOptions answer_options(const OpenModel& model, Keywords& keywords);
nb::dict to_python(const Answer& answer);

// A text after `context`, or ids.
std::vector<int32_t> to_prompt(const OpenModel& model, std::span<const int32_t> context, nb::handle prompt);

class PySession;

class PyModel {
 public:
  explicit PyModel(std::shared_ptr<OpenModel> model) : model_(std::move(model)) {}
  PyModel(const PyModel&) = delete;
  PyModel& operator=(const PyModel&) = delete;
  ~PyModel() { destroy_later(std::move(model_)); }

  std::shared_ptr<OpenModel> opened() const;  // throws Error if closed
  void close();

  Array<int32_t, 1> tokenize(const std::string& text, std::optional<bool> special) const;
  std::string detokenize(nb::handle ids, bool special) const;
  nb::object chat(nb::handle messages, bool answer, bool tokenize) const;
  nb::object facts() const;
  nb::list generate(nb::handle prompts, const nb::kwargs& given);
  nb::list score(nb::handle prompts, nb::handle continuations, const nb::kwargs& given);
  std::unique_ptr<PySession> session(const nb::kwargs& given);
  std::unique_ptr<PySession> load(const std::filesystem::path& file, const nb::kwargs& given);
  std::unique_ptr<PySession> join(const std::vector<std::filesystem::path>& files, const std::string& how,
                                  const nb::kwargs& given);

 private:
  std::shared_ptr<OpenModel> model_;
};

std::unique_ptr<PyModel> open_model(const std::filesystem::path& path, const nb::kwargs& given);

void add_measure(nb::module_& module);

}  // namespace lariat::python
