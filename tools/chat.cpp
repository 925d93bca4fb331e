#include <fmt/ostream.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <utility>

#include "engine/interrupt.h"
#include "kernels/counted.h"
#include "models/io/text_file.h"
#include "tools/chat.h"
#include "tools/help.h"
#include "tools/signals.h"
#include "tools/terminal.h"

namespace lariat {
namespace {

// Trained context if RoPE scaling could extend it; else 0.
int64_t extensible_context(const Chat& chat) {
  const RopeScaling& rope = chat.cached.session.rope();
  const bool extensible = chat.cached.session.model().spec.has_rope() && rope.type == RopeType::kDefault;
  return extensible ? std::max<int64_t>(rope.max_position_embeddings, 0) : 0;
}

void propose_scaling(Chat& chat) {
  const int64_t trained = extensible_context(chat), length = std::ssize(chat.cached.context.tokens);
  if (chat.proposed || trained == 0 || length < trained / 8 * 7) return;
  chat.proposed = true;
  notice(chat, fmt::format("the conversation has {} of {} trained tokens; /save it "
                           "and --load-cache it with --rope-scaling dynamic-yarn to continue",
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
                {"sampling", sampling_json(sampler)},
                {"timings", timings_json(answer)}});
  } else {
    std::cout << "\n" << std::flush;
  }
  chat.in_line = false;
}

void explain_end(Chat& chat, const Answer& answer) {
  const int64_t limit = chat.cached.session.options().max_ctx;
  const Generation& generation = answer.generation;
  const bool full = generation.stop_reason == StopReason::kLength && limit > 0 &&
                    std::ssize(generation.tokens) < chat.options.generate.max_new_tokens;
  if (full) {
    notice(chat, fmt::format("the context of {} is full; /reset forgets the conversation, --ctx allows "
                             "a longer one",
                             counted(limit, "token")));
  }
  if (generation.stop_reason == StopReason::kInterrupted && chat.terminal)
    notice(chat, "stopped; the answer so far is kept");
  propose_scaling(chat);
}

void answer(Chat& chat, const std::string& message) {
  AnswerOptions options = chat.options;
  options.generate.sampler.seed += static_cast<uint64_t>(chat.answers);  // varies repeated answers
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
  chat.last = chat.cached.answer(message, options, on_text, on_prefill);
  progress.reset();
  ++chat.answers;
  chat.written += std::ssize(chat.last->generation.tokens);
  show_answer(chat, *chat.last, options.generate.sampler);
  explain_end(chat, *chat.last);
}

std::string way_on(const Chat& chat, const Error& error) {
  if (dynamic_cast<const ContextFull*>(&error) == nullptr) return "";
  std::string text = chat.terminal ? "; /reset forgets the conversation" : "";
  const int64_t trained = extensible_context(chat), limit = chat.cached.session.options().max_ctx;
  if (trained > 0 && limit >= trained) {
    text += fmt::format("; use --rope-scaling dynamic-yarn beyond the {} trained tokens", trained);
  }
  return text;
}

// Returns false at the end of the conversation.
bool take_turn(Chat& chat, const LineReader::Message& input) {
  try {
    if (!input.verbatim && is_command(input.text)) return run_command(chat, input.text);
    if (trimmed(input.text).empty()) return true;
    if (chat.terminal && input.text.find("\uFFFD") != std::string::npos)
      throw Error("message: holds U+FFFD (bytes that are not UTF-8); set the terminal to UTF-8");
    answer(chat, input.text);
  } catch (const Interrupted&) {
    if (!chat.terminal) return false;
    std::cerr << "\n";  // after the terminal's ^C
    notice(chat, "stopped before the answer began; the message is forgotten");
  } catch (const Error& e) {
    if (std::exchange(chat.in_line, false)) std::cout << "\n" << std::flush;
    if (!chat.terminal) throw Error(e.what() + way_on(chat, e));
    say("error: " + (e.what() + way_on(chat, e)));
  }
  return std::cout.good();
}

// Returns the signal that ended the conversation, or 0.
int converse(Chat& chat) {
  LineReader lines(chat.terminal);
  // On a terminal, Ctrl-C only ends a line or an answer.
  const auto ends = [&](int signal) { return signal != 0 && (signal != SIGINT || !chat.terminal); };
  for (;;) {
    const LineReader::Message input = lines.read_message();
    const bool is_line = input.outcome == LineReader::Outcome::kLine;
    if (chat.terminal && !is_line) std::cerr << "\n";  // the prompt's line is not terminated
    const int before = rearm_signals(true);            // a second signal during a command ends the program
    if (ends(before)) return before;
    if (before == SIGINT) notice(chat, "Ctrl-D or /exit ends the conversation");
    bool again = input.outcome != LineReader::Outcome::kOver || before != 0;
    if (is_line && before == 0) again = take_turn(chat, input);
    const int during = rearm_signals(false);
    if (ends(during)) return during;
    if (during != 0) lines.forget();
    if (!again) return 0;
  }
}

void run(ChatCommand& command) {
  warn_of_escapes(command.writing, "", "in bash, $'\\n' is a line break and $'\\t' a tab",
                  command.common.quiet);
  const bool terminal = isatty(STDIN_FILENO) == 1 && !command.json;
  if (!terminal) standard_input();  // source of the messages
  const std::filesystem::path& save_to = command.writing.save_cache;
  begin_context(command.writing.load_cache.file, save_to, command.common.quiet);
  Engine engine = open_engine(command.common, Reads::kChat);
  choose_sampling(command.writing, engine.model.spec.generation, command.common);
  const auto draft = open_draft(command.writing, command.common, engine);
  // Without --ctx, the model and its scaling limit a conversation.
  if (engine.session_options.max_ctx == 0)
    engine.session_options.max_ctx = reach_of(*engine.session_options.rope).value_or(0);
  Session session = engine.session();

  AnswerOptions options = command.writing;
  options.generate.eos_ids = engine.eos_ids();
  options.generate.interrupted = &interrupted();
  Chat chat{command, CachedConversation(session, Conversation(*engine.tokenizer, *engine.chat)), options,
            terminal};
  const ContextOptions& from = command.writing.load_cache;
  chat.cached.restore(load_contexts(session, *engine.tokenizer, from), from.file.string());
  if (!command.writing.system.empty()) chat.cached.text.set_system(command.writing.system);
  if (terminal) notice(chat, "/help lists the commands, Ctrl-D ends the conversation");
  if (rearm_signals(false) != 0) throw Error("interrupted before the conversation began");
  const auto finish = [&] {
    rearm_signals(true);  // writing a file may block forever
    if (!save_to.empty()) chat.cached.save(save_to);
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
    throw Error(fmt::format("interrupted after {}; restart with the remaining turns",
                            counted(chat.answers, "answer")));
}

}  // namespace

void add_chat_command(CLI::App& app) {
  auto command = std::make_shared<ChatCommand>();
  CLI::App& sub = add_command(app, "chat", "Converse with an instruct model", kUseCommands,
                              "lariat chat --model DIR --system \"Answer briefly.\" --temperature 0.7");
  add_model_option(sub, command->common);
  command->writing.generate.max_new_tokens = int64_t{1} << 40;
  command->writing.sampling.as_model = true;
  add_writing_options(sub, command->writing, "until the model ends its answer");
  add_template_var_option(sub, command->common);
  sub.add_flag("--json", command->json, "one JSON object on stdout per answer")->group(kOutputOptions);
  add_common_options(sub, command->common);
  sub.get_option("--ctx")->description("maximum conversation length; 0: the model's limit");
  sub.callback([command, &sub] {
    command->files = files_of(sub);
    run(*command);
  });
}

}  // namespace lariat
