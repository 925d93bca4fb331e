#pragma once
#include <atomic>

// Ctrl-C, closed terminals and closed pipes.
namespace lariat {

// Set by SIGINT, SIGTERM and SIGHUP (a closed terminal); a second signal ends the program at once.
const std::atomic<bool>& interrupted();
// Handles these; closed pipes, full disks and files that shrink while mapped become errors where they are
// met.
void install_signal_handlers();
// The signal that set interrupted() (0: none), which is then waited for again. second_ends = false: a second
// one does not end the program either, as while a line is edited the terminal has to be given back first.
int rearm_signals(bool second_ends);
// Whether stdout is a pipe that nobody reads any more, as after `| head -1`.
bool stdout_has_no_reader();

}  // namespace lariat
