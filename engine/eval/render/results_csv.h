#pragma once
#include <string>

#include "engine/eval/measurement.h"

namespace lariat {

// The records of a log as CSV (RFC 4180), in long form: a row for each measurement,
//
//   measure,scaling,method,stale,length,depth,from,to,value,error,count,factor,model,weights,dtype,cache_dtype,
//   text,task,than
//
// measure: perplexity, growing, a task ("passkey" and so on), prefill_tok_s, decode_tok_s or cache_bytes.
// from and to: the positions that a row is of; empty: all. error: one standard error of a perplexity; of a
// share the half width of Wilson's interval at one standard error, which is not 0 where all or none are
// found. count: the tokens or trials that value is the mean of. A field is empty where there is no number.
// Behind them all paired differences of columns: perplexity_difference and growing_difference are ratios to
// the perplexity of column `than` on the same tokens, passkey_difference and the like are shares less its
// share, whose error is half the interval of 99 %.
std::string results_csv(const Measurements& log);

}  // namespace lariat
