#include "tools/rope_options.h"

#include <string>

#include "kernels/error.h"

namespace lariat {
namespace {

constexpr int kMaxSteps = 64;

int parse_steps(const std::string& text) {
  if (text == "exact") return 0;
  int rungs = -1;
  if (!CLI::detail::lexical_cast(text, rungs) || rungs < 0 || rungs > kMaxSteps)
    throw UsageError("--rope-rungs is \"" + text + "\"; expected exact or an integer from 1 to 64");
  return rungs;
}

bool parse_stale(const std::string& text) {
  if (text != "consistent" && text != "stale")
    throw UsageError("--rope-cache is \"" + text + "\"; expected consistent or stale");
  return text == "stale";
}

}  // namespace

void add_rope_options(CLI::App& sub, RopeOptions& out) {
  const std::string group = "RoPE";
  sub.add_option("--rope-scaling", out.scaling, "none, " + known_rope_types() + " (default: the model's own)")
      ->type_name("TYPE")
      ->group(group);
  sub.add_option("--rope-factor", out.factor,
                 "how many times the original context; dynamic-yarn: the largest scale")
      ->type_name("F")
      ->group(group);
  sub.add_option("--rope-original-ctx", out.original_ctx, "context length the model was trained with")
      ->type_name("N")
      ->group(group);
  sub.add_option("--rope-theta", out.theta, "base of the frequencies")->type_name("T")->group(group);
  sub.add_option_function<std::string>(
         "--rope-config", [&out](const std::string& file) { out.config = file; },
         "JSON file with a rope_scaling or rope_parameters object")
      ->type_name("FILE")
      ->group(group);
}

void add_rope_cache_options(CLI::App& sub, RopeCacheOptions& out) {
  sub.add_option_function<std::string>(
         "--rope-rungs", [&out](const std::string& text) { out.rungs = parse_steps(text); },
         "rungs per octave on which a dynamic scale moves, or exact (default: 4)")
      ->type_name("R|exact")
      ->group("RoPE");
  sub.add_option_function<std::string>(
         "--rope-cache", [&out](const std::string& text) { out.stale = parse_stale(text); },
         "consistent: re-rotate cached keys when the scale moves; stale: leave them (default: consistent)")
      ->type_name("MODE")
      ->group("RoPE");
}

}  // namespace lariat
