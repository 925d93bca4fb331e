#include "tools/generating.h"

#include <algorithm>

#include "engine/chat.h"
#include "tools/help.h"

namespace lariat {

void add_writing_options(CLI::App& command, WritingOptions& options, const std::string& most) {
  auto* length =
      command.add_option("-n,--max-new-tokens", options.generate.max_new_tokens, "tokens to write at most")
          ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  if (!most.empty()) length->default_str(most);
  command.add_option("--system", options.system, "what the model is told before the first message");
  command.add_option("--stop", options.stop, "end at this text (repeatable; not printed)")
      ->take_all()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--save-cache", options.save_cache, "put the context away in this file at the end")
      ->type_name("FILE");
  command.add_option("--load-cache", options.load_cache, "go on from a context that was put away")
      ->type_name("FILE");
  begin_group(command, kSamplingOptions);
  SamplerOptions& sampler = options.generate.sampler;
  command.add_option("--temperature", sampler.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 1000.0));
  command.add_option("--top-k", sampler.top_k, "keep the k likeliest; 0: all")->check(CLI::Range(0, 1 << 30));
  command.add_option("--top-p", sampler.top_p, "keep the likeliest that together reach p")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--min-p", sampler.min_p, "keep those with p >= min-p * largest")
      ->check(CLI::Range(0.0, 1.0));
  command
      .add_option("--repetition-penalty", sampler.repetition_penalty,
                  "divides the scores of tokens that were there before; 1: none")
      ->check(CLI::Range(0.01, 100.0));
  command.add_option("--seed", sampler.seed, "seed of the random numbers");
  begin_group(command, kMainOptions);
}

std::optional<int64_t> reach_of(const RopeScaling& rope) {
  const bool grows =
      rope.type == RopeType::kDynamic || (rope.type == RopeType::kDynamicYarn && rope.factor <= 1.0);
  if (grows) return std::nullopt;
  if (rope.type == RopeType::kDefault) return rope.max_position_embeddings;
  return std::max(rope.max_position_embeddings,
                  static_cast<int64_t>(rope.factor * static_cast<double>(rope.original_ctx)));
}

ChatTemplate open_chat_template(const CommonOptions& options) {
  if (auto found = ChatTemplate::load(options.model)) return *std::move(found);
  throw Error(options.model.string() +
              ": there is no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); "
              "use an instruct model, or generate with the markers in the prompt");
}

std::vector<int32_t> answer_end_ids(const Model& model, const Tokenizer& tokenizer,
                                    const ChatTemplate& chat_template) {
  std::vector<int32_t> ids = eos_ids(model, tokenizer);
  if (const auto end = end_of_turn_id(tokenizer, chat_template)) ids.push_back(*end);
  return ids;
}

}  // namespace lariat
