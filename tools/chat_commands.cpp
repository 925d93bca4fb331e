#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "kernels/counted.h"
#include "tools/chat.h"

namespace lariat {
namespace {

std::string describe_context(const Chat& chat) {
  const RopeScaling& rope = chat.cached.session.rope();
  const KvCache& cache = chat.cached.context.sequence.cache();
  const int64_t length = cache.length(), limit = chat.cached.session.options().max_ctx;
  const auto or_none = [](int64_t n) { return n > 0 ? counted(n, "token") : "none"; };
  std::string text = fmt::format("length           {}, {}\n", counted(length, "token"),
                                 counted(chat.cached.text.messages().size(), "message"));
  text += fmt::format("trained context  {}\n",
                      or_none(rope.original_ctx > 0 ? rope.original_ctx : rope.max_position_embeddings));
  text += fmt::format("limit            {}\n", or_none(limit));
  if (!chat.cached.session.model().spec.has_rope()) return text;
  const double step = rope_step_length(rope, length, chat.cached.session.options().rope_steps);
  text += fmt::format("scaling          {}\n", rope.type == RopeType::kDefault ? "none" : name_of(rope.type));
  text += fmt::format("scale            {:.4g}\n", rope_scale(rope, step));
  text += fmt::format("re-rotations     {} ({}, {:.3f} s)\n", cache.rerotations().count,
                      counted(cache.rerotations().positions, "position"), cache.rerotations().seconds);
  return text;
}

std::string describe_last_answer(const Chat& chat) {
  if (!chat.last) return "no answer yet\n";
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

std::string size_of(const Chat& chat) { return counted(chat.cached.context.tokens.size(), "token"); }

struct Command {
  std::string_view name, argument, meaning;
  void (*run)(Chat& chat, const std::string& argument);
};

// stdout is reserved for answers.
const Command kCommands[] = {
    {"/reset", "", "forget all messages except the system message",
     [](Chat& chat, const std::string&) { chat.cached.reset(); }},
    {"/system", "TEXT", "set the system message; without TEXT: none",
     [](Chat& chat, const std::string& text) { chat.cached.text.set_system(text); }},
    {"/save", "FILE", "save the conversation and its KV cache",
     [](Chat& chat, const std::string& file) {
       CommandFiles files = chat.command.files;
       files.outputs = {{"/save " + file, file}};
       check_outputs(files);
       chat.cached.save(file);
       notice(chat, fmt::format("{}: {}", file, size_of(chat)));
     }},
    {"/load", "FILE", "continue a saved conversation",
     [](Chat& chat, const std::string& file) {
       chat.cached.restore(load_context(chat.cached.session, file), file);
       notice(chat, fmt::format("{}: {}, {}", file, size_of(chat),
                                counted(chat.cached.text.messages().size(), "message")));
     }},
    {"/context", "", "show the conversation's length and RoPE scale",
     [](Chat& chat, const std::string&) { std::cerr << describe_context(chat); }},
    {"/stats", "", "show statistics of the last answer",
     [](Chat& chat, const std::string&) { std::cerr << describe_last_answer(chat); }},
    {"/exit", "", "as Ctrl-D", nullptr},
};

void print_help() {
  for (const Command& command : kCommands)
    std::cerr << fmt::format("{:<14}{}\n", fmt::format("{} {}", command.name, command.argument),
                             command.meaning);
  std::cerr
      << "A line that ends with \\ continues in the next; \"\"\" begins and ends a text of several lines. "
         "Ctrl-C stops an answer.\n";
}

}  // namespace

void notice(const Chat& chat, const std::string& text) {
  if (!chat.command.common.quiet) say(text);
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

bool is_command(const std::string& line) {
  const std::string word = line.substr(0, line.find_first_of(" \t\r"));
  return word.size() > 1 && word[0] == '/' &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 1) == word.npos;
}

bool run_command(Chat& chat, const std::string& line) {
  const size_t space = line.find_first_of(" \t\r");
  const std::string name = line.substr(0, space);
  if (name == "/help") {
    print_help();
    return true;
  }
  const auto* found = std::ranges::find(kCommands, name, &Command::name);
  if (found == std::end(kCommands))
    throw Error("command " + name + ": unknown; see /help, or start a message with a space");
  const std::string argument = space == std::string::npos ? "" : trimmed(line.substr(space));
  if (found->argument == "FILE" && argument.empty())
    throw Error(name + ": the file is missing; add its name");
  if (found->run != nullptr) found->run(chat, argument);
  return found->run != nullptr;
}

}  // namespace lariat
