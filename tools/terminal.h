#pragma once
#include <histedit.h>

#include <string>

#include "models/text/unicode.h"

namespace lariat {

// Lines of stdin: as they come or, on a terminal, edited (libedit, with the user's ~/.editrc) and with a
// history that lasts as long as the program. The terminal is in libedit's mode only inside read().
class LineReader {
 public:
  explicit LineReader(bool edited) {
    if (edited) open_editor();
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  enum class Outcome { kLine, kOver, kSignal };  // kOver: of the input, or Ctrl-D; kSignal: see interrupted()
  struct Message {
    Outcome outcome = Outcome::kLine;
    std::string text;
    bool verbatim = false;  // it was put together of several lines, and is no command
  };
  // A line or several: each that ends with \ goes on in the next, and """ begins and ends a text. Throws
  // Error where a pipe ends within such a text.
  Message read_message();
  // Forgets what was typed or pasted ahead and was not read yet.
  void forget() { input_.clear(); }

 private:
  void open_editor();
  // The next line without its end (\n or \r\n); the prompt is shown only where lines are edited. Bytes that
  // are not UTF-8 become U+FFFD there, elsewhere an Error. What was typed before a signal is forgotten.
  Outcome read(const wchar_t* prompt, std::string& line);
  bool fill();  // waits for input; false: a signal came, or the input has ended
  void redraw() const;
  Outcome read_edited(const wchar_t* prompt, std::string& line);
  Outcome read_plain(std::string& line);

  // libedit's own calls: its source of characters (1, or -1 for none), and the prompt.
  static int read_character(EditLine* editor, wchar_t* c);
  static wchar_t* show_prompt(EditLine* editor);

  EditLine* editor_ = nullptr;
  HistoryW* history_ = nullptr;
  std::wstring prompt_;
  Utf8Assembler characters_;
  std::string input_;  // valid UTF-8 that was not used yet
  std::string text_;   // where lines are not edited, all that has come, the first checked_ bytes of it UTF-8
  size_t checked_ = 0;
  bool ended_ = false;
  bool typed_ahead_ = false;  // what comes next was typed before the terminal was in libedit's mode
};

}  // namespace lariat
