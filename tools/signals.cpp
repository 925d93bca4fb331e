#include "tools/signals.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "models/io/mapped_file.h"
#include "tools/output.h"

namespace lariat {
namespace {

std::atomic<bool> g_interrupted{false}, g_second_ends{true};
std::atomic<int> g_signal{0};  // other signals take precedence over SIGINT
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler writes them");

void on_signal(int signal) {
  if (signal != SIGINT || g_signal == 0) g_signal = signal;
  g_interrupted = true;
  if (g_second_ends) std::signal(signal, SIG_DFL);
}

void wait_for_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // Ignored signals stay ignored: under nohup, and in background jobs of scripts.
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

}  // namespace

const std::atomic<bool>& interrupted() { return g_interrupted; }

int rearm_signals(bool second_ends) {
  g_second_ends = second_ends;
  g_interrupted = false;  // cleared first, so a new signal is returned
  const int signal = g_signal.exchange(0);
  wait_for_signals();
  return signal;
}

void install_signal_handlers() {
  wait_for_signals();
  std::signal(SIGPIPE, SIG_IGN);  // measurements continue without a stdout reader
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit fails like a full disk
  install_mapping_fault_handler(
      [](const std::string& error) { return one_line("lariat: error: " + error) + "\n"; });
}

bool stdout_has_no_reader() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

}  // namespace lariat
