#include "engine/generate.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "engine/chat.h"
#include "engine/interrupt.h"
#include "engine/stop_filter.h"
#include "kernels/counted.h"
#include "models/io/atomic_file.h"
#include "models/io/text_file.h"
#include "models/text/unicode.h"
#include "tools/generating.h"
#include "tools/help.h"

namespace lariat {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{1} << 30;

struct GenerateCommand {
  CommonOptions common;
  std::optional<std::string> prompt;
  std::optional<std::filesystem::path> prompt_file;  // "-": stdin
  WritingOptions writing;
  bool chat = false, raw = false, escape = false, ignore_eos = false, json = false;
};

// A text in which \n, \t, \\, \" and \uXXXX stand for what they stand for in JSON.
std::string unescaped(const std::string& argument) {
  std::string text;  // bytes that are not UTF-8 become U+FFFD, as for the tokenizer
  Utf8Assembler characters;
  characters.push(argument, text);
  characters.finish(text);
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (text[i] == '\\' && i + 1 < text.size()) {
      quoted += text.substr(i++, 2);
    } else if (text[i] == '"' || byte < 0x20) {
      quoted += fmt::format("\\u{:04x}", byte);
    } else {
      quoted += text[i];
    }
  }
  const auto parsed = nlohmann::json::parse(quoted + "\"", nullptr, false);
  if (!parsed.is_string())
    throw UsageError("--escape: a backslash in '" + text + "' is not followed by n, t, \\, \" or uXXXX");
  return parsed.get<std::string>();
}

// Somebody may have meant what comes through a pipe, or out of a file.
bool waits_on_stdin() {
  struct stat status {};
  return ::fstat(STDIN_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode));
}

void check_usage(GenerateCommand& command) {
  WritingOptions& writing = command.writing;
  command.chat = command.chat || !writing.system.empty();
  if (command.chat && command.raw)
    throw UsageError("--raw is the prompt as it is, so it has no --chat and no --system; leave one out");
  const bool prompt = command.prompt || command.prompt_file;
  if (!prompt && (command.chat || writing.load_cache.empty()))
    throw UsageError(waits_on_stdin()
                         ? "there is nothing to continue; --prompt-file - reads it from standard input"
                         : "there is nothing to continue; give --prompt or --prompt-file");
  if (command.escape) {
    if (command.prompt) command.prompt = unescaped(*command.prompt);
    writing.system = unescaped(writing.system);
    for (std::string& stop : writing.stop) stop = unescaped(stop);
  } else {
    warn_of_escapes(writing, "add --escape", command.common.quiet);
  }
  if (!writing.save_cache.empty()) check_writable(writing.save_cache);
}

std::string prompt_text(const GenerateCommand& command) {
  if (command.prompt) return std::string(without_bom(*command.prompt, "--prompt"));
  std::string text = read_text(*command.prompt_file, kMaxPromptBytes);
  if (text.empty())
    throw Error(input_name(*command.prompt_file) + ": the prompt file is empty; put some text in it");
  return text;
}

// What a generation has come to.
struct Written {
  Generation generation;
  std::string text;
  int64_t cached = 0, prompt = 0;  // tokens that were in the cache, and that were read
  RerotationStats rerotations;
};

nlohmann::ordered_json report(const GenerateCommand& command, const Written& written,
                              const Runtime& runtime) {
  const auto rate = [](int64_t n, double seconds) {
    return seconds > 0 ? static_cast<double>(n) / seconds : 0.0;
  };
  const RopeScaling& rope = *runtime.session.rope;
  const Generation& result = written.generation;
  nlohmann::ordered_json json;
  if (!command.writing.load_cache.empty()) json["cached_tokens"] = written.cached;
  json.update({{"prompt_tokens", written.prompt},
               {"tokens", result.tokens},
               {"text", written.text},
               {"stop_reason", name_of(result.stop_reason)},
               {"sampling", sampling_json(command.writing.generate.sampler)},
               {"quantize", runtime.model.quantization()},
               {"timings",
                {{"load_s", runtime.load_seconds},
                 {"prefill_s", result.prefill_seconds},
                 {"prefill_tok_s", rate(written.prompt, result.prefill_seconds)},
                 {"decode_s", result.decode_seconds},
                 {"decode_tok_s", rate(result.decode_steps, result.decode_seconds)},
                 {"rerotation_s", written.rerotations.seconds}}},
               {"rope",
                {{"type", name_of(rope.type)},
                 {"factor", rope.factor},
                 {"rerotations", written.rerotations.count}}}});
  return json;
}

// A text that may go on beyond what the model is made for: `prompt` tokens behind `cached` others.
void warn_of_length(const GenerateCommand& command, const Runtime& runtime, int64_t cached, int64_t prompt) {
  const RopeScaling& rope = *runtime.session.rope;
  const int64_t n = cached + prompt;
  int64_t end = n + command.writing.generate.max_new_tokens;
  if (runtime.session.max_ctx > 0) end = std::min(end, runtime.session.max_ctx);
  if (const auto reach = reach_of(rope); reach && end > *reach) {
    const bool scaled = rope.type != RopeType::kDefault;
    const std::string warning =
        (cached > 0 ? "context and prompt have " : "the prompt has ") + counted(n, "token") +
        " and may grow to " + std::to_string(end) + ", and the model is made for " + std::to_string(*reach) +
        (scaled ? " with its scaling; use a larger --rope-factor"
         : !runtime.model.spec.has_rope()
             ? ""
             : " without RoPE scaling; use --rope-scaling dynamic, or yarn with --rope-factor") +
        ", or fewer --max-new-tokens";
    print_warnings({warning}, command.common.quiet);
  }
}

// One run of the program.
struct Run {
  const GenerateCommand& command;
  const Tokenizer& tokenizer;
  const Runtime& runtime;
  Session& session;
  std::optional<Progress> progress{};
  bool in_line = false;  // part of the text stands on the last line of stdout

  bool show(const std::string& piece) {
    if (progress) progress->clear();
    if (!command.json) std::cout << piece << std::flush;
    in_line = in_line || (!command.json && !piece.empty());
    return std::cout.good();
  }
  // Warns once, and after what is wrong with the prompt's tokens has been found.
  void prefilled(int64_t done, std::span<const int32_t> prompt, int64_t cached) {
    if (interrupted()) throw Error("interrupted during the prefill; nothing was generated");
    if (!progress) {
      warn_of_length(command, runtime, cached, std::ssize(prompt));
      progress.emplace("prefill", std::ssize(prompt), command.common.quiet);
    }
    progress->update(done);
  }
  SavedContext context() const {
    const std::filesystem::path& file = command.writing.load_cache;
    if (file.empty()) return {session.new_sequence(), {}, {}};
    return load_context(session, command.common.model, file);
  }
  void save(const Sequence& sequence, std::span<const int32_t> tokens, const std::string& note) const {
    const std::filesystem::path& file = command.writing.save_cache;
    if (!file.empty()) save_context(session, sequence, tokens, command.common.model, file, note);
  }
};

// A text begins once, whether the prompt, the tokenizer or the text before it says so.
void drop_second_bos(std::vector<int32_t>& prompt, const Tokenizer& tokenizer, bool begun) {
  const auto bos = tokenizer.bos_id();
  const auto first = std::find_if(prompt.begin(), prompt.end(), [&](int32_t id) { return id != bos; });
  const bool keeps = !begun && first != prompt.begin();
  prompt.erase(prompt.begin() + (keeps ? 1 : 0), first);
}

// The prompt as it is, behind the context if there is one. Without a prompt the context's last token is read
// again, as it brings the logits.
Written continue_text(Run& run, const std::optional<std::string>& text) {
  const GenerateCommand& command = run.command;
  SavedContext context = run.context();
  std::vector<int32_t>& tokens = context.tokens;
  Sequence& sequence = context.sequence;
  std::vector<int32_t> prompt;
  if (text) {
    prompt = run.tokenizer.encode(*text, tokens.empty() && run.tokenizer.adds_bos());
    drop_second_bos(prompt, run.tokenizer, !tokens.empty());
  }
  if (prompt.empty() && !tokens.empty()) {
    prompt.push_back(tokens.back());
    tokens.pop_back();
    sequence.rewind(std::ssize(tokens));
  }
  Written written;
  written.cached = std::ssize(tokens);
  written.prompt = std::ssize(prompt);
  GenerateOptions options = command.writing.generate;
  options.cached = tokens;
  // The decoder has seen all of it, so that a leading space of the first new word is kept.
  StreamDecoder decoder(run.tokenizer);
  for (const auto* ids : {&tokens, &prompt}) {
    for (const int32_t id : *ids) decoder.push(id);
  }
  StopFilter filter(command.writing.stop);
  const auto show = [&](const std::string& piece) {
    written.text += piece;
    return run.show(piece);
  };
  written.generation = generate(
      run.session, sequence, prompt, options,
      [&](int32_t id) { return show(filter.push(decoder.push(id))) && !filter.stopped(); },
      [&](int64_t done) { run.prefilled(done, prompt, written.cached); });
  show(filter.push(decoder.flush()));
  show(filter.flush());
  written.rerotations = sequence.cache().rerotations();
  if (command.writing.save_cache.empty()) return written;
  // With the last token, which nothing has read yet, unless the context is full.
  const std::vector<int32_t>& added = written.generation.tokens;
  tokens.insert(tokens.end(), prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), added.begin(), added.end());
  const int64_t most = run.session.options().max_ctx;
  if (most == 0 || std::ssize(tokens) <= most) {
    const auto unread = std::span<const int32_t>(tokens).subspan(static_cast<size_t>(sequence.length()));
    if (!unread.empty()) run.session.prefill_last(sequence, unread);
  }
  tokens.resize(static_cast<size_t>(sequence.length()));
  run.save(sequence, tokens, "");
  return written;
}

// The prompt as a user's message, in the conversation that the context holds if there is one.
Written answer_message(Run& run, const ChatTemplate& chat_template, const std::string& message) {
  const WritingOptions& writing = run.command.writing;
  Conversation conversation(run.session, run.tokenizer, chat_template);
  if (!writing.load_cache.empty()) conversation.restore(run.context(), writing.load_cache.string());
  if (!writing.system.empty()) conversation.set_system(writing.system);
  const auto on_prefill = [&](int64_t done, int64_t total) {
    const std::span<const int32_t> all = conversation.tokens();
    run.prefilled(done, all.last(static_cast<size_t>(total)), std::ssize(all) - total);
  };
  try {
    const Answer answer = conversation.answer(
        message, {writing.generate, writing.stop}, [&](const std::string& piece) { return run.show(piece); },
        on_prefill);
    run.save(conversation.sequence(), conversation.tokens(), conversation.note());
    return {answer.generation, answer.text, answer.reused, answer.read,
            conversation.sequence().cache().rerotations()};
  } catch (const Interrupted&) {
    throw Error("interrupted during the prefill; nothing was generated");
  }
}

void run(GenerateCommand& command) {
  check_usage(command);
  std::optional<std::string> text;
  if (command.prompt || command.prompt_file) text = prompt_text(command);
  const Tokenizer tokenizer = open_tokenizer(command.common);
  std::optional<ChatTemplate> chat_template;
  if (command.chat) chat_template = open_chat_template(command.common);
  Runtime runtime = open_runtime(command.common);
  settle_sampling(command.writing, runtime.model.spec.generation, command.common.quiet);
  GenerateOptions& options = command.writing.generate;
  if (!command.ignore_eos) {
    options.eos_ids = chat_template ? answer_end_ids(runtime.model, tokenizer, *chat_template)
                                    : eos_ids(runtime.model, tokenizer);
  }
  options.interrupted = &interrupted();
  Session session(runtime.model, *runtime.backend, runtime.session);
  Run one{command, tokenizer, runtime, session};
  Written written;
  try {
    written = chat_template ? answer_message(one, *chat_template, *text) : continue_text(one, text);
  } catch (const std::exception&) {
    if (one.in_line) std::cout << "\n" << std::flush;  // what is said of it begins a line
    throw;
  }
  if (command.json) {
    print_json(report(command, written, runtime));
  } else {
    std::cout << "\n";
  }
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App& sub = *app.add_subcommand("generate", "Continue a prompt");
  describe(sub, kUseCommands, "lariat generate --model DIR --prompt \"Once upon a time\" --temperature 0.7");
  set_usage(
      sub,
      "--model DIR (--prompt TEXT | --prompt-file FILE) [options]\n--model DIR --load-cache FILE [options]");
  add_model_option(sub, command->common);
  auto* source = sub.add_option_group("prompt", "what to continue");
  source->add_option("-p,--prompt", command->prompt, "the text itself");
  source->add_option("-f,--prompt-file", command->prompt_file, "a file with the text; -: standard input")
      ->type_name("FILE");
  source->require_option(0, 1);  // --load-cache is something to continue, too
  sub.add_flag("--chat", command->chat, "the prompt is a user's message, put into the model's chat template");
  sub.add_flag("--raw", command->raw, "the prompt as it is, which is the default");
  sub.add_flag(
      "--escape", command->escape,
      "in --prompt, --system and --stop, \\n, \\t, \\\\, \\\" and \\uXXXX are what they are in JSON");
  add_writing_options(sub, command->writing);
  sub.add_flag("--ignore-eos", command->ignore_eos, "go on after the end-of-text token");
  sub.add_flag("--json", command->json, "one JSON object on stdout")->group(kOutputOptions);
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
