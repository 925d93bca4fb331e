#pragma once

namespace simt {

// Three correct kernels, each followed by its variants with one bug.
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

// Runs this kernel of planted.cu on a few threads.
void run_planted(Bug bug);

// Frees memory of launches that have not run: queued ones, or recorded ones that may be replayed.
void free_too_early(bool recorded);

}  // namespace simt
