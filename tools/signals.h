#pragma once
#include <atomic>

// Ctrl-C, closed terminals and closed pipes.
namespace lariat {

// Set by SIGINT, SIGTERM and SIGHUP (a closed terminal); a second signal ends the program immediately.
const std::atomic<bool>& interrupted();
// Installs handlers for these signals. Closed pipes, full disks and shrinking mapped files become errors.
void install_signal_handlers();
// Returns the signal that set interrupted() (0: none) and re-arms the handlers. second_ends = false: a second
// signal does not end the program, e.g. while a line editor must restore the terminal.
int rearm_signals(bool second_ends);
// Returns whether stdout is a pipe without a reader, as after `| head -1`.
bool stdout_has_no_reader();

}  // namespace lariat
