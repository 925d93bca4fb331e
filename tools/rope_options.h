#pragma once
#include <CLI/CLI.hpp>

#include "models/rope_config.h"

namespace lariat {

// How a cache of rotated keys follows a scale that moves.
struct RopeCacheOptions {
  int rungs = 4;       // --rope-rungs: rungs per octave; 0: "exact", a new scale for every token
  bool stale = false;  // --rope-cache stale: keys keep the scale they were written with, as in transformers
};

// --rope-scaling, --rope-factor, --rope-original-ctx, --rope-theta, --rope-config. Parsing throws UsageError.
void add_rope_options(CLI::App& sub, RopeOptions& out);

// --rope-rungs and --rope-cache.
void add_rope_cache_options(CLI::App& sub, RopeCacheOptions& out);

}  // namespace lariat
