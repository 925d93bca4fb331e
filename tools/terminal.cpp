#include "tools/terminal.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <utility>

#include "models/io/text_file.h"
#include "models/text/unicode.h"
#include "tools/common.h"

namespace lariat {
namespace {

constexpr int kHistory = 1000;  // lines
// A signal ends poll() where it reaches this thread; where another thread takes it, interrupted() is looked
// at again after this time.
constexpr int kPollMilliseconds = 200;

std::atomic<bool> g_redraw{false};  // the window has another size, or the program was stopped and goes on

std::wstring wide(std::string_view text) {
  std::wstring result;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    result += step.kind == Utf8Step::kChar ? static_cast<wchar_t>(step.value) : L'\uFFFD';
    at += step.kind == Utf8Step::kIncomplete ? text.size() - at : step.length;
  }
  return result;
}

std::string narrow(std::wstring_view text) {
  std::string result;
  for (const wchar_t c : text) append_utf8(result, static_cast<char32_t>(c));
  return result;
}

}  // namespace

struct LineReader::State {
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  std::wstring prompt;
  Utf8Assembler characters;
  std::string input;  // valid UTF-8 that was not used yet
  bool begun = false, ended = false;
  bool typed_ahead = false;  // what comes next was typed before the terminal was in libedit's mode

  void open_editor();
  // Waits for input; false: a signal came, or the input has ended.
  bool fill();
  void redraw() const;
  Outcome read_edited(std::string& line);
  Outcome read_plain(std::string& line);

  static int read_character(EditLine* editor, wchar_t* c);
  static wchar_t* show_prompt(EditLine* editor);
};

bool LineReader::State::fill() {
  while (input.empty() && !ended) {
    if (interrupted()) return false;
    if (editor != nullptr && g_redraw.exchange(false)) redraw();
    pollfd in{STDIN_FILENO, POLLIN, 0};
    if (::poll(&in, 1, kPollMilliseconds) <= 0) continue;
    char bytes[1 << 12];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    ended = n <= 0;
    // Ctrl-D, as the terminal keeps it while it is in its own mode.
    if (!ended && std::exchange(typed_ahead, false)) std::replace(bytes, bytes + n, '\0', '\x04');
    if (ended) {
      characters.finish(input);
    } else {
      std::string_view text(bytes, static_cast<size_t>(n));
      if (!std::exchange(begun, true) && editor == nullptr) text = without_bom(text, input_name("-"));
      characters.push(text, input);
    }
  }
  return !input.empty();
}

void LineReader::State::redraw() const {
  el_resize(editor);
  el_wset(editor, EL_PREP_TERM, 0);  // a shell has set the terminal as it likes it
  el_wset(editor, EL_PREP_TERM, 1);
  el_wset(editor, EL_REFRESH);
}

// libedit's source of characters: 1, or -1 for none.
int LineReader::State::read_character(EditLine* editor, wchar_t* c) {
  void* data = nullptr;
  el_wget(editor, EL_CLIENTDATA, &data);
  State& state = *static_cast<State*>(data);
  if (!state.fill()) return -1;
  const Utf8Step step = utf8_step(state.input, 0);
  *c = static_cast<wchar_t>(step.value);
  state.input.erase(0, step.length);
  return 1;
}

wchar_t* LineReader::State::show_prompt(EditLine* editor) {
  void* data = nullptr;
  el_wget(editor, EL_CLIENTDATA, &data);
  return static_cast<State*>(data)->prompt.data();
}

void LineReader::State::open_editor() {
  // libedit writes characters in the locale's encoding, and a bare machine has none but C.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  editor = el_init("lariat", stdin, isatty(STDOUT_FILENO) == 1 ? stdout : stderr, stderr);
  history = history_winit();
  if (editor == nullptr || history == nullptr) throw Error("the terminal cannot be opened; use a pipe");
  HistEventW event;
  history_w(history, &event, H_SETSIZE, kHistory);
  history_w(history, &event, H_SETUNIQUE, 1);  // the same line twice in a row is kept once
  el_wset(editor, EL_CLIENTDATA, this);
  el_wset(editor, EL_PROMPT, show_prompt);
  el_wset(editor, EL_GETCFN, read_character);
  el_wset(editor, EL_EDITOR, L"emacs");
  el_wset(editor, EL_HIST, history_w, history);
  el_source(editor, nullptr);
  for (const int signal : {SIGWINCH, SIGCONT}) std::signal(signal, [](int) { g_redraw = true; });
}

LineReader::Outcome LineReader::State::read_edited(std::string& line) {
  std::fflush(nullptr);
  g_redraw = false;
  const auto on_quit = std::signal(SIGQUIT, [](int) { std::raise(SIGTERM); });  // gives the terminal back
  el_wset(editor, EL_PREP_TERM, 1);  // before the prompt: what is typed at its sight is not echoed twice
  pollfd in{STDIN_FILENO, POLLIN, 0};
  typed_ahead = ::poll(&in, 1, 0) == 1;
  int length = 0;
  const wchar_t* text = el_wgets(editor, &length);
  std::signal(SIGQUIT, on_quit);
  if (interrupted()) {
    input.clear();
    return Outcome::kSignal;
  }
  if (text == nullptr || length <= 0) return Outcome::kOver;
  HistEventW event;
  std::wstring_view read(text, static_cast<size_t>(length));
  if (read.back() == L'\n') read.remove_suffix(1);
  if (!read.empty()) history_w(history, &event, H_ENTER, std::wstring(read).c_str());
  line = narrow(read);
  return Outcome::kLine;
}

LineReader::Outcome LineReader::State::read_plain(std::string& line) {
  line.clear();
  bool whole = false;
  while (!whole && fill()) {
    const size_t end = input.find('\n');
    whole = end != std::string::npos;
    line += input.substr(0, end);
    input.erase(0, whole ? end + 1 : end);
  }
  if (!whole && interrupted()) return Outcome::kSignal;
  if (!whole && line.empty()) return Outcome::kOver;  // a last line may lack its end
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return Outcome::kLine;
}

LineReader::LineReader(bool edited) : state_(std::make_unique<State>()) {
  if (edited) state_->open_editor();
}

LineReader::~LineReader() {
  if (state_->editor != nullptr) el_end(state_->editor);
  if (state_->history != nullptr) history_wend(state_->history);
}

void LineReader::forget() { state_->input.clear(); }

LineReader::Outcome LineReader::read(const std::string& prompt, std::string& line) {
  if (state_->editor == nullptr) return state_->read_plain(line);
  state_->prompt = wide(prompt);
  return state_->read_edited(line);
}

LineReader::Message LineReader::read_message() {
  constexpr std::string_view kQuotes = "\"\"\"";
  Message message;
  std::string& text = message.text;
  const auto more = [&] {
    std::string line;
    message.verbatim = true;
    message.outcome = read("... ", line);
    return "\n" + line;
  };
  const auto goes_on = [&] { return message.outcome == Outcome::kLine; };
  message.outcome = read("> ", text);
  if (state_->editor == nullptr || !goes_on()) return message;
  if (text.starts_with(kQuotes)) {
    text.erase(0, kQuotes.size());
    while (!text.ends_with(kQuotes) && goes_on()) text += more();
    message.verbatim = true;
    if (!goes_on()) return message;
    text.erase(text.size() - kQuotes.size());
    if (text.starts_with('\n')) text.erase(0, 1);
    if (text.ends_with('\n')) text.pop_back();
    return message;
  }
  while (text.ends_with('\\') && goes_on()) {
    text.pop_back();
    text += more();
  }
  return message;
}

}  // namespace lariat
