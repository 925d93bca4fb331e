#pragma once
#include <string>

#include "engine/eval/measurement.h"

namespace lariat {

// Records of a log as CSV (RFC 4180), one row per measurement:
//
//   measure,scaling,method,stale,length,depth,from,to,value,error,count,factor,model,weights,dtype,cache_dtype,
//   text,task,than
//
// measure: perplexity, growing, a task ("passkey" and so on), prefill_tok_s, decode_tok_s or cache_bytes.
// from, to: positions; empty: all. error: one standard error of a perplexity; for a share, half of Wilson's
// interval at one standard error, which stays positive at 0 % and 100 %. count: tokens or trials of the mean.
// Missing numbers are empty. All paired differences of columns follow. perplexity_difference and
// growing_difference: ratio to the perplexity of column `than` on the same tokens. passkey_difference and
// other tasks: share minus the share of `than`; error: half of the 99 % interval.
std::string results_csv(const Measurements& log);

}  // namespace lariat
