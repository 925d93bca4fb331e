#pragma once
#include <poll.h>
#include <pty.h>
#include <termios.h>
#include <utmp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <vector>

#include "tests/tools/program.h"

namespace lariat::test {

class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments) {
    winsize size{};
    size.ws_row = 50;
    size.ws_col = 200;
    if (openpty(&screen_, &side_, nullptr, nullptr, &size) != 0) throw std::runtime_error("no terminal");
    before_ = attributes();
    std::vector<std::string> words{lariat_program()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    close(screen_);
    login_tty(dup(side_));
    close(side_);
    setenv("TERM", "dumb", 1);  // no colours, no cursor movement
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(screen_);
    close(side_);
  }

  void type(const std::string& keys) const {
    EXPECT_EQ(write(screen_, keys.data(), keys.size()), std::ssize(keys));
  }
  void signal(int number) const { kill(pid_, number); }
  // Types Ctrl-C while the program is stopped: the terminal discards unprinted output.
  void interrupt() {
    signal(SIGSTOP);
    EXPECT_EQ(waitpid(pid_, nullptr, WUNTRACED), pid_);
    read_some(100);
    type("\x03");
    signal(SIGCONT);
  }

  // Output before `part`, with \n line ends; fails on timeout.
  std::string until(const std::string& part) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      if (const size_t at = pending_.find(part); at != std::string::npos) {
        std::string text = pending_.substr(0, at);
        pending_.erase(0, at + part.size());
        return text;
      }
      read_some(100);
    }
    ADD_FAILURE() << "no '" << part << "' in: " << pending_;
    return "";
  }
  // Returns the screen up to the next prompt.
  std::string say(const std::string& line) {
    type(line + "\n");
    EXPECT_EQ(until(line + "\n"), "") << "output before the typed line";
    return until("> ");
  }

  // Returns the exit code, or 128 + signal; rest() has the remaining output.
  int wait() {
    int status = 0;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      read_some(100);
      if (waitpid(pid_, &status, WNOHANG) != pid_) continue;
      pid_ = -1;
      read_some(0);
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    ADD_FAILURE() << "still running; on the screen: " << pending_;
    return -1;
  }
  std::string rest() const { return pending_; }

  bool restored() const {
    const termios now = attributes();
    return now.c_iflag == before_.c_iflag && now.c_oflag == before_.c_oflag &&
           now.c_cflag == before_.c_cflag && now.c_lflag == before_.c_lflag &&
           std::equal(std::begin(now.c_cc), std::end(now.c_cc), std::begin(before_.c_cc));
  }

 private:
  static constexpr std::chrono::seconds kPatience{300};

  termios attributes() const {
    termios now{};
    tcgetattr(side_, &now);
    return now;
  }
  void read_some(int milliseconds) {
    pollfd in{screen_, POLLIN, 0};
    while (poll(&in, 1, milliseconds) == 1) {
      char bytes[1 << 12];
      const ssize_t n = read(screen_, bytes, sizeof(bytes));
      if (n <= 0) return;
      for (const char c : std::string_view(bytes, static_cast<size_t>(n))) {
        if (c != '\r') pending_ += c;
      }
      milliseconds = 0;
    }
  }

  int screen_ = -1, side_ = -1;
  pid_t pid_ = -1;
  termios before_{};
  std::string pending_;
};

}  // namespace lariat::test
