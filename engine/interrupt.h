#pragma once
#include <atomic>

namespace lariat {

// Thrown in the middle of a long computation when the user has had enough, and caught where what is finished
// can be kept. Not an Error: nothing went wrong.
struct Interrupted {};

// `interrupted` may be null: then nobody can interrupt.
inline void stop_if(const std::atomic<bool>* interrupted) {
  if (interrupted != nullptr && interrupted->load()) throw Interrupted();
}

// Whether `work` came to its end; false: it was interrupted.
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
