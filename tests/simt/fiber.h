#pragma once
#include <cstddef>

// A cooperative thread with its own stack, the vehicle of one CUDA thread. Stacks end in a guard page, so an
// overflow faults at once, and every switch is announced to AddressSanitizer.
namespace simt {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Prepares the fiber to run entry(argument) on its next resume(), whatever it was doing before.
  void start(void (*entry)(void*), void* argument);

  void resume();  // called on the scheduler's stack: runs the fiber until it yields or its entry returns
  void yield();   // called on the fiber's stack: back to the scheduler

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
  void* scheduler_context_ = nullptr;  // that of whoever resumed it
  // AddressSanitizer's record of both sides of a switch.
  void* fake_stack_ = nullptr;
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_size_ = 0;
};

}  // namespace simt
