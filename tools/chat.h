#pragma once
#include "engine/text/chat.h"
#include "tools/generating.h"

// `lariat chat`: the conversation (chat.cpp) and the commands that begin with a slash (chat_commands.cpp).
namespace lariat {

struct ChatCommand {
  CommonOptions common;
  WritingOptions writing;
  CommandFiles files;
  bool json = false;
};

// All that lasts as long as the conversation.
struct Chat {
  const ChatCommand& command;
  Session& session;
  Conversation conversation;
  AnswerOptions options;
  bool terminal;  // a person types and reads
  int64_t answers = 0, written = 0;
  bool proposed = false;
  bool in_line = false;  // part of an answer stands on the screen's last line
  std::optional<Answer> last{};
};

// A line on stderr that nobody asked for; nothing with --quiet.
void notice(const Chat& chat, const std::string& text);
void save_conversation(const Chat& chat, const std::filesystem::path& file);

std::string trimmed(const std::string& text);  // without spaces at its ends
// A command is a slash and a word of letters: "/etc/passwd" is none.
bool is_command(const std::string& line);
// Does what a command asks for. False: the conversation ends. Throws Error for one that does not exist.
bool run_command(Chat& chat, const std::string& line);

}  // namespace lariat
