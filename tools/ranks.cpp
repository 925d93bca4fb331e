#include "tools/ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "engine/lariat.h"
#include "tools/output.h"

namespace lariat {
namespace {

Communicator* command_ranks = nullptr;
int visible_stderr = STDERR_FILENO;

void hide_output() {
  visible_stderr = ::dup(STDERR_FILENO);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  ::close(nowhere);
}

bool has_option(const std::vector<std::string>& words, const std::string& option) {
  return std::ranges::any_of(
      words, [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
}

}  // namespace

void check_options_of_ranks(const std::vector<std::string>& words) {
  if (command_ranks == nullptr) return;
  if (has_option(words, "--against"))
    throw UsageError("--against: not supported on several processes; run without mpirun");
  const auto split = std::ranges::find(words, "--split");
  if (has_option(words, "--split=sequence") || (words.end() - split > 1 && split[1] == "sequence")) return;
  for (const char* option : {"--load-cache", "--save-cache"}) {
    if (has_option(words, option))
      throw UsageError(std::string(option) + ": heads are divided among processes; add --split sequence");
  }
}

CommandRanks::CommandRanks(const std::vector<std::string>& words) {
  if (has_option(words, "--shard")) return;
  communicator_ = make_communicator();
  if (communicator_->size() > 1) command_ranks = communicator_.get();
  if (communicator_->rank() > 0) hide_output();
}

CommandRanks::~CommandRanks() { command_ranks = nullptr; }

Communicator* ranks() { return command_ranks; }

void follow_first_rank(const Engine& engine) {
  // mpirun passes signals to all ranks: rank 0 ends its command, then the others.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  follow(*command_ranks, engine.model, *engine.backend);
}

void end_ranks(const std::string& what) {
  const int rank = command_ranks->rank();
  if (rank > 0) {
    std::signal(SIGTERM, SIG_DFL);
    ::sleep(3);  // rank 0 prints an error that all ranks have, and mpirun ends them, after 1 s by SIGKILL
    ::dup2(visible_stderr, STDERR_FILENO);
  }
  say("error: " + (what.starts_with("rank ") ? what : fmt::format("rank {}: {}", rank, what)));
  command_ranks->abort(1);
}

}  // namespace lariat
