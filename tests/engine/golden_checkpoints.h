#pragma once
#include <vector>

namespace lariat::test {

// The checkpoints of tests/golden/checkpoints by the lists that they stand in (models/families/families.def).
struct GoldenList {
  enum : unsigned {
    kAll = 0,    // GoldenCheckpoint
    kTrace = 1,  // LayerTrace: a file trace.safetensors
    kCache = 2,  // FamilyCache: layers that differ from Llama's, far past the trained context
    kCuda = 4,   // CudaCheckpoint
    kKeys = 8,   // keys.json
    // A prompt of 320 tokens (long.safetensors): with Llama's seven products in each layer; with others;
    // with experts, whose choice may turn on the last bit of 16, and then everything differs; with RoPE that
    // follows the length, where all 320 tokens at once are what transformers computes.
    kLong = 16,
    kLongOther = 32,
    kLongExperts = 64,
    kLongDynamic = 128,
  };

  static std::vector<const char*> names(unsigned list = kAll) {
    std::vector<const char*> found;
#define LARIAT_CHECKPOINT(name, lists) \
  if (((lists)&list) == list) found.push_back(#name);
#include "models/families/families.def"
    return found;
  }
};

}  // namespace lariat::test
