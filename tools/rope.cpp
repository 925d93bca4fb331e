#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <numbers>

#include "engine/eval/render/rope_svg.h"
#include "kernels/counted.h"
#include "models/io/atomic_file.h"
#include "models/load/config.h"
#include "models/load/open_files.h"
#include "models/positions/parse_position_method.h"
#include "models/spec/position_method.h"
#include "tools/commands.h"
#include "tools/help.h"
#include "tools/options.h"

namespace lariat {
namespace {

struct Args {
  std::filesystem::path model, svg;
  std::optional<int64_t> head_dim, length;
  RopePanels panels = RopePanels::kAll;
  bool json = false;
  CommonOptions common;
};

RopeScaling bare_head(const Args& args) {
  const RopeOptions& given = args.common.open.rope;
  if (!args.head_dim || !given.theta || !given.original_ctx)
    throw UsageError(
        "--model: missing; give --model DIR, or --head-dim, --rope-theta and --rope-original-ctx");
  if (*args.head_dim < 2 || *args.head_dim > 1024 || *args.head_dim % 2 != 0)
    throw UsageError(fmt::format("--head-dim: found {}; use an even number from 2 to 1024", *args.head_dim));
  if (*given.original_ctx < 1 || *given.original_ctx > INT32_MAX)
    throw UsageError(
        fmt::format("--rope-original-ctx: out of range; use an integer from 1 to {}", INT32_MAX));
  RopeScaling rope;
  rope.head_dim = rope.rotary_dim = *args.head_dim;
  rope.theta = *given.theta;
  rope.original_ctx = rope.max_position_embeddings = *given.original_ctx;
  return rope;
}

ConfigRope rope_of(const Args& args) {
  if (args.model.empty()) return {resolve_rope(bare_head(args), args.common.open.rope), {}, {}, {}};
  if (args.head_dim) throw UsageError("--head-dim: excludes --model; remove one");
  if (!std::filesystem::exists(args.model / "config.json"))
    refuse_other_formats(args.model, /*config_file=*/true);
  ConfigRope own = load_rope(open_text_files(args.model).texts);
  print_warnings(own.warnings, /*quiet=*/false);
  own.rope = resolve_rope(own.rope, args.common.open.rope);
  return own;
}

// 0: unchanged, 1: partly interpolated, 2: divided by the scale, 3: no rotation.
int kind_of(double before, double after, double scale) {
  if (before == 0.0) return 3;
  const double ratio = after / before;
  if (ratio > 1.0 - 1e-12) return 0;
  return ratio <= (1.0 + 1e-9) / scale ? 2 : 1;
}

constexpr std::array<const char*, 4> kKinds{"none", "partly", "fully", "not rotating"};

// NaN for a pair without rotation.
struct Pair {
  double ratio, wavelength, turns;  // turns: within L0
  int kind;
};

std::vector<Pair> pairs_of(const RopeScaling& rope, double seen) {
  const auto before = rope_unscaled(rope).inv_freq, after = rope_frequencies(rope, seen).inv_freq;
  std::vector<Pair> pairs;
  for (size_t i = 0; i < before.size(); ++i) {
    const double wavelength = 2.0 * std::numbers::pi / before[i];
    pairs.push_back({after[i] / before[i], wavelength, static_cast<double>(rope.original_ctx) / wavelength,
                     kind_of(before[i], after[i], rope_scale(rope, seen))});
  }
  return pairs;
}

// query_scale: of the last token, without the position method.
void print_rope_json(const RopeScaling& rope, double query_scale, const std::string& method, int64_t length,
                     double seen) {
  const RopeFrequencies scaled = rope_frequencies(rope, seen);
  nlohmann::ordered_json ratios, wavelengths, turns, kinds;
  for (const Pair& pair : pairs_of(rope, seen)) {
    ratios.push_back(pair.ratio);  // NaN becomes null in JSON
    wavelengths.push_back(pair.wavelength);
    turns.push_back(pair.turns);
    kinds.push_back(kKinds[static_cast<size_t>(pair.kind)]);
  }
  print_json({{"type", name_of(rope.type)},
              {"rotary_dim", rope.rotary_dim},
              {"theta", rope.theta},
              {"factor", rope.factor},
              {"original_ctx", rope.original_ctx},
              {"length", length},
              {"scale", rope_scale(rope, seen)},
              {"attention_factor", scaled.attention_factor},
              {"query_scale", query_scale},
              {"position_method", method},
              {"inv_freq", scaled.inv_freq},
              {"inv_freq_unscaled", rope_unscaled(rope).inv_freq},
              {"ratio", ratios},
              {"wavelength", wavelengths},
              {"turns", turns},
              {"interpolated", kinds}});
}

void print_heading(const RopeScaling& rope, int64_t length, double seen, double attention_factor) {
  const std::string factor = rope.factor != 1.0 ? fmt::format(", factor {:.6g}", rope.factor) : "";
  fmt::print(std::cout, "{}{}: theta {:.10g}, {} of {} dimensions rotate, original context {}\n",
             name_of(rope.type), factor, rope.theta, rope.rotary_dim, rope.head_dim, rope.original_ctx);
  const bool stepped = seen != static_cast<double>(length);
  fmt::print(std::cout, "length {}{}: scale {:.6g}, attention factor {:.6g}\n", length,
             stepped ? fmt::format(" (on the scale step of {:.1f})", seen) : "", rope_scale(rope, seen),
             attention_factor);
  if (rope.depends_on_length() && length <= rope.original_ctx)
    std::cout << "(no scaling up to the original context; use a longer --length)\n";
}

void print_table(const RopeScaling& rope, int64_t length, double seen) {
  const RopeFrequencies scaled = rope_frequencies(rope, seen);
  const auto plain = rope_unscaled(rope).inv_freq;
  print_heading(rope, length, seen, scaled.attention_factor);
  const auto row = [](const auto&... cells) {
    fmt::print(std::cout, "{:>4}  {:>14}  {:>14}  {:>8}  {:>12}  {:>12}  {}\n", cells...);
  };
  const auto digits = [](double value, int n) { return fmt::format("{:.{}g}", value, n); };
  std::cout << "\n";
  row("pair", "inv_freq", "scaled", "ratio", "wavelength", "turns in L0", "interpolated");
  std::array<int, 4> count{};
  const auto pairs = pairs_of(rope, seen);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& [ratio, wavelength, turns, kind] = pairs[i];
    ++count[static_cast<size_t>(kind)];
    const char* word = kKinds[static_cast<size_t>(kind)];
    if (kind == 3) {
      row(i, 0, 0, "-", "-", 0, word);
      continue;
    }
    row(i, digits(plain[i], 8), digits(scaled.inv_freq[i], 8), fmt::format("{:.5f}", ratio),
        digits(wavelength, 6), digits(turns, 6), word);
  }
  fmt::print(std::cout, "\ninterpolated: {} none, {} partly, {} fully", count[0], count[1], count[2]);
  if (count[3] > 0) fmt::print(std::cout, "; {} rotate", counted(count[3], "pair does not", "pairs do not"));
  std::cout << "\n";
}

void print_method(const PositionMethod& method, int64_t length) {
  constexpr int64_t kMost = 1 << 20;  // keys looked at
  double largest = 0;
  int64_t keys = 0;
  for (int64_t j = 0; j < length; j += 1 + length / kMost)
    largest = std::max(largest, method.distance(length - 1, j, static_cast<double>(length)).value_or(0));
  for (const VisibleRange& range : method.ranges)
    keys += std::max<int64_t>(range.end.at(length - 1) - range.begin.at(length - 1), 0);
  fmt::print(std::cout, "position method {}: the last token sees {} at distances up to {:.6g}\n", method.name,
             counted(keys, "key"), largest);
}

void run(const Args& args) {
  auto [rope, query_scale, method, warnings] = rope_of(args);
  warn_of_still_scale(args.common, rope);
  const int64_t length = args.length.value_or(std::max(rope.original_ctx, rope.max_position_embeddings));
  if (length < 1 || length > INT32_MAX)
    throw UsageError(fmt::format("--length: out of range; use an integer from 1 to {}", INT32_MAX));
  if (const std::string& asked = args.common.open.position_method; !asked.empty())
    method = parse_position_method(asked, rope.original_ctx, length);
  const double seen = rope_step_length(rope, length, args.common.open.rope_steps);
  // Writes the picture first: a reader of the table may close the pipe.
  if (!args.svg.empty()) {
    write_file_atomically(args.svg, rope_svg(rope, seen, args.panels, method));
    say("wrote " + args.svg.string());
  }
  if (args.json) {
    print_rope_json(rope, query_scale.at(length - 1), method.name, length, seen);
  } else {
    if (!method.name.empty()) print_method(method, length);
    print_table(rope, length, seen);
  }
}

}  // namespace

void add_rope_command(CLI::App& app) {
  auto args = std::make_shared<Args>();
  CLI::App& sub =
      add_command(app, "rope", "Show a model's RoPE frequencies before and after scaling", kLookCommands,
                  "lariat rope --model DIR --rope-scaling yarn --rope-factor 4 --svg rope.svg");
  set_usage(sub, "--model DIR [options]\n--head-dim N --rope-theta F --rope-original-ctx N [options]");
  sub.add_option("-m,--model", args->model, "checkpoint folder or config file")->type_name("DIR|FILE");
  sub.add_option("--head-dim", args->head_dim, "head size, instead of a model")->type_name("N");
  sub.add_option("--length", args->length, "sequence length")->default_str("the model's maximum");
  add_output_option(sub, "--svg", args->svg, "draw the scalings to this file");
  sub.add_option("--only", args->panels, "part of the picture; frequencies: with wavelengths")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, RopePanels>{{"frequencies", RopePanels::kFrequencies},
                                                                    {"decay", RopePanels::kDecay}})
              .description(""))
      ->type_name("frequencies|decay")
      ->default_str("all")
      ->needs("--svg");
  sub.add_flag("--json", args->json, "print JSON instead of the table")->group(kOutputOptions);
  begin_group(sub, kRopeOptions);
  args->common.open.rope_steps = 0;  // exact formula unless --rope-steps is given
  add_rope_options(sub, args->common.open);
  add_position_option(sub, args->common.open);
  args->common.command = &sub;
  sub.callback([args] { run(*args); });
}

}  // namespace lariat
