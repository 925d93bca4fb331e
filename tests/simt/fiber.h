#pragma once
#include <cstddef>

// A cooperative thread with a stack: runs one CUDA thread. A guard page catches overflows, and
// AddressSanitizer is told of every switch.
namespace simt {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Prepares the fiber to run entry(argument) on its next resume(); drops any earlier run.
  void start(void (*entry)(void*), void* argument);

  void resume();  // on the scheduler's stack: runs until yield() or the entry's return
  void yield();   // on the fiber's stack: back to the scheduler

  bool owns_stack_byte(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    return byte >= stack_ && byte < stack_ + size_;
  }

 private:
  static void run(Fiber* fiber);
  void switch_out(bool for_good);

  char* stack_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* context_ = nullptr;            // the fiber's saved machine context
  void* scheduler_context_ = nullptr;  // of the last resume()'s caller
  // AddressSanitizer's state on both sides of a switch.
  void* fake_stack_ = nullptr;
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_size_ = 0;
};

}  // namespace simt
