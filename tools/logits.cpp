#include "engine/eval/token_source.h"
#include "models/json_file.h"
#include "tools/commands.h"
#include "tools/common.h"

namespace lariat {
namespace {

constexpr uint64_t kMaxTokenFileBytes = uint64_t{1} << 30;

struct LogitsCommand {
  CommonOptions common;
  std::string tokens;
  std::filesystem::path tokens_file, out;
  std::optional<int64_t> decode_from;
};

void run(const LogitsCommand& command) {
  const std::vector<int32_t> tokens =
      command.tokens_file.empty() ? parse_token_list(command.tokens, "--tokens")
                                  : parse_token_list(read_file(command.tokens_file, kMaxTokenFileBytes),
                                                     command.tokens_file.string());
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t decode_from = std::min(command.decode_from.value_or(n), n);
  Runtime runtime = open_runtime(command.common);
  Session session(runtime.model, *runtime.backend, runtime.session);
  Sequence sequence = session.new_sequence();
  SafetensorsWriter writer(command.out, "logits", {n, runtime.model.spec.vocab_size});
  const std::span<const int32_t> all(tokens);
  std::vector<float> host;
  session.prefill(sequence, all.first(static_cast<size_t>(decode_from)), 0,
                  [&](int64_t, const Matrix& logits) {
                    host.resize(static_cast<size_t>(logits.rows * logits.cols));
                    runtime.backend->copy_out(host.data(), logits.data, host.size() * sizeof(float));
                    writer.append(host.data(), host.size());
                  });
  for (int64_t i = decode_from; i < n; ++i) {
    if (interrupted()) throw Error("interrupted; " + command.out.string() + " was not written");
    const auto logits = session.decode(sequence, tokens[static_cast<size_t>(i)]);
    writer.append(logits.data(), logits.size());
  }
  writer.finish();
}

}  // namespace

void add_logits_command(CLI::App& app) {
  auto command = std::make_shared<LogitsCommand>();
  CLI::App& sub = *app.add_subcommand("logits", "Logits of a list of tokens, as a safetensors file");
  add_model_option(sub, command->common);
  auto* source = sub.add_option_group("tokens", "the token ids");
  source->add_option("--tokens", command->tokens, "ids separated by commas");
  source->add_option("--tokens-file", command->tokens_file,
                     "a file of ids separated by commas or whitespace");
  source->require_option(1);
  sub.add_option("--decode-from", command->decode_from, "feed the tokens from this index on one at a time")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  sub.add_option("--out", command->out, "tensor \"logits\", float32 [n_tokens, vocab]")->required();
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
