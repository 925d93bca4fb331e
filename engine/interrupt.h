#pragma once
#include <atomic>

namespace lariat {

// Thrown in a long computation after Ctrl-C; the catcher keeps finished results. Not an Error: nothing went
// wrong.
struct Interrupted {};

// Throws Interrupted if the flag is set; null: never.
inline void stop_if(const std::atomic<bool>* interrupted) {
  if (interrupted != nullptr && interrupted->load()) throw Interrupted();
}

// Runs `work`; returns false if it was interrupted.
template <class Work>
bool uninterrupted(const Work& work) {
  try {
    work();
  } catch (const Interrupted&) {
    return false;
  }
  return true;
}

}  // namespace lariat
