#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iostream>

#include "engine/contexts/memory_check.h"
#include "engine/interrupt.h"
#include "engine/text/chat.h"
#include "kernels/counted.h"
#include "models/io/text_file.h"
#include "models/text/unicode.h"
#include "tools/generating.h"
#include "tools/help.h"
#include "tools/json_lines.h"
#include "tools/signals.h"

namespace lariat {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{1} << 30;

struct GenerateCommand {
  CommonOptions common;
  std::optional<std::string> prompt;
  std::optional<std::filesystem::path> prompt_file, prompts;  // "-": stdin
  WritingOptions writing;
  std::optional<int64_t> first_tokens;
  bool chat = false, raw = false, escape = false, ignore_eos = false, json = false;
};

// Input from a pipe or a file may be meant as the prompt.
bool waits_on_stdin() {
  struct stat status {};
  return ::fstat(STDIN_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode));
}

void check_usage(GenerateCommand& command) {
  WritingOptions& writing = command.writing;
  begin_context(writing.load_cache.file, writing.save_cache, command.common.quiet);
  command.chat = command.chat || !writing.system.empty();
  if (command.chat && command.raw) throw UsageError("--raw: excludes --chat and --system; remove one");
  if (!command.chat && !command.common.open.template_variables.empty())
    throw UsageError("--template-var: needs a chat template; add --chat");
  if (command.first_tokens && command.chat)
    throw UsageError("--first-tokens: excludes --chat and --system; remove one");
  if (writing.generate.logprobs && !command.json && !command.prompts)
    throw UsageError("--logprobs: needs JSON output; add --json");
  if (command.prompts && (!writing.save_cache.empty() || (command.chat && !writing.load_cache.empty())))
    throw UsageError("--prompts: excludes --save-cache, and --load-cache with --chat; remove them");
  const bool prompt = command.prompt || command.prompt_file || command.prompts;
  if (!prompt && (command.chat || writing.load_cache.empty()))
    throw UsageError(waits_on_stdin() ? "--prompt: missing; give --prompt-file - for standard input"
                                      : "--prompt: missing; give --prompt or --prompt-file");
  if (command.escape) {
    if (command.prompt) command.prompt = unescaped(*command.prompt);
    writing.system = unescaped(writing.system);
    for (std::string& stop : writing.stop) stop = unescaped(stop);
  } else {
    warn_of_escapes(writing, command.prompt.value_or(""), "add --escape", command.common.quiet);
  }
}

std::string prompt_text(const GenerateCommand& command) {
  if (command.prompt) return std::string(without_bom(*command.prompt, "--prompt"));
  const std::string name = input_name(*command.prompt_file);
  std::string text = read_text(*command.prompt_file, kMaxPromptBytes);
  if (text.ends_with('\n')) text.erase(text.size() - (text.ends_with("\r\n") ? 2 : 1));
  if (text.empty()) throw Error(name + ": the prompt file is empty; put some text in it");
  return text;
}

nlohmann::ordered_json answer_json(const GenerateCommand& command, const Answer& written) {
  const Generation& result = written.generation;
  nlohmann::ordered_json json = {{"prompt_tokens", written.read},
                                 {"tokens", result.tokens},
                                 {"text", written.text},
                                 {"stop_reason", name_of(result.stop_reason)}};
  if (command.writing.generate.lookup > 0)
    json["lookup"] = {{"proposed", result.proposed}, {"accepted", result.accepted}};
  for (size_t i = 0; i < result.logprobs.size(); ++i) {
    const TokenScore& score = result.logprobs[i];
    json["logprobs"].push_back(
        {{"token", result.tokens[i]}, {"logprob", score.logprob}, {"top", to_json(score.top)}});
  }
  return json;
}

nlohmann::ordered_json report(const GenerateCommand& command, const Engine& engine, const Answer& written,
                              const RerotationStats& rerotations) {
  const RopeScaling& rope = *engine.session_options.rope;
  nlohmann::ordered_json json, timings = {{"load_s", engine.load_seconds}};
  if (!command.writing.load_cache.empty()) json["cached_tokens"] = written.reused;
  timings.update(timings_json(written));
  timings["rerotation_s"] = rerotations.seconds;
  json.update(answer_json(command, written));
  json.update(
      {{"sampling", sampling_json(command.writing.generate.sampler)},
       {"device", engine.backend->description()},
       {"quantize", engine.model.quantization()},
       {"timings", timings},
       {"rope",
        {{"type", name_of(rope.type)}, {"factor", rope.factor}, {"rerotations", rerotations.count}}}});
  return json;
}

// `prompt` tokens follow `cached` others.
void warn_of_length(const GenerateCommand& command, const Engine& engine, int64_t cached, int64_t prompt) {
  const RopeScaling& rope = *engine.session_options.rope;
  const int64_t n = cached + prompt, most = engine.session_options.max_ctx;
  int64_t end = n + command.writing.generate.max_new_tokens;
  if (engine.session_options.fixed_ctx && n <= most && end > most)
    print_warnings(
        {fmt::format("the text may reach {} and ends at {}, where the model's learned positions end; "
                     "use fewer --max-new-tokens",
                     counted(end, "token"), most)},
        command.common.quiet);
  if (most > 0) end = std::min(end, most);
  const auto reach = reach_of(rope);
  if (!reach || end <= *reach) return;
  const char* scaling = rope.type != RopeType::kDefault ? " with its scaling; use a larger --rope-factor"
                        : !engine.model.spec.has_rope()
                            ? ""
                            : " without RoPE scaling; use --rope-scaling dynamic, or "
                              "yarn with --rope-factor";
  print_warnings({fmt::format("{} {} and may grow to {}, and the model is made for {}{}, or fewer "
                              "--max-new-tokens",
                              cached > 0 ? "context and prompt have" : "the prompt has", counted(n, "token"),
                              end, *reach, scaling)},
                 command.common.quiet);
}

struct Screen {
  const GenerateCommand& command;
  const Engine& engine;
  std::optional<Progress> progress{};
  bool in_line = false;  // the last line of stdout holds part of the text

  ~Screen() {  // an error message starts a new line
    if (in_line && std::uncaught_exceptions() > 0) std::cout << "\n" << std::flush;
  }
  bool show(const std::string& piece) {
    if (progress) progress->clear();
    if (!command.json) std::cout << piece << std::flush;
    in_line = in_line || !command.json;
    return std::cout.good();
  }
  // Warns once, after the prompt's tokens are checked.
  void prefilled(int64_t done, int64_t prompt, int64_t cached) {
    if (!progress) {
      warn_of_length(command, engine, cached, prompt);
      progress.emplace("prefill", prompt, command.common.quiet);
    }
    progress->update(done);
  }
};

// Continues the prompt verbatim, or answers a message in the saved conversation.
void write(const GenerateCommand& command, const Engine& engine, const std::optional<std::string>& text) {
  const WritingOptions& writing = command.writing;
  Session session = engine.session();
  SavedContext context = load_contexts(session, *engine.tokenizer, writing.load_cache);
  std::optional<CachedConversation> conversation;
  if (command.chat) {
    conversation.emplace(session, Conversation(*engine.tokenizer, *engine.chat));
    conversation->restore(std::move(context), writing.load_cache.file.string());
  }
  Screen screen{command, engine};
  const auto on_text = [&](const std::string& piece) { return screen.show(piece); };
  Answer answer;
  if (conversation) {
    if (!writing.system.empty()) conversation->text.set_system(writing.system);
    answer = conversation->answer(*text, writing, on_text, [&](int64_t done, int64_t prompt) {
      screen.prefilled(done, prompt, std::ssize(conversation->context.tokens) - prompt);
    });
  } else {
    std::vector<int32_t> tokens = context.tokens;
    if (text) tokens = prompt_tokens(tokens, *engine.tokenizer, *text, command.first_tokens);
    continue_context(session, *engine.tokenizer, context, std::move(tokens), writing, /*continues=*/true,
                     answer, on_text,
                     [&](int64_t done, int64_t prompt) { screen.prefilled(done, prompt, answer.reused); });
  }
  // NOLINTNEXTLINE(bugprone-use-after-move): where it was moved, the conversation has it
  const auto& [sequence, tokens, note] = conversation ? conversation->context : context;
  const RerotationStats rerotations = sequence.cache().rerotations();
  if (!writing.save_cache.empty()) {
    if (!conversation) prefill_rest(session, context);
    save_context(session, sequence, tokens, writing.save_cache,
                 conversation ? conversation->text.note() : "");
    if (!command.common.quiet)
      say(fmt::format("{}: {} saved; --load-cache continues from them", writing.save_cache.string(),
                      counted(sequence.length(), "token")));
  }
  if (command.json) print_json(report(command, engine, answer, rerotations));
}

// A text, or chat messages with --chat, after the context.
std::vector<int32_t> line_tokens(const GenerateCommand& command, const Engine& engine,
                                 std::span<const int32_t> context, const JsonFields& line) {
  const nlohmann::json* const given = line.find("messages");
  if (given != nullptr && !command.chat) line.fail("messages", "needs the chat template; add --chat");
  if (!command.chat)
    return prompt_tokens(context, *engine.tokenizer, line.need_string("prompt"), command.first_tokens);
  nlohmann::ordered_json messages =
      given != nullptr ? parse_messages(given->dump(), line.file())
                       : with_system({{{"role", "user"}, {"content", line.need_string("prompt")}}}, "");
  if (!command.writing.system.empty()) {
    if (has_system(messages))
      line.fail("messages", "begin with a system message, and --system gives another; remove one");
    messages = with_system(messages, command.writing.system);
  }
  return engine.tokenizer->encode(engine.chat->render(messages, true), false);
}

void answer_prompts(const GenerateCommand& command, const Engine& engine) {
  const WritingOptions& writing = command.writing;
  Session session = engine.session();
  const SavedContext before = load_contexts(session, *engine.tokenizer, writing.load_cache);
  const int64_t cached = std::ssize(before.tokens);
  const auto start = Stopwatch::now();
  std::vector<std::vector<int32_t>> prompts;
  int64_t longest = 0, read = 0, written = 0;
  const auto read_line = [&](const JsonFields& line) {
    std::vector<int32_t> tokens = line_tokens(command, engine, before.tokens, line);
    check_prompt(std::span(tokens).subspan(before.tokens.size()));
    check_length(session.options(), std::ssize(tokens));
    longest = std::max(longest, std::ssize(tokens));
    prompts.push_back(std::move(tokens));
  };
  const auto answer = [&] {
    if (read == 0) warn_of_length(command, engine, cached, longest - cached);
    std::vector<nlohmann::ordered_json> answers;
    for (const Answer& text :
         write_texts(session, *engine.tokenizer, before, prompts, writing, !command.chat)) {
      read += text.read;
      written += std::ssize(text.generation.tokens);
      answers.push_back(answer_json(command, text));
    }
    prompts.clear();
    return answers;
  };
  const auto summary = [&](int64_t lines) {
    return fmt::format("{}: {} read, {} written in {:.1f} s", counted(lines, "line"), counted(read, "token"),
                       written, seconds_since(start));
  };
  // Batches of up to 8 rows are bitwise identical to single rows (Backend::linear).
  answer_lines(*command.prompts, command.common.quiet, {8, "prompt messages", read_line, answer, summary});
}

void run(GenerateCommand& command) {
  check_usage(command);
  std::optional<std::string> text;
  if (command.prompt || command.prompt_file) text = prompt_text(command);
  const Engine engine = open_engine(command.common, command.chat ? Reads::kChat : Reads::kText);
  choose_sampling(command.writing, engine.model.spec.generation, command.common);
  const auto draft = open_draft(command.writing, command.common, engine);
  GenerateOptions& options = command.writing.generate;
  if (!command.ignore_eos) options.eos_ids = engine.eos_ids();
  options.interrupted = &interrupted();
  if (command.prompts) return answer_prompts(command, engine);
  try {
    write(command, engine, text);
  } catch (const Interrupted&) {
    throw Error("interrupted during the prefill; no text was generated");
  }
  if (!command.json) std::cout << "\n";
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App& sub = add_command(app, "generate", "Continue a prompt", kUseCommands,
                              "lariat generate --model DIR --prompt \"Once upon a time\" --temperature 0.7");
  set_usage(
      sub,
      "--model DIR (--prompt TEXT | --prompt-file FILE) [options]\n--model DIR --load-cache FILE [options]\n"
      "--model DIR --prompts FILE [options]");
  add_model_option(sub, command->common);
  auto* source = sub.add_option_group("prompt", "what to continue");
  source->add_option("-p,--prompt", command->prompt, "prompt text");
  source
      ->add_option("-f,--prompt-file", command->prompt_file,
                   "prompt file, without a final line break; -: standard input")
      ->type_name("FILE");
  source
      ->add_option("--prompts", command->prompts,
                   "JSON lines: \"prompt\", or \"messages\" with --chat; -: standard input")
      ->type_name("FILE");
  source->require_option(0, 1);  // --load-cache alone can be continued
  sub.add_flag("--chat", command->chat, "apply the chat template to the prompt");
  sub.add_flag("--raw", command->raw, "use the prompt verbatim (the default)");
  sub.add_flag("--escape", command->escape, "JSON escapes such as \\n in --prompt, --system, --stop");
  sub.add_option("--first-tokens", command->first_tokens, "use only the first N prompt tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add_writing_options(sub, command->writing);
  add_template_var_option(sub, command->common);
  sub.add_flag("--ignore-eos", command->ignore_eos, "continue after the end-of-text token");
  sub.add_option("--logprobs", command->writing.generate.logprobs,
                 "JSON log-probabilities of new tokens and the top N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->group(kOutputOptions);
  sub.add_flag("--json", command->json, "one JSON object on stdout")->group(kOutputOptions);
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
