#pragma once
#include "kernels/backend.h"

namespace lariat {

// At least `bytes` of scratch that is kept from call to call; its contents are not.
inline void* grown(Backend& backend, Buffer& scratch, size_t bytes) {
  if (scratch.bytes() < bytes) {
    scratch = Buffer();  // the old block goes first: the two never exist together
    scratch = backend.allocate(bytes);
  }
  return scratch.data();
}

}  // namespace lariat
