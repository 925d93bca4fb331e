#pragma once

namespace simt {

// Three sound kernels, and behind each what it is with one bug.
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

// Runs that kernel of planted.cu on a few threads.
void run_planted(Bug bug);

// Frees memory that launches were given: collected ones that have not run, or recorded ones that may run
// again.
void free_too_early(bool recorded);

}  // namespace simt
