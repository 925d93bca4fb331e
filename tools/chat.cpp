#include "engine/chat.h"

#include <fmt/ostream.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <utility>

#include "engine/interrupt.h"
#include "kernels/counted.h"
#include "models/io/atomic_file.h"
#include "tools/generating.h"
#include "tools/help.h"
#include "tools/terminal.h"

namespace lariat {
namespace {

constexpr const char* kHelp =
    "/reset        forget the conversation, but for the system's message\n"
    "/system TEXT  another system's message; without a text: none\n"
    "/save FILE    put the conversation and its cache away\n"
    "/load FILE    go on with one that was put away\n"
    "/context      how long the conversation is, and how far it is stretched\n"
    "/stats        what the last answer took\n"
    "/exit         as Ctrl-D\n"
    "A line that ends with \\ goes on in the next; \"\"\" begins and ends a text of several lines. Ctrl-C "
    "stops "
    "an answer.\n";

struct ChatCommand {
  CommonOptions common;
  WritingOptions writing;
  bool json = false;
};

// Everything that lasts as long as the conversation.
struct Chat {
  const ChatCommand& command;
  const ModelSpec& spec;
  Session& session;
  Conversation conversation;
  AnswerOptions options;
  bool terminal;  // a person types and reads
  int64_t answers = 0, written = 0;
  bool proposed = false;
  bool in_line = false;  // part of an answer stands on the screen's last line
  std::optional<Answer> last{};
};

// Something that nobody asked for, on a line of its own.
void notice(const Chat& chat, const std::string& text) {
  if (!chat.command.common.quiet) say(text);
}

// The tokens that the model was trained with, where nothing carries it beyond them yet but could; else 0.
int64_t extensible_context(const Chat& chat) {
  const RopeScaling& rope = chat.session.rope();
  const bool extensible = chat.spec.has_rope() && rope.type == RopeType::kDefault;
  return extensible ? std::max<int64_t>(rope.max_position_embeddings, 0) : 0;
}

// Near the end of what the model was trained for, once: how to go on beyond it.
void propose_scaling(Chat& chat) {
  const int64_t trained = extensible_context(chat), length = std::ssize(chat.conversation.tokens());
  if (chat.proposed || trained == 0 || length < trained / 8 * 7) return;
  chat.proposed = true;
  notice(chat,
         fmt::format("the conversation has {} of the {} tokens that the model was trained with; /save it "
                     "and --load-cache it with --rope-scaling dynamic-yarn to go on beyond them",
                     length, trained));
}

void show_answer(Chat& chat, const Answer& answer, const SamplerOptions& sampler) {
  const Generation& generation = answer.generation;
  if (chat.command.json) {
    print_json({{"text", answer.text},
                {"tokens", generation.tokens},
                {"stop_reason", name_of(generation.stop_reason)},
                {"reused_tokens", answer.reused},
                {"read_tokens", answer.read},
                {"sampling", sampling_json(sampler)}});
  } else {
    std::cout << "\n" << std::flush;
  }
  chat.in_line = false;
}

void explain_end(Chat& chat, const Answer& answer) {
  const int64_t limit = chat.session.options().max_ctx;
  const Generation& generation = answer.generation;
  const bool full = generation.stop_reason == StopReason::kLength && limit > 0 &&
                    std::ssize(generation.tokens) < chat.options.generate.max_new_tokens;
  if (full) {
    notice(chat, fmt::format("the context of {} is full; /reset forgets the conversation, --ctx allows "
                             "a longer one",
                             counted(limit, "token")));
  }
  if (generation.stop_reason == StopReason::kInterrupted && chat.terminal)
    notice(chat, "stopped; what was said stays");
  propose_scaling(chat);
}

void answer(Chat& chat, const std::string& message) {
  AnswerOptions options = chat.options;
  options.generate.sampler.seed += static_cast<uint64_t>(chat.answers);  // the same message, another answer
  std::optional<Progress> progress;
  const auto on_text = [&](const std::string& piece) {
    if (progress) progress->clear();
    if (!chat.command.json) std::cout << piece << std::flush;
    chat.in_line = !chat.command.json;
    return std::cout.good();
  };
  const auto on_prefill = [&](int64_t done, int64_t total) {
    if (!progress) progress.emplace("reading", total, chat.command.common.quiet);
    if (done < total) progress->update(done);
  };
  chat.last = chat.conversation.answer(message, options, on_text, on_prefill);
  progress.reset();
  ++chat.answers;
  chat.written += std::ssize(chat.last->generation.tokens);
  show_answer(chat, *chat.last, options.generate.sampler);
  explain_end(chat, *chat.last);
}

void load(Chat& chat, const std::filesystem::path& file) {
  chat.conversation.restore(load_context(chat.session, chat.command.common.model, file), file.string());
}

void save(Chat& chat, const std::filesystem::path& file) {
  const Conversation& conversation = chat.conversation;
  save_context(chat.session, conversation.sequence(), conversation.tokens(), chat.command.common.model, file,
               conversation.note());
}

std::string describe_context(const Chat& chat) {
  const RopeScaling& rope = chat.session.rope();
  const KvCache& cache = chat.conversation.sequence().cache();
  const int64_t length = cache.length(), limit = chat.session.options().max_ctx;
  const auto or_none = [](int64_t n) { return n > 0 ? counted(n, "token") : "none"; };
  std::string text = fmt::format("length           {}, {}\n", counted(length, "token"),
                                 counted(chat.conversation.messages().size(), "message"));
  text += fmt::format("trained context  {}\n",
                      or_none(rope.original_ctx > 0 ? rope.original_ctx : rope.max_position_embeddings));
  text += fmt::format("limit            {}\n", or_none(limit));
  if (!chat.spec.has_rope()) return text;
  const double step = rope_step_length(rope, length, chat.session.options().rope_steps);
  text += fmt::format("scaling          {}\n", rope.type == RopeType::kDefault ? "none" : name_of(rope.type));
  text += fmt::format("scale            {:.4g}\n", rope_scale(rope, step));
  text += fmt::format("re-rotations     {} ({}, {:.3f} s)\n", cache.rerotations().count,
                      counted(cache.rerotations().positions, "position"), cache.rerotations().seconds);
  return text;
}

std::string describe_last_answer(const Chat& chat) {
  if (!chat.last) return "no answer yet\n";
  const auto rate = [](int64_t n, double seconds) {
    return seconds > 0 ? static_cast<double>(n) / seconds : 0.0;
  };
  const Answer& last = *chat.last;
  const Generation& generation = last.generation;
  return fmt::format("kept in the cache  {}\n", counted(last.reused, "token")) +
         fmt::format("read               {}, {:.2f} s, {:.1f} tokens/s\n", counted(last.read, "token"),
                     generation.prefill_seconds, rate(last.read, generation.prefill_seconds)) +
         fmt::format("written            {}, {:.2f} s, {:.1f} tokens/s\n",
                     counted(generation.tokens.size(), "token"), generation.decode_seconds,
                     rate(generation.decode_steps, generation.decode_seconds)) +
         fmt::format("ended by           {}\n", name_of(generation.stop_reason)) +
         fmt::format("so far             {}, {} written\n", counted(chat.answers, "answer"),
                     counted(chat.written, "token"));
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// A slash and a word of letters: "/etc/passwd" is none.
bool is_command(const std::string& line) {
  const std::string word = line.substr(0, line.find_first_of(" \t\r"));
  return word.size() > 1 && word[0] == '/' &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 1) == word.npos;
}

// False: the conversation ends. What was asked for goes to stderr, as stdout holds answers.
bool run_command(Chat& chat, const std::string& line) {
  const size_t space = line.find_first_of(" \t\r");
  const std::string name = line.substr(0, space);
  const std::string argument = space == std::string::npos ? "" : trimmed(line.substr(space));
  const auto file = [&] {
    if (argument.empty()) throw Error(name + " needs the name of a file");
    return std::filesystem::path(argument);
  };
  if (name == "/exit") return false;
  if (name == "/help") {
    std::cerr << kHelp;
  } else if (name == "/reset") {
    chat.conversation.reset();
  } else if (name == "/system") {
    chat.conversation.set_system(argument);
  } else if (name == "/save") {
    save(chat, file());
    notice(chat, fmt::format("{}: {}", argument, counted(chat.conversation.tokens().size(), "token")));
  } else if (name == "/load") {
    load(chat, file());
    notice(chat, fmt::format("{}: {}, {}", argument, counted(chat.conversation.tokens().size(), "token"),
                             counted(chat.conversation.messages().size(), "message")));
  } else if (name == "/context") {
    std::cerr << describe_context(chat);
  } else if (name == "/stats") {
    std::cerr << describe_last_answer(chat);
  } else {
    throw Error("there is no command " + name + "; /help lists them, a space before it makes it a message");
  }
  return true;
}

struct Input {
  LineReader::Outcome outcome = LineReader::Outcome::kLine;
  std::string text;
  bool verbatim = false;  // of several lines, and no command
};

// A line; on a terminal also several of them, as kHelp says.
Input read_input(LineReader& lines, bool terminal) {
  constexpr std::string_view kQuotes = "\"\"\"";
  Input input;
  const auto more = [&] {
    std::string line;
    input.verbatim = true;
    input.outcome = lines.read("... ", line);
    return line;
  };
  std::string& text = input.text;
  input.outcome = lines.read("> ", text);
  if (!terminal || input.outcome != LineReader::Outcome::kLine) return input;
  if (text.starts_with(kQuotes)) {
    text.erase(0, kQuotes.size());
    while (!text.ends_with(kQuotes) && input.outcome == LineReader::Outcome::kLine) text += "\n" + more();
    input.verbatim = true;
    if (input.outcome != LineReader::Outcome::kLine) return input;
    text.erase(text.size() - kQuotes.size());
    if (text.starts_with('\n')) text.erase(0, 1);
    if (text.ends_with("\n")) text.pop_back();
  }
  while (!input.verbatim && text.ends_with("\\")) {
    // every line but the last ends so
    do {
      text.back() = '\n';
      text += more();
    } while (text.ends_with("\\") && input.outcome == LineReader::Outcome::kLine);
  }
  return input;
}

// What helps in a conversation against an error, beside what it says itself.
std::string way_on(const Chat& chat, const Error& error) {
  if (dynamic_cast<const ContextFull*>(&error) == nullptr) return "";
  std::string text = chat.terminal ? "; /reset forgets the conversation" : "";
  const int64_t trained = extensible_context(chat), limit = chat.session.options().max_ctx;
  if (trained > 0 && limit >= trained) {
    text += fmt::format(
        "; --rope-scaling dynamic-yarn goes beyond the {} tokens that the model was trained with", trained);
  }
  return text;
}

// False: the conversation ends.
bool take_turn(Chat& chat, const Input& input) {
  try {
    if (!input.verbatim && is_command(input.text)) return run_command(chat, input.text);
    if (trimmed(input.text).empty()) return true;
    answer(chat, input.text);
  } catch (const Interrupted&) {
    if (!chat.terminal) return false;
    std::cerr << "\n";  // behind the ^C that the terminal shows
    notice(chat, "stopped before the answer began; the message is forgotten");
  } catch (const Error& e) {
    if (std::exchange(chat.in_line, false)) std::cout << "\n" << std::flush;
    if (!chat.terminal) throw Error(e.what() + way_on(chat, e));
    say("error: " + (e.what() + way_on(chat, e)));
  }
  return std::cout.good();
}

// The signal that ended it, or 0.
int converse(Chat& chat) {
  LineReader lines(chat.terminal);
  // A Ctrl-C on a terminal ends a line or an answer.
  const auto ends = [&](int signal) { return signal != 0 && (signal != SIGINT || !chat.terminal); };
  for (;;) {
    const Input input = read_input(lines, chat.terminal);
    const bool is_line = input.outcome == LineReader::Outcome::kLine;
    if (chat.terminal && !is_line) std::cerr << "\n";  // the prompt's line has no end yet
    const int before = rearm_signals(true);  // while something is done, a second one ends the program
    if (ends(before)) return before;
    if (before == SIGINT) notice(chat, "Ctrl-D or /exit ends the conversation");
    bool goes_on = input.outcome != LineReader::Outcome::kOver || before != 0;
    if (is_line && before == 0) goes_on = take_turn(chat, input);
    const int during = rearm_signals(false);
    if (ends(during)) return during;
    if (during != 0) lines.forget();
    if (!goes_on) return 0;
  }
}

void run(ChatCommand& command) {
  warn_of_escapes(command.writing, "in bash, $'\\n' is a line break and $'\\t' a tab", command.common.quiet);
  const std::filesystem::path& save_to = command.writing.save_cache;
  if (!save_to.empty()) check_writable(save_to);
  const Tokenizer tokenizer = open_tokenizer(command.common);
  const ChatTemplate chat_template = open_chat_template(command.common);
  Runtime runtime = open_runtime(command.common);
  settle_sampling(command.writing, runtime.model.spec.generation, command.common.quiet);
  // Without --ctx a conversation ends where the model is not made to go on.
  if (runtime.session.max_ctx == 0) runtime.session.max_ctx = reach_of(*runtime.session.rope).value_or(0);
  Session session(runtime.model, *runtime.backend, runtime.session);

  AnswerOptions options{command.writing.generate, command.writing.stop};
  options.generate.eos_ids = answer_end_ids(runtime.model, tokenizer, chat_template);
  options.generate.interrupted = &interrupted();
  const bool terminal = isatty(STDIN_FILENO) == 1 && !command.json;
  Chat chat{command, runtime.model.spec, session, Conversation(session, tokenizer, chat_template), options,
            terminal};
  if (!command.writing.load_cache.empty()) load(chat, command.writing.load_cache);
  if (!command.writing.system.empty()) chat.conversation.set_system(command.writing.system);
  if (terminal) notice(chat, "/help lists the commands, Ctrl-D ends the conversation");
  if (rearm_signals(false) != 0) throw Error("interrupted before the conversation began");
  const auto finish = [&] {
    rearm_signals(true);  // a file may take for ever to write
    if (!save_to.empty()) save(chat, save_to);
  };
  int signal = 0;
  try {
    signal = converse(chat);
  } catch (const std::exception&) {
    finish();
    throw;
  }
  finish();
  if (signal != 0 && !terminal)
    throw Error(fmt::format("interrupted after {}; start again with the turns that remain",
                            counted(chat.answers, "answer")));
}

}  // namespace

void add_chat_command(CLI::App& app) {
  auto command = std::make_shared<ChatCommand>();
  CLI::App& sub = *app.add_subcommand("chat", "Converse with an instruct model");
  describe(sub, kUseCommands, "lariat chat --model DIR --system \"Answer briefly.\" --temperature 0.7");
  add_model_option(sub, command->common);
  command->writing.generate.max_new_tokens = int64_t{1} << 40;
  command->writing.sampling.as_model = true;
  add_writing_options(sub, command->writing, "until the model ends its answer");
  sub.add_flag("--json", command->json, "one JSON object on stdout per answer")->group(kOutputOptions);
  add_common_options(sub, command->common);
  sub.get_option("--ctx")->description(
      "longest conversation; 0: as far as the model's positions are made to go");
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
