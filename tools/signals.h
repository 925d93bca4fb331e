#pragma once
#include <atomic>

namespace lariat {

// Set by SIGINT, SIGTERM and SIGHUP (a closed terminal); a second signal ends the program.
const std::atomic<bool>& interrupted();
// Closed pipes, full disks and shrinking mapped files become errors.
void install_signal_handlers();
// Returns the signal that set interrupted() (0: none) and re-arms the handlers. second_ends = false: a second
// signal does not end the program, while a line editor must restore the terminal.
int rearm_signals(bool second_ends);
// Whether stdout is a pipe without a reader, as after `| head -1`.
bool stdout_has_no_reader();

}  // namespace lariat
