#include "engine/eval/join_cost.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "engine/eval/run_log.h"
#include "tools/help.h"
#include "tools/measuring.h"

namespace lariat {
namespace {

struct JoinCommand {
  CommonOptions common;
  JoinCostOptions cost;
  std::filesystem::path file;
  std::vector<std::string> tasks = {"passkey"};
  std::string haystack = "noise";
  bool json = false;
};

nlohmann::ordered_json to_json(const JoinCost& cost, bool find) {
  nlohmann::ordered_json json = {
      {"parts", cost.parts}, {"join", cost.join}, {"tokens", cost.next.tokens.size()}};
  add_figures(json, figures(cost.next));
  if (find) json.update({{"found", cost.passkeys.recall()}, {"trials", cost.passkeys.trials.size()}});
  json.update({{"first_token_s", cost.median_seconds()}, {"seconds", cost.seconds}});
  return json;
}

void print_costs(const nlohmann::ordered_json& results, bool find) {
  std::vector<std::vector<std::string>> rows = {
      {"parts", "join", "perplexity", "", "KL", "same top", "first token"}};
  if (find) rows[0].emplace_back("found");
  for (const auto& result : results) {
    rows.push_back({result["parts"].dump(), result["join"].get<std::string>(), fixed(result["ppl"], 3),
                    margin(result["ppl_stderr"], 3), fixed(result["kl"], 5),
                    fixed(100 * result["same_top"].get<double>(), 1) + " %",
                    fixed(result["first_token_s"], 3) + " s"});
    if (find)
      rows.back().push_back(fmt::format("{:.3g}/{}", result["found"].get<double>(), result["trials"].dump()));
  }
  std::cout << aligned_table(rows) << std::flush;
}

void run(JoinCommand& command) {
  JoinCostOptions& cost = command.cost;
  cost.passkeys.needles.task = needle_task(command.tasks.front()).value();
  if (!cost.find)
    warn_idle(command.common, {"--task", "--needles", "--haystack", "--depths", "--trials", "--seed"},
              "with --no-passkey");
  for (const std::string& join : cost.joins) parse_join(join);
  sort_unique(cost.parts);
  check_text(command.file);
  if (cost.find) cost.passkeys.hay = open_hay(command.haystack);
  const Engine runtime = open_engine(command.common);
  const TextCodec codec = prompt_codec(*runtime.tokenizer);
  cost.bos = text_bos(*runtime.tokenizer);
  cost.passkeys.eos_ids = runtime.eos_ids();
  cost.passkeys.max_new_tokens = answer_tokens(codec, cost.passkeys.needles);
  cost.interrupted = &interrupted();
  const int64_t before = cost.parts.back() * cost.part_tokens;
  if (cost.find) warn_of_short_hay(cost.passkeys, codec, before, command.common.quiet);
  const TokenSource text = read_tokens(command.file, *runtime.tokenizer, before + cost.next_tokens);
  Session session(runtime.model, *runtime.backend, runtime.session);
  std::vector<JoinCost> costs;
  bool complete = false;
  {
    Meter meter("join", command.common.quiet);
    complete =
        measure_join_cost(session, codec, text, cost, costs, [&](double done) { meter.show(done, ""); });
  }
  nlohmann::ordered_json json = {{"scaling", column_of(session.options())},
                                 {"part_tokens", cost.part_tokens},
                                 {"complete", complete},
                                 {"quantize", runtime.model.quantization()},
                                 {"results", nlohmann::ordered_json::array()}};
  for (const JoinCost& one : costs) json["results"].push_back(to_json(one, cost.find));
  if (command.json) {
    print_json(json);
  } else {
    print_costs(json["results"], cost.find);
  }
  if (!complete) throw Error("interrupted; the results are those of the numbers of parts that were done");
}

}  // namespace

void add_join_command(CLI::App& app) {
  auto command = std::make_shared<JoinCommand>();
  JoinCostOptions& cost = command->cost;
  cost.passkeys.depths = {0.25, 0.5, 0.75};
  cost.passkeys.trials = 1;
  CLI::App& sub = add_command(
      app, "join", "What joining contexts costs, beside reading their text at once", kMeasureCommands,
      "lariat join --model DIR --file book.txt --parts 2,8,32 --join rotate,recompute=16");
  add_model_option(sub, command->common);
  sub.add_option("-f,--file", command->file,
                 "a text that begins with the parts; what follows them is scored; -: standard input")
      ->required();
  const auto add = [&](const char* name, auto& value, const char* description, int64_t least) {
    return sub.add_option(name, value, description)->check(CLI::Range(least, int64_t{1} << 20));
  };
  add("--parts", cost.parts, "how many parts are joined", 1)->delimiter(',');
  add("--part-tokens", cost.part_tokens, "tokens of each", 1);
  add("--next-tokens", cost.next_tokens, "tokens that follow them, of which all but the first are scored", 2);
  sub.add_option("--join", cost.joins, "ways to join them, beside anew and the last part alone")
      ->delimiter(',')
      ->type_name("rotate|recompute=N|anew");
  sub.add_flag_callback(
      "--no-passkey", [&cost] { cost.find = false; }, "leave passkeys out");
  add_passkey_options(sub, cost.passkeys, command->tasks, command->haystack)->expected(1);
  sub.add_flag("--json", command->json, "one JSON object on stdout")->group(kOutputOptions);
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
