#pragma once
#include <memory>
#include <string>

namespace lariat {

// Lines of stdin: as they come or, on a terminal, edited (libedit, with the user's ~/.editrc) and with a
// history that lasts as long as the program. The terminal is in libedit's mode only inside read().
class LineReader {
 public:
  explicit LineReader(bool edited);
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  enum class Outcome { kLine, kOver, kSignal };  // kOver: of the input, or Ctrl-D; kSignal: see interrupted()
  // The next line without its end (\n or \r\n), as valid UTF-8; the prompt is shown only where lines are
  // edited. What was typed before a signal is forgotten.
  Outcome read(const std::string& prompt, std::string& line);
  struct Message {
    Outcome outcome = Outcome::kLine;
    std::string text;
    bool verbatim = false;  // it was put together of several lines, and is no command
  };
  // A line or, where lines are edited, several: each that ends with \ goes on in the next, and """ begins and
  // ends a text.
  Message read_message();
  // Forgets what was typed or pasted ahead and was not read yet.
  void forget();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lariat
