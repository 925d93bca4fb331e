#include "tests/simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SIMT_ASAN 1
// A thread abandoned after a fault leaks the message on its stack. Every kernel thread runs below this
// function.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:simt::Fiber::run\n"; }  // NOLINT
#else
#define SIMT_ASAN 0
#endif

#if defined(__x86_64__)
// Saves the callee-saved registers and stack pointer in *save and continues at `next`: forty times faster
// than swapcontext with its system call.
extern "C" void simt_switch_stack(void** save, void* next);
asm(R"(
.text
.globl simt_switch_stack
.type simt_switch_stack, @function
simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch_stack, .-simt_switch_stack
)");
#else
#include <ucontext.h>
#endif

namespace simt {
namespace {

constexpr size_t kStackBytes = SIMT_ASAN ? 256 << 10 : 64 << 10;

Fiber* g_entering = nullptr;  // argument of a fiber's first instruction

#if defined(__x86_64__)
void* make_context(char* stack, size_t size, void (*first)()) {
  // simt_switch_stack pops six registers and the return address; a function expects a stack pointer 8 below a
  // multiple of 16.
  auto** top = reinterpret_cast<void**>(stack + size);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(first);
  for (int reg = 0; reg < 6; ++reg) *--top = nullptr;
  return top;
}
void free_context(void*) {}
void switch_context(void** save, void* next) { simt_switch_stack(save, next); }
#else
void* make_context(char* stack, size_t size, void (*first)()) {
  auto* context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = size;
  context->uc_link = nullptr;
  makecontext(context, first, 0);
  return context;
}
void free_context(void* context) { delete static_cast<ucontext_t*>(context); }
void switch_context(void** save, void* next) {
  if (*save == nullptr) *save = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(*save), static_cast<ucontext_t*>(next));
}
#endif

}  // namespace

Fiber::Fiber() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_ = kStackBytes;
  mapped_ = size_ + page;
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(mapping_, page, PROT_NONE);
  stack_ = static_cast<char*>(mapping_) + page;
}

Fiber::~Fiber() {
  free_context(context_);
#if !defined(__x86_64__)
  free_context(scheduler_context_);
#endif
  munmap(mapping_, mapped_);
}

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  fake_stack_ = nullptr;
#if SIMT_ASAN
  __asan_unpoison_memory_region(stack_, size_);  // frames of an abandoned run
#endif
  free_context(context_);
  context_ = make_context(stack_, size_, [] { run(g_entering); });
}

void Fiber::run(Fiber* fiber) {
#if SIMT_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &fiber->scheduler_stack_, &fiber->scheduler_stack_size_);
#endif
  fiber->entry_(fiber->argument_);
  fiber->switch_out(true);
  std::abort();
}

void Fiber::resume() {
  g_entering = this;
#if SIMT_ASAN
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, stack_, size_);
#endif
  switch_context(&scheduler_context_, context_);
#if SIMT_ASAN
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::yield() { switch_out(false); }

void Fiber::switch_out([[maybe_unused]] bool for_good) {
#if SIMT_ASAN
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, scheduler_stack_, scheduler_stack_size_);
#endif
  switch_context(&context_, scheduler_context_);
#if SIMT_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &scheduler_stack_, &scheduler_stack_size_);
#endif
}

}  // namespace simt
