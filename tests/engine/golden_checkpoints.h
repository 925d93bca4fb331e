#pragma once
#include <vector>

namespace lariat::test {

// The checkpoints of tests/golden/checkpoints by the lists that name them (models/families/families.def).
struct GoldenList {
  enum : unsigned {
    kAll = 0,    // GoldenCheckpoint
    kTrace = 1,  // LayerTrace: has a file trace.safetensors
    kCache = 2,  // FamilyCache: layers unlike Llama's, far past the trained context
    kCuda = 4,   // CudaCheckpoint
    kKeys = 8,   // keys.json
    // A prompt of 320 tokens (long.safetensors): layers with Llama's seven products; other layers; experts,
    // whose choice may change with one rounding; RoPE that follows the length, where transformers prefills
    // all 320 at once.
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
