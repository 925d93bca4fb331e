#pragma once
#include <string>

#include "engine/eval/sweep_table.h"

namespace lariat {

// Records of a log as CSV (RFC 4180), one row per measurement:
//
//   measure,scaling,position_method,stale,length,depth,from,to,value,error,count,factor,model,weights,dtype,
//   cache_dtype,text,task,than,activations,window_method,stride,step,chat,seed,trials,low,high,unit,settings
//
// measure: perplexity, growing, a task ("passkey" and so on), prefill_tok_s, decode_tok_s or cache_bytes; of
// a divergence divergence_ppl and the other names of kFigures, with the reference's model and column in
// `than`. from, to: positions; empty: all. error: one standard error. low, high: 95 % interval; of a
// perplexity the normal interval of the mean loss, of a share Wilson's. count: tokens or trials of the mean.
// settings: Labels. Missing numbers are empty. All paired differences of columns follow
// (docs/measuring.md).
std::string results_csv(const Measurements& log, const SweepTable& table);

}  // namespace lariat
