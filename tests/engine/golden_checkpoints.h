#pragma once
#include <string>
#include <vector>

// The checkpoints of tests/golden/checkpoints and the lists that they stand in
// (models/families/families.def).
namespace lariat::test {

enum GoldenList : unsigned {
  kGolden = 0,  // GoldenCheckpoint, in which all are
  kTrace = 1,   // LayerTrace: a file trace.safetensors (tests/golden/make_traces.py)
  kCache = 2,   // FamilyCache: layers that differ from Llama's, far past the trained context
  kCuda = 4,    // CudaCheckpoint
  kKeys = 8,    // tests/golden/make_keys.py
  kLong = 16,   // a prompt of 320 tokens (make_long_golden.py), with Llama's seven products in each layer,
  kLongOther = 32,  // likewise with other products,
  kLongExperts =
      64,  // with experts, whose choice may turn on the last bit of 16, and then everything differs,
  kLongDynamic =
      128,  // or with RoPE that follows the length: all 320 tokens at once, as transformers computes
};

inline std::vector<const char*> golden_checkpoints(unsigned list = kGolden) {
  std::vector<const char*> names;
#define LARIAT_CHECKPOINT(name, lists) \
  if (((lists)&list) == list) names.push_back(#name);
#include "models/families/families.def"
  return names;
}

}  // namespace lariat::test
