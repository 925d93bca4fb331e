#include "models/mapping_fault.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace lariat {
namespace {

// What a signal handler may read: plain memory that is published by `begin`.
struct Mapping {
  std::atomic<const char*> begin{nullptr};
  size_t bytes = 0;
  char* message = nullptr;  // the whole line; strdup, so that it is one pointer
};

Mapping g_mappings[1024];
std::mutex g_mutex;  // of those who register
static_assert(std::atomic<const char*>::is_always_lock_free, "a signal handler reads it");

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const auto* address = static_cast<const char*>(info->si_addr);
  for (const Mapping& mapping : g_mappings) {
    const char* begin = mapping.begin.load(std::memory_order_acquire);
    if (begin == nullptr || address < begin || address >= begin + mapping.bytes) continue;
    const ssize_t written = ::write(STDERR_FILENO, mapping.message, std::strlen(mapping.message));
    static_cast<void>(written);  // there is nobody left to tell
    ::_exit(1);
  }
  std::signal(signal, SIG_DFL);  // not ours: the read is repeated, and ends the program
}

}  // namespace

void install_mapping_fault_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

void register_mapping(const void* data, size_t bytes, const std::filesystem::path& file) {
  const std::string message =
      "lariat: error: " + file.string() +
      ": could not be read any more: it was cut short while in use, or its disk fails; copy it again\n";
  const std::lock_guard lock(g_mutex);
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin.load() != nullptr) continue;
    mapping.message = ::strdup(message.c_str());
    if (mapping.message == nullptr) return;
    mapping.bytes = bytes;
    mapping.begin.store(static_cast<const char*>(data), std::memory_order_release);
    return;
  }
}

void unregister_mapping(const void* data) {
  const std::lock_guard lock(g_mutex);
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin.load() != data) continue;
    mapping.begin.store(nullptr);
    std::free(mapping.message);
    mapping.message = nullptr;
    return;
  }
}

}  // namespace lariat
