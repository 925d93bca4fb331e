#include <fmt/ranges.h>

#include <iostream>

#include "engine/eval/measure/token_source.h"
#include "models/files/model_files.h"
#include "models/io/text_file.h"
#include "models/load/open_files.h"
#include "models/text/chat_template.h"
#include "models/text/unicode.h"
#include "tools/commands.h"
#include "tools/help.h"
#include "tools/options.h"

namespace lariat {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;
constexpr uint64_t kMaxMessagesBytes = uint64_t{64} << 20;

struct TokenizeCommand {
  CommonOptions common;
  std::optional<std::string> text;
  std::filesystem::path file, messages, tokens_file;
  std::string tokens;
  std::optional<int64_t> first_tokens;
  bool no_bos = false, no_generation_prompt = false, json = false;
};

Tokenizer open_tokenizer(const CommonOptions& options, const ModelFiles& files) {
  Tokenizer tokenizer = Tokenizer::load(files.texts);
  print_warnings(tokenizer.warnings(), options.quiet);
  return tokenizer;
}

// The template writes special tokens and the BOS.
void tokenize_messages(const TokenizeCommand& command) {
  const ModelFiles files = open_files(command.common.model);
  const Tokenizer tokenizer = open_tokenizer(command.common, files);
  const auto chat_template =
      ChatTemplate::load(files.texts, tokenizer, command.common.open.template_variables);
  if (!chat_template) {
    throw Error(command.common.model.string() +
                ": no chat template in chat_template.jinja, tokenizer_config.json "
                "or the GGUF key tokenizer.chat_template; use --text or --file");
  }
  print_warnings(chat_template->warnings(), command.common.quiet);
  const auto messages =
      parse_messages(read_text(command.messages, kMaxMessagesBytes), input_name(command.messages));
  const std::string text = chat_template->render(messages, !command.no_generation_prompt);
  const std::vector<int32_t> tokens = tokenizer.encode(text, false);
  if (command.json) {
    print_json({{"text", text}, {"tokens", tokens}});
  } else {
    std::cout << fmt::format("{}\n{}\n", text, fmt::join(tokens, ","));
  }
}

void tokenize(const TokenizeCommand& command) {
  if (!command.messages.empty()) return tokenize_messages(command);
  const Tokenizer tokenizer = open_tokenizer(command.common, open_files(command.common.model));
  const std::string text = command.text ? std::string(without_bom(*command.text, "--text"))
                                        : read_text(command.file, kMaxTextBytes);
  std::vector<int32_t> tokens = tokenizer.encode(text, !command.no_bos && tokenizer.adds_bos());
  if (command.first_tokens)
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(*command.first_tokens)));
  if (command.json) {
    print_json({{"tokens", tokens}});
    return;
  }
  std::cout << fmt::format("{}\n", fmt::join(tokens, ","));
}

void detokenize(const TokenizeCommand& command) {
  const Tokenizer tokenizer = open_tokenizer(command.common, open_files(command.common.model));
  const std::vector<int32_t> tokens = given_tokens(command.tokens, command.tokens_file);
  for (const int32_t id : tokens) {
    if (id >= tokenizer.vocab_size()) {
      throw Error(fmt::format("{0}: id {1} is outside the tokenizer's vocabulary of {2}; use ids below {2}",
                              command.tokens_file.empty() ? "--tokens" : input_name(command.tokens_file), id,
                              tokenizer.vocab_size()));
    }
  }
  const std::string text = tokenizer.decode(tokens);
  if (command.json) {
    print_json({{"text", text}});
  } else {
    std::cout << text << "\n";
  }
}

}  // namespace

void add_tokenize_commands(CLI::App& app) {
  auto command = std::make_shared<TokenizeCommand>();
  CLI::App& encode = add_command(app, "tokenize", "Text to token ids", kLookCommands,
                                 "lariat tokenize --model DIR --text \"Once upon a time\"");
  add_model_option(encode, command->common);
  auto* source = encode.add_option_group("text", "input");
  source->add_option("--text", command->text, "text");
  source->add_option("-f,--file", command->file, "text file; -: standard input");
  auto* messages = source->add_option("--messages", command->messages,
                                      "JSON list of {role, content}, rendered by the chat template");
  source->require_option(1);
  encode.add_option("--first-tokens", command->first_tokens, "print only the first N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->excludes(messages);
  encode.add_flag("--no-bos", command->no_bos, "omit the beginning-of-text token");
  encode
      .add_flag("--no-generation-prompt", command->no_generation_prompt,
                "with --messages: omit the start of an answer")
      ->needs(messages);
  add_template_var_option(encode, command->common)->needs(messages);
  encode.add_flag("--json", command->json, "one JSON object on stdout")->group(kOutputOptions);
  encode.callback([command] { tokenize(*command); });

  CLI::App& decode = add_command(app, "detokenize", "Token ids to text", kLookCommands,
                                 "lariat detokenize --model DIR --tokens 9038,2501,263,931");
  add_model_option(decode, command->common);
  add_token_options(decode, command->tokens, command->tokens_file);
  decode.add_flag("--json", command->json, "one JSON object on stdout")->group(kOutputOptions);
  decode.callback([command] { detokenize(*command); });
}

}  // namespace lariat
