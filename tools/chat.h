#pragma once
#include "engine/text/chat.h"
#include "tools/generating.h"

// `lariat chat`: the conversation and its slash commands.
namespace lariat {

struct ChatCommand {
  CommonOptions common;
  WritingOptions writing;
  CommandFiles files;
  bool json = false;
};

struct Chat {
  const ChatCommand& command;
  CachedConversation cached;
  AnswerOptions options;
  bool terminal;  // interactive
  int64_t answers = 0, written = 0;
  bool proposed = false;
  bool in_line = false;  // the screen's last line holds part of an answer
  std::optional<Answer> last{};
};

// Prints to stderr; nothing with --quiet.
void notice(const Chat& chat, const std::string& text);

std::string trimmed(const std::string& text);
// True for a slash and letters; "/etc/passwd" is no command.
bool is_command(const std::string& line);
// Returns false at the end of the conversation. Throws Error for an unknown command.
bool run_command(Chat& chat, const std::string& line);

}  // namespace lariat
