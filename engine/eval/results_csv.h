#pragma once
#include <span>
#include <string>

#include <nlohmann/json.hpp>

namespace lariat {

// Records as of a sweep's log (sweep_log.h) as CSV (RFC 4180), in long form: a row for each measurement,
//
//   measure,scaling,stale,length,depth,from,to,value,error,count
//
// measure: perplexity, growing, `task` ("passkey" and so on), prefill_tok_s, decode_tok_s or cache_bytes.
// from and to: the positions that a row is of; empty: all. error: one standard error of a perplexity; of a
// share the half width of Wilson's interval at one standard error, which is not 0 where all or none are
// found. count: the tokens or trials that value is the mean of. A field is empty where there is no number.
std::string results_csv(std::span<const nlohmann::ordered_json> records, const std::string& task);

}  // namespace lariat
