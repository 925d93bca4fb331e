#pragma once

namespace simt {

// Correct kernels, each followed by its variants with one bug.
enum class Bug {
  kSound,
  kLeavesBarrier,
  kOtherBarrier,
  kDivergentShuffle,
  kShuffleOutsideMask,
  kOtherMask,
  kMissingBarrier,
  kMissingWarpBarrier,
  kOverwritten,
  kSharedOverrun,
  kDynamicOverrun,
  kDeviceOverrun,
  kUnwrittenShared,
  kMissingCopyWait,
  kCopyInFlight,
  kHostMemory,
  kSameBytes,
  kReadsOtherBlock,
  kLastBlock,
  kMissingRelease,
  kMissingAcquire,
  kCountsTooEarly,
  kEarly,
  kEarlyRead,
  kEarlyReadNeverWaits,
  kEarlyNewWeights,
  kEarlyWrite,
  kEarlyCopy,
  kEarlyAtomic,
  kEarlyPrefetch,
  kEarlyNeverWaits,
  kEarlyOneNeverWaits,
  kCount,
};

void run_planted(Bug bug);

// Frees memory of queued launches, or of recorded launches that may be replayed.
void free_too_early(bool recorded);

}  // namespace simt
