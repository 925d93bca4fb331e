#pragma once
#include <histedit.h>

#include <string>

#include "models/text/unicode.h"

namespace lariat {

// Reads lines of stdin, on a terminal with line editing (libedit, ~/.editrc) and a history. The terminal is
// in libedit's mode only inside read().
class LineReader {
 public:
  explicit LineReader(bool edited) {
    if (edited) open_editor();
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  enum class Outcome { kLine, kOver, kSignal };  // kOver: end of input; kSignal: see interrupted()
  struct Message {
    Outcome outcome = Outcome::kLine;
    std::string text;
    bool verbatim = false;  // joined from several lines, so no command
  };
  // A message is a line, lines joined by a final \, or text between """. Throws Error if the input ends
  // within it.
  Message read_message();
  void forget() { input_.clear(); }

 private:
  void open_editor();
  // Reads a line; prompts only when editing. Invalid UTF-8 becomes U+FFFD when editing, otherwise an Error. A
  // signal discards the typed text.
  Outcome read(const wchar_t* prompt, std::string& line);
  bool fill();  // false: a signal, or end of input
  void redraw() const;
  Outcome read_edited(const wchar_t* prompt, std::string& line);
  Outcome read_plain(std::string& line);

  // Callbacks of libedit: a character (1, or -1 for none), and the prompt.
  static int read_character(EditLine* editor, wchar_t* c);
  static wchar_t* show_prompt(EditLine* editor);

  EditLine* editor_ = nullptr;
  HistoryW* history_ = nullptr;
  std::wstring prompt_;
  Utf8Assembler characters_;
  std::string input_;  // unused, valid UTF-8
  std::string text_;   // without editing: all input; checked_ bytes are valid
  size_t checked_ = 0;
  bool ended_ = false;
  bool typed_ahead_ = false;  // the next input was typed before libedit's mode
};

}  // namespace lariat
