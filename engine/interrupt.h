#pragma once
#include <atomic>
#include <exception>

namespace lariat {

// Thrown by a long computation after Ctrl-C; finished results are kept. Not an Error.
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

inline void stop_if(const std::atomic<bool>* interrupted) {
  if (interrupted != nullptr && interrupted->load()) throw Interrupted();
}

// Returns false if `work` was interrupted.
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
