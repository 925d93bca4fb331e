#pragma once
#include <vector>

namespace lariat::test {

// Lists of checkpoints in models/families/families.def.
struct GoldenList {
  enum : unsigned {
    kAll = 0,    // GoldenCheckpoint
    kTrace = 1,  // has trace.safetensors
    kCache = 2,  // layers unlike Llama's
    kCuda = 4,   // CudaCheckpoint
    kKeys = 8,   // keys.json
    // 320-token prompts (long.safetensors). Experts: one rounding may change the choice. Dynamic: RoPE
    // follows the length, where transformers prefills all at once.
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
