#pragma once
#include <cstddef>

// Cooperative thread that runs one CUDA thread. A guard page catches stack overflows; AddressSanitizer is
// told of every switch.
namespace simt {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() runs entry(argument); drops any earlier run.
  void start(void (*entry)(void*), void* argument);

  void resume();  // scheduler: runs until yield() or the end
  void yield();   // fiber: back to the scheduler

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
  void* context_ = nullptr;
  void* scheduler_context_ = nullptr;  // caller of the last resume()
  void* fake_stack_ = nullptr;
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_size_ = 0;
};

}  // namespace simt
