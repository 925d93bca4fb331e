#include "tools/terminal.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <utility>

#include "kernels/error.h"
#include "models/io/text_file.h"
#include "models/text/unicode.h"
#include "tools/signals.h"

namespace lariat {
namespace {

constexpr int kHistory = 1000;  // lines
// poll() notices signals on other threads only after this time.
constexpr int kPollMilliseconds = 200;

std::atomic<bool> g_redraw{false};  // the window was resized, or the program resumed

std::string narrow(std::wstring_view text) {
  std::string result;
  for (const wchar_t c : text) append_utf8(result, static_cast<char32_t>(c));
  return result;
}

LineReader& reader_of(EditLine* editor) {
  void* data = nullptr;
  el_wget(editor, EL_CLIENTDATA, &data);
  return *static_cast<LineReader*>(data);
}

}  // namespace

bool LineReader::fill() {
  while (input_.empty() && !ended_) {
    if (interrupted()) return false;
    if (editor_ != nullptr && g_redraw.exchange(false)) redraw();
    pollfd in{STDIN_FILENO, POLLIN, 0};
    if (::poll(&in, 1, kPollMilliseconds) <= 0) continue;
    char bytes[1 << 12];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    ended_ = n <= 0;
    // Ctrl-D, as the terminal's own mode encodes it.
    if (!ended_ && std::exchange(typed_ahead_, false)) std::replace(bytes, bytes + n, '\0', '\x04');
    const std::string_view piece(bytes, ended_ ? 0 : static_cast<size_t>(n));
    if (editor_ != nullptr) {
      characters_.push(piece, input_);
      continue;
    }
    if (text_.empty()) checked_ = piece.size() - without_bom(piece, input_name("-")).size();
    text_ += piece;
    const size_t end = end_of_utf8(text_, checked_, !ended_, input_name("-"));
    input_.append(text_, checked_, end - checked_);
    checked_ = end;
  }
  return !input_.empty();
}

void LineReader::redraw() const {
  el_resize(editor_);
  el_wset(editor_, EL_PREP_TERM, 0);  // keep the shell's terminal settings
  el_wset(editor_, EL_PREP_TERM, 1);
  el_wset(editor_, EL_REFRESH);
}

int LineReader::read_character(EditLine* editor, wchar_t* c) {
  LineReader& reader = reader_of(editor);
  if (!reader.fill()) return -1;
  const Utf8Step step = utf8_step(reader.input_, 0);
  *c = static_cast<wchar_t>(step.value);
  reader.input_.erase(0, step.length);
  return 1;
}

wchar_t* LineReader::show_prompt(EditLine* editor) { return reader_of(editor).prompt_.data(); }

void LineReader::open_editor() {
  // libedit uses the locale's encoding; a minimal system only has C.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  editor_ = el_init("lariat", stdin, isatty(STDOUT_FILENO) == 1 ? stdout : stderr, stderr);
  history_ = history_winit();
  if (editor_ == nullptr || history_ == nullptr) throw Error("terminal: cannot be opened; use a pipe");
  HistEventW event;
  history_w(history_, &event, H_SETSIZE, kHistory);
  history_w(history_, &event, H_SETUNIQUE, 1);  // repeated lines are stored once
  el_wset(editor_, EL_CLIENTDATA, this);
  el_wset(editor_, EL_PROMPT, show_prompt);
  el_wset(editor_, EL_GETCFN, read_character);
  el_wset(editor_, EL_EDITOR, L"emacs");
  el_wset(editor_, EL_HIST, history_w, history_);
  el_source(editor_, nullptr);
  for (const int signal : {SIGWINCH, SIGCONT}) std::signal(signal, [](int) { g_redraw = true; });
}

LineReader::Outcome LineReader::read_edited(const wchar_t* prompt, std::string& line) {
  prompt_ = prompt;
  std::fflush(nullptr);
  g_redraw = false;
  const auto on_quit = std::signal(SIGQUIT, [](int) { std::raise(SIGTERM); });  // restores the terminal
  el_wset(editor_, EL_PREP_TERM, 1);  // before the prompt: early input is echoed once
  pollfd in{STDIN_FILENO, POLLIN, 0};
  typed_ahead_ = ::poll(&in, 1, 0) == 1;
  int length = 0;
  const wchar_t* text = el_wgets(editor_, &length);
  std::signal(SIGQUIT, on_quit);
  if (interrupted()) {
    input_.clear();
    return Outcome::kSignal;
  }
  if (text == nullptr || length <= 0) return Outcome::kOver;
  HistEventW event;
  std::wstring_view read(text, static_cast<size_t>(length));
  if (read.back() == L'\n') read.remove_suffix(1);
  if (!read.empty()) history_w(history_, &event, H_ENTER, std::wstring(read).c_str());
  line = narrow(read);
  return Outcome::kLine;
}

LineReader::Outcome LineReader::read_plain(std::string& line) {
  line.clear();
  bool whole = false;
  while (!whole && fill()) {
    const size_t end = input_.find('\n');
    whole = end != std::string::npos;
    line += input_.substr(0, end);
    input_.erase(0, whole ? end + 1 : end);
  }
  if (!whole && interrupted()) return Outcome::kSignal;
  if (!whole && line.empty()) return Outcome::kOver;  // the last line may lack a line break
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return Outcome::kLine;
}

LineReader::~LineReader() {
  if (editor_ != nullptr) el_end(editor_);
  if (history_ != nullptr) history_wend(history_);
}

LineReader::Outcome LineReader::read(const wchar_t* prompt, std::string& line) {
  return editor_ == nullptr ? read_plain(line) : read_edited(prompt, line);
}

LineReader::Message LineReader::read_message() {
  constexpr std::string_view kQuotes = "\"\"\"";
  Message message;
  std::string& text = message.text;
  const auto more = [&] {
    std::string line;
    message.verbatim = true;
    message.outcome = read(L"... ", line);
    return "\n" + line;
  };
  const auto is_line = [&] { return message.outcome == Outcome::kLine; };
  message.outcome = read(L"> ", text);
  if (!is_line()) return message;
  if (text.starts_with(kQuotes)) {
    text.erase(0, kQuotes.size());
    while (!text.ends_with(kQuotes) && is_line()) text += more();
    message.verbatim = true;
    if (message.outcome == Outcome::kOver && editor_ == nullptr)
      throw Error(input_name("-") + R"(: a message without closing """; add """)");
    if (!is_line()) return message;
    text.erase(text.size() - kQuotes.size());
    if (text.starts_with('\n')) text.erase(0, 1);
    if (text.ends_with('\n')) text.pop_back();
    return message;
  }
  while (text.ends_with('\\') && is_line()) {
    text.pop_back();
    text += more();
  }
  if (message.outcome == Outcome::kOver && editor_ == nullptr) {  // the last line of a pipe
    message.outcome = Outcome::kLine;
    text.pop_back();
  }
  return message;
}

}  // namespace lariat
