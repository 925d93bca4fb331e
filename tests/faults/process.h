#pragma once
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/tools/program.h"

namespace lariat::test {

inline std::filesystem::path demo_model() { return source_dir() / "configs" / "demo"; }

// False after ten seconds.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// lariat in the background; writes dir/out and dir/err.
class Process {
 public:
  // `prepare` runs in the new process before the program.
  Process(const std::filesystem::path& dir, const std::vector<std::string>& arguments,
          const std::function<void()>& prepare = {})
      : dir_(dir) {
    std::filesystem::create_directories(dir);
    pid_ = fork();
    if (pid_ != 0) return;
    redirect("/dev/null", O_RDONLY, 0);
    redirect(dir / "out", O_WRONLY | O_CREAT | O_TRUNC, 1);
    redirect(dir / "err", O_WRONLY | O_CREAT | O_TRUNC, 2);
    std::vector<std::string> words{lariat_program()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
    if (prepare) prepare();
    execv(argv[0], argv.data());
    _exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) signal(SIGKILL), wait();
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  std::string out() const { return slurp(dir_ / "out"); }
  std::string err() const { return slurp(dir_ / "err"); }

  Outcome wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    Outcome outcome;
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.out = out();
    outcome.err = err();
    return outcome;
  }
  // Kills a slower process and fails the test.
  Outcome wait_ten_seconds() {
    siginfo_t info{};
    const auto has_ended = [&] {
      return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid == pid_;
    };
    const bool ended = eventually(has_ended);
    EXPECT_TRUE(ended) << "still running after ten seconds";
    if (!ended) signal(SIGKILL);
    return wait();
  }

 private:
  static void redirect(const std::filesystem::path& file, int flags, int fd) {
    const int opened = open(file.c_str(), flags, 0644);
    dup2(opened, fd);
    close(opened);
  }
  std::filesystem::path dir_;
  pid_t pid_ = -1;
};

// Splits a command line without quotes.
inline std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

inline std::vector<std::string> with(std::vector<std::string> words,
                                     std::initializer_list<std::string> more) {
  words.insert(words.end(), more);
  return words;
}

// Runs a second or two on the demo; the report does not depend on the clock.
inline std::vector<std::string> small_sweep(const std::filesystem::path& report,
                                            const std::string& depths = "0,1") {
  return with(
      words("sweep --lengths 128,256 --scalings none,linear,yarn --trials 2 --max-tokens 3000 --no-speed "
            "--device cpu --threads 1"),
      {"--depths", depths, "--model", demo_model().string(), "--report", report.string(), "--quiet"});
}

inline std::vector<std::string> endless_story(const std::filesystem::path& model = demo_model()) {
  return with(
      words("generate --prompt Once --max-new-tokens 100000000 --ctx 100000000000 --ignore-eos --quiet "
            "--device cpu --threads 1"),
      {"--model", model.string()});
}

// Expects one stderr line and exit code 1.
inline void expect_one_line(const Outcome& outcome, std::string_view words) {
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(outcome.err.rfind("lariat: error: ", 0), 0U) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(names(outcome.err, words));
}

}  // namespace lariat::test
