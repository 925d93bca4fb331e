#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "engine/eval/measure/token_source.h"
#include "engine/runtime/session.h"
#include "kernels/counted.h"
#include "models/files/safetensors.h"
#include "models/io/text_file.h"
#include "models/text/unicode.h"
#include "tools/commands.h"
#include "tools/help.h"
#include "tools/options.h"
#include "tools/signals.h"

namespace lariat {
namespace {

struct LogitsCommand {
  CommonOptions common = CommonOptions::measuring();
  std::string tokens;
  std::filesystem::path tokens_file, positions, out, trace;
  std::optional<int64_t> decode_from;
};

// Width, and a row per token, by tensor name.
using Trace = std::map<std::string, std::pair<int64_t, std::vector<float>>>;

void write_trace(const std::filesystem::path& file, const Trace& trace) {
  std::vector<NamedShape> shapes;
  for (const auto& [name, rows] : trace) {
    shapes.push_back({name, {static_cast<int64_t>(rows.second.size()) / rows.first, rows.first}});
  }
  SafetensorsWriter writer(file, shapes);
  for (const auto& [name, rows] : trace) writer.append(rows.second);
  writer.finish();
}

// Converts rows of time, height and width to three numbers per token.
std::vector<int32_t> read_positions(const std::filesystem::path& file, size_t n_tokens) {
  const std::string name = input_name(file);
  std::istringstream lines(read_text(file, kMaxTokenFileBytes));
  std::vector<std::vector<int32_t>> rows;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) rows.push_back(parse_token_list(line, name));
  }
  if (rows.size() != 3)
    throw Error(
        fmt::format("{}: {}; expected three: time, height and width", name, counted(rows.size(), "row")));
  std::vector<int32_t> positions;
  for (const auto& row : rows) {
    if (row.size() != n_tokens) {
      throw Error(fmt::format("{}: a row has {} for {}; give one number per token", name,
                              counted(row.size(), "number"), counted(n_tokens, "token")));
    }
  }
  for (size_t i = 0; i < n_tokens; ++i)
    positions.insert(positions.end(), {rows[0][i], rows[1][i], rows[2][i]});
  return positions;
}

void run(const LogitsCommand& command) {
  const std::vector<int32_t> tokens = given_tokens(command.tokens, command.tokens_file);
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t decode_from = std::min(command.decode_from.value_or(n), n);
  const Engine engine = open_engine(command.common, Reads::kTokens);
  Session session = engine.session();
  Sequence sequence = session.new_sequence();
  if (!command.positions.empty())
    sequence.set_mrope_positions(read_positions(command.positions, tokens.size()));
  Trace trace;
  if (!command.trace.empty()) {
    session.observe([&](const std::string& name, int64_t cols, std::span<const float> rows) {
      auto& [width, values] = trace[name];
      width = cols;
      values.insert(values.end(), rows.begin(), rows.end());
    });
  }
  SafetensorsWriter writer(command.out, {{"logits", {n, engine.model.spec.vocab_size}}});
  const auto write = [&](size_t, int64_t, const Matrix& logits) {
    if (interrupted()) throw Error("interrupted; " + command.out.string() + " was not written");
    const std::vector<float> host = to_host(*engine.backend, logits);
    if (!std::ranges::all_of(host, [](float x) { return std::isfinite(x); })) session.report_not_finite();
    writer.append(host);
  };
  forward(session, {&sequence, std::span(tokens).first(static_cast<size_t>(decode_from)), 0}, write);
  while (sequence.length() < n)
    forward(session, {&sequence, std::span(tokens).subspan(static_cast<size_t>(sequence.length()), 1)},
            write);
  writer.finish();
  if (!command.trace.empty()) write_trace(command.trace, trace);
}

}  // namespace

void add_logits_command(CLI::App& app) {
  auto command = std::make_shared<LogitsCommand>();
  CLI::App& sub = add_command(app, "logits", "Logits of a token list, as a safetensors file", kLookCommands,
                              "lariat logits --model DIR --tokens 1,15043,3186 --out logits.safetensors");
  add_model_option(sub, command->common);
  add_token_options(sub, command->tokens, command->tokens_file);
  sub.add_option("--decode-from", command->decode_from, "decode tokens one at a time from this index")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  sub.add_option("--positions", command->positions, "M-RoPE positions: file with rows time, height, width");
  add_output_option(sub, "--out", command->out, "output file with tensor \"logits\", f32 [n_tokens, vocab]")
      ->required();
  add_output_option(sub, "--trace", command->trace, "safetensors file of each layer's intermediate results");
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
