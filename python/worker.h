#pragma once
#include <nanobind/nanobind.h>

#include <atomic>
#include <functional>
#include <memory>

namespace lariat::python {

namespace nb = nanobind;

using Flag = std::atomic<bool>;

// Runs `work` on one thread for all models, because every calling thread of the kernels owns a team of
// threads (kernels/team.h). Waits without the GIL. Python's signal handlers run meanwhile: if one raises, as
// on Ctrl-C, sets `interrupted` and throws its exception when `work` has ended.
void compute(Flag& interrupted, const std::function<void()>& work);
inline void compute(const std::function<void(const Flag& interrupted)>& work) {
  Flag interrupted = false;
  compute(interrupted, [&] { work(interrupted); });
}
// Destroys the object on that thread, after earlier work, without waiting.
void destroy_later(std::shared_ptr<void> object);

}  // namespace lariat::python
