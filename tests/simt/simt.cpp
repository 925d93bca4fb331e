#include "tests/simt/simt.h"

#include <deque>
#include <memory>
#include <vector>

#include "tests/simt/blocks.h"
#include "tests/simt/checked.h"
#include "tests/simt/fiber.h"

namespace simt {
namespace {

enum class State { kReady, kAtBarrier, kAtExchange, kDone };

struct Copy {
  void* dst;
  const void* src;
  size_t bytes;
  bool zero_fill;
};

struct Thread {
  Fiber fiber;
  State state = State::kReady;
  unsigned index = 0;
  dim3 position;
  Where where;  // barrier or exchange it waits at
  const char* what = "";
  unsigned mask = 0;
  unsigned char payload[kPayload] = {};
  size_t payload_bytes = 0;
  uint32_t warp_epoch = 0;
  std::deque<std::vector<Copy>> copies;  // groups in flight; the last is open
};

// Lanes at one exchange with the same arguments. Other lanes of the warp take the slow path through
// check_lanes().
struct Meeting {
  unsigned arrived = 0, mask = 0, line = 0;
  const char* what = nullptr;

  bool is(const char* what_, unsigned mask_, const Where& where) const {
    return arrived != 0 && mask == mask_ && line == where.line && what == what_;
  }
};

// Runs one block at a time and reuses its threads.
struct Machine {
  std::vector<std::unique_ptr<Thread>> pool;
  unsigned n_threads = 0;
  unsigned waiting = 0, done = 0;
  unsigned barrier_line = 0;  // the `waiting` threads' barrier
  uint32_t block_epoch = 0;
  std::vector<Lanes> handed_over;  // per warp
  std::vector<Meeting> meetings;   // per warp
  Thread* current = nullptr;
  bool running = false;
  bool inside = false;  // the thread is in the shim: accesses unchecked
  std::string fault;
  std::vector<uint32_t> warp_order, block_order;
  void (*body)(void*) = nullptr;
  void* params = nullptr;
  size_t params_bytes = 0;
  size_t dynamic_bytes = 0;
  void* dynamic = nullptr;
  std::vector<std::pair<const void*, void*>> statics;
};
Machine g;

// Marks the shim's own work.
struct Inside {
  Inside() { g.inside = true; }
  ~Inside() { g.inside = before; }
  bool before = g.inside;
};

std::string at(const Where& where) {
  const std::string_view file = where.file;
  return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(where.line);
}
std::string named(const Thread& t) { return "thread " + std::to_string(t.index); }

std::string stuck_at(const Thread& t) {
  if (t.state == State::kAtBarrier) return named(t) + " waits at the barrier of " + at(t.where);
  if (t.state == State::kAtExchange) return named(t) + " waits at " + t.what + " of " + at(t.where);
  return named(t) + (t.state == State::kDone ? " has left the kernel" : " runs");
}

Thread& lane_of(const Thread& t, unsigned lane) { return *g.pool[t.index / kWarp * kWarp + lane]; }

// `other` can never reach the point where `waiter` waits.
std::string divergence(const Thread& waiter, const Thread& other) {
  return "divergent " + std::string(waiter.what) + " at " + at(waiter.where) + ": " + named(waiter) +
         " expects thread " + std::to_string(other.index) + ", but " + stuck_at(other);
}

std::string explain_deadlock() {
  const Thread* at_barrier = nullptr;
  for (unsigned i = 0; i < g.n_threads; ++i) {
    const Thread& t = *g.pool[i];
    if (t.state == State::kAtBarrier) at_barrier = &t;
    if (t.state != State::kAtExchange) continue;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      const Thread& other = lane_of(t, lane);
      if ((t.mask >> lane & 1U) != 0 && other.state != State::kAtExchange) return divergence(t, other);
    }
  }
  return at_barrier != nullptr ? "not all threads reach the barrier: " + stuck_at(*at_barrier) : "deadlock";
}

// Names threads that left or wait elsewhere.
[[noreturn]] void fault_at_barrier(const Thread& t) {
  const auto there = [&](const Thread& other) {
    return other.state != State::kAtBarrier || other.where.line == t.where.line;
  };
  unsigned i = 0;
  while (g.pool[i]->state != State::kDone && there(*g.pool[i])) ++i;
  fault(named(t) + " waits at the barrier of " + at(t.where) + ", but " + stuck_at(*g.pool[i]));
}

// Waiting lanes at t's exchange; a fault if a lane of its mask can never come.
unsigned check_lanes(const Thread& t) {
  const unsigned self = t.index % kWarp;
  if ((t.mask >> self & 1U) == 0) {
    fault(named(t) + " calls " + t.what + " outside its own mask, " + at(t.where));
  }
  unsigned waiting = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (lane == self || (t.mask >> lane & 1U) == 0) continue;
    if (t.index - self + lane >= g.n_threads) {
      fault(std::string(t.what) + " of " + at(t.where) + " names lanes that the block does not have");
    }
    const Thread& other = lane_of(t, lane);
    if (other.state == State::kDone) fault(divergence(t, other));
    if (other.state != State::kAtExchange) continue;
    if (other.mask != t.mask || other.where.line != t.where.line || std::strcmp(other.what, t.what) != 0) {
      fault(divergence(t, other));
    }
    waiting |= 1U << lane;
  }
  return waiting;
}

void leave() {
  Thread& t = *g.current;
  for (auto& group : t.copies) {
    if (!group.empty()) fault(named(t) + " leaves the kernel with asynchronous copies in flight");
  }
  if (!has_waited(t.index)) fault(named(t) + " leaves a launch that started early, and has not waited");
  t.state = State::kDone;
  ++g.done;
  for (unsigned i = 0; g.waiting > 0 && i < g.n_threads; ++i) {
    const Thread& other = *g.pool[i];
    if (other.state == State::kAtBarrier) {
      fault(named(t) + " leaves the kernel, but " + stuck_at(other));
    }
  }
}

void thread_main(void*) {
  g.inside = false;
  g.body(g.params);
  const Inside inside;
  leave();
}

void resume(Thread& t) {
  g.current = &t;
  threadIdx = t.position;
  g.running = true;
  t.fiber.resume();
  g.running = false;
  if (!g.fault.empty()) {
    shared_free_all();
    g.current = nullptr;
    throw Fault(std::exchange(g.fault, {}) + " (block " + std::to_string(blockIdx.x) + "," +
                std::to_string(blockIdx.y) + "," + std::to_string(blockIdx.z) + ")");
  }
}

void start_block() {
  g.waiting = g.done = 0;
  g.block_epoch = 0;
  std::fill(g.meetings.begin(), g.meetings.end(), Meeting{});
  g.statics.clear();
  shared_free_all();
  g.dynamic = g.dynamic_bytes > 0 ? shared_allocate(g.dynamic_bytes) : nullptr;
  for (unsigned i = 0; i < g.n_threads; ++i) {
    Thread& t = *g.pool[i];
    t.state = State::kReady;
    t.index = i;
    t.position = dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y));
    t.warp_epoch = 0;
    t.copies.clear();
    t.fiber.start(thread_main, nullptr);
  }
}

void run_block() {
  start_block();
  while (g.done < g.n_threads) {
    bool progress = false;
    if (order() == Order::kRandom) put_in_order(g.warp_order, g.warp_order.size());
    for (unsigned i = 0; i < g.warp_order.size() * kWarp; ++i) {
      const unsigned lane = order() == Order::kBackward ? kWarp - 1 - i % kWarp : i % kWarp;
      const unsigned index = g.warp_order[i / kWarp] * kWarp + lane;
      if (index >= g.n_threads) continue;
      Thread& t = *g.pool[index];
      if (t.state != State::kReady) continue;
      progress = true;
      resume(t);
    }
    if (!progress) {
      shared_free_all();
      throw Fault(explain_deadlock());
    }
  }
  shared_free_all();
}

// Checks memory outside the thread's stack.
void check_memory(const Thread& t, const void* address, size_t bytes, Access access) {
  const Inside inside;
  if (touches_shared(address, bytes)) {
    const std::string wrong = record_shared(address, bytes, access, {t.index, g.block_epoch, t.warp_epoch});
    if (!wrong.empty()) fault(wrong);
    return;
  }
  if (inside_device(address, bytes)) {
    std::string wrong = access_before_wait(address, bytes, access);
    if (wrong.empty()) wrong = record_device(address, bytes, access);
    if (!wrong.empty()) fault(named(t) + " " + wrong);
    return;
  }
  const char* byte = static_cast<const char*>(address);
  const char* params = static_cast<const char*>(g.params);
  if (access == Access::kRead && byte >= params && byte + bytes <= params + g.params_bytes) return;
  if (access == Access::kRead && in_program_data(address)) return;  // constants and index variables
  fault(named(t) + (access == Access::kRead ? " reads " : " writes ") +
        (touches_device(address, bytes) ? "over the end of a device allocation" : "outside device memory"));
}

void check_launch(dim3 grid, dim3 block, size_t shared_bytes) {
  constexpr size_t kMaxShared = 227 << 10;  // opt-in limit of sm_90
  if (grid.count() == 0 || block.count() == 0) throw Fault("launch of an empty grid or block");
  if (block.count() > 1024) throw Fault("launch of more than 1024 threads per block");
  if (grid.y > 65535 || grid.z > 65535) throw Fault("launch of a grid beyond 65535 in y or z");
  if (shared_bytes > kMaxShared) throw Fault("launch with more shared memory than a block can have");
}

}  // namespace

bool in_kernel() { return g.running && !g.inside; }
unsigned lane_id() { return g.current->index % kWarp; }
unsigned thread_index() { return g.current->index; }
void wait_for_launches() { thread_waits(g.current->index); }

void fault(const std::string& what) {
  const Inside inside;
  g.fault = what;
  for (;;) g.current->fiber.yield();
}

void fault_outside_mask(const char* what) {
  const Inside inside;
  fault(named(*g.current) + ": " + what + " reads a lane outside its mask");
}

void barrier(const Where& where) {
  const Inside inside;
  Thread& t = *g.current;
  t.where = where;
  if (g.waiting == 0) g.barrier_line = where.line;
  if (g.done > 0 || g.barrier_line != where.line) fault_at_barrier(t);
  if (++g.waiting < g.n_threads) {
    t.state = State::kAtBarrier;
    t.fiber.yield();
    return;
  }
  g.waiting = 0;
  ++g.block_epoch;
  for (unsigned i = 0; i < g.n_threads; ++i) g.pool[i]->state = State::kReady;
}

const Lanes& exchange(const char* what, unsigned mask, const void* payload, size_t bytes, bool memory,
                      const Where& where) {
  const Inside inside;
  Thread& t = *g.current;
  const unsigned self = lane_id();
  t.what = what;
  t.mask = mask;
  t.where = where;
  t.payload_bytes = bytes;
  if (bytes > 0) std::memcpy(t.payload, payload, bytes);
  const unsigned warp = t.index / kWarp;
  Meeting& meeting = g.meetings[warp];
  bool complete = false;
  if (g.done == 0 && meeting.is(what, mask, where) && (mask >> self & 1U) != 0) {
    meeting.arrived |= 1U << self;
    complete = meeting.arrived == mask;
  } else {
    const unsigned waiting = check_lanes(t);
    complete = (waiting | 1U << self) == mask;
    if (waiting == 0 && meeting.arrived == 0) meeting = {1U << self, mask, where.line, what};
  }
  Lanes& lanes = g.handed_over[warp];
  if (!complete) {
    t.state = State::kAtExchange;
    t.fiber.yield();
    return lanes;
  }
  if (meeting.mask == mask) meeting.arrived = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1U) == 0) continue;
    Thread& other = lane_of(t, lane);
    std::memcpy(lanes.bytes[lane], other.payload, other.payload_bytes);
    other.state = State::kReady;
    if (memory) ++other.warp_epoch;
  }
  return lanes;
}

void* static_shared(const void* key, size_t bytes) {
  const Inside inside;
  for (auto [known, data] : g.statics) {
    if (known == key) return data;
  }
  if (shared_bytes_used() - g.dynamic_bytes + bytes > (48 << 10)) {
    fault("more than 48 KiB of static shared memory");
  }
  g.statics.emplace_back(key, shared_allocate(bytes));
  return g.statics.back().second;
}

void* dynamic_shared() {
  if (g.dynamic == nullptr) fault("dynamic shared memory in a launch without any");
  return g.dynamic;
}

void copy_async(void* shared_dst, const void* src, size_t bytes, bool zero_fill) {
  const Inside inside;
  auto& groups = g.current->copies;
  if (groups.empty()) groups.emplace_back();
  if (reinterpret_cast<uintptr_t>(shared_dst) % bytes != 0 || reinterpret_cast<uintptr_t>(src) % bytes != 0) {
    fault("asynchronous copy between misaligned addresses");
  }
  if (!touches_shared(shared_dst, bytes)) fault("asynchronous copy to an address outside shared memory");
  if (!zero_fill && !inside_device(src, bytes)) fault("asynchronous copy from outside an allocation");
  const std::string wrong = zero_fill ? "" : access_before_wait(src, bytes, Access::kRead);
  if (!wrong.empty()) fault(named(*g.current) + " " + wrong);
  groups.back().push_back({shared_dst, src, bytes, zero_fill});
}

void commit_copies() {
  const Inside inside;
  auto& groups = g.current->copies;
  if (groups.empty()) groups.emplace_back();
  groups.emplace_back();
}

void wait_copies(unsigned groups_left_in_flight) {
  const Inside inside;
  auto& groups = g.current->copies;
  while (groups.size() > size_t{groups_left_in_flight} + 1) {
    for (const Copy& copy : groups.front()) {
      check_access(copy.dst, copy.bytes, Access::kWrite);
      if (copy.zero_fill) {
        std::memset(copy.dst, 0, copy.bytes);
      } else {
        std::memcpy(copy.dst, copy.src, copy.bytes);
      }
    }
    groups.pop_front();
  }
}

void run(Dim3 grid, Dim3 block, size_t shared_bytes, bool early, void (*body)(void*), void* params,
         size_t params_bytes) {
  check_launch(grid, block, shared_bytes);
  g.n_threads = static_cast<unsigned>(block.count());
  const unsigned warps = (g.n_threads + kWarp - 1) / kWarp;
  while (g.pool.size() < size_t{warps} * kWarp) g.pool.push_back(std::make_unique<Thread>());
  if (g.handed_over.size() < warps) g.handed_over.resize(warps);
  if (g.meetings.size() < warps) g.meetings.resize(warps);
  g.body = body;
  g.params = params;
  g.params_bytes = params_bytes;
  g.dynamic_bytes = shared_bytes;
  gridDim = grid;
  blockDim = block;
  begin_launch(early, g.n_threads);
  put_in_order(g.warp_order, warps);
  put_in_order(g.block_order, grid.count());
  for (const uint32_t index : g.block_order) {
    begin_block(index);
    blockIdx = dim3(index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y);
    run_block();
  }
}

void check_access(const void* address, size_t bytes, Access access) {
  const Thread& t = *g.current;
  if (hooks_linked() && !t.fiber.owns_stack_byte(address)) check_memory(t, address, bytes, access);
}

}  // namespace simt
