#include "engine/eval/sweep_schema.h"

#include <algorithm>

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// A report has a cell for each scaling, length and depth, and looks at all scalings of a length for most of
// them.
constexpr size_t kMaxList = 100, kMaxCells = 10'000;
// Sums of these stay within 64 bits and are exact in double.
constexpr int64_t kMaxCount = int64_t{1} << 50;

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

bool is_text(const Json* value) { return value != nullptr && value->is_string(); }
bool is_flag(const Json* value) { return value != nullptr && value->is_boolean(); }
bool is_number(const Json* value) { return value != nullptr && value->is_number(); }

bool is_count(const Json* value, int64_t low = 0) {
  if (value == nullptr || !value->is_number_integer()) return false;
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(kMaxCount)) return false;
  return value->get<int64_t>() >= low && value->get<int64_t>() <= kMaxCount;
}

bool is_share(const Json* value) {
  return is_number(value) && value->get<double>() >= 0.0 && value->get<double>() <= 1.0;
}

template <class Test>
bool is_list(const Json* value, const Test& test) {
  return value != nullptr && value->is_array() && !value->empty() && value->size() <= kMaxList &&
         std::all_of(value->begin(), value->end(), [&](const Json& item) { return test(&item); });
}

std::string no(const std::string& path) { return "no usable \"" + path + "\""; }

std::string perplexity_problem(const Json& perplexity) {
  if (!is_flag(member(perplexity, "measured"))) return no("perplexity.measured");
  if (!is_text(member(perplexity, "method"))) return no("perplexity.method");
  if (!is_count(member(perplexity, "stride"))) return no("perplexity.stride");
  return is_number(member(perplexity, "max_tokens")) ? "" : no("perplexity.max_tokens");
}

std::string passkey_problem(const Json& passkey) {
  if (!is_flag(member(passkey, "measured"))) return no("passkey.measured");
  if (!is_list(member(passkey, "depths"), is_share)) return no("passkey.depths");
  if (!is_count(member(passkey, "trials"))) return no("passkey.trials");
  return is_number(member(passkey, "seed")) ? "" : no("passkey.seed");
}

std::string options_problem(const Json& options) {
  for (const char* key : {"backend", "dtype", "k_dtype", "v_dtype"}) {
    if (!is_text(member(options, key))) return no(std::string("options.") + key);
  }
  const Json* factor = member(options, "factor");
  if (factor == nullptr || !(factor->is_null() || factor->is_number())) return no("options.factor");
  return is_flag(member(options, "stale_cache")) ? "" : no("options.stale_cache");
}

}  // namespace

std::string header_problem(const Json& header) {
  static const Json kNothing;
  const auto part = [&](const char* key) -> const Json& {
    const Json* value = member(header, key);
    return value == nullptr ? kNothing : *value;
  };
  const auto is_length = [](const Json* value) { return is_count(value, 1); };
  if (!is_text(member(part("model"), "name"))) return no("model.name");
  if (member(header, "text") == nullptr) return no("text");
  if (!part("text").is_null() && !is_text(member(part("text"), "name"))) return no("text.name");
  if (!is_length(member(header, "original_ctx"))) return no("original_ctx");
  if (!is_list(member(header, "scalings"), is_text)) return no("scalings");
  if (!is_list(member(header, "lengths"), is_length)) return no("lengths");
  std::string problem = perplexity_problem(part("perplexity"));
  if (problem.empty() && part("perplexity")["measured"] == true && part("text").is_null())
    problem = no("text");
  if (problem.empty()) problem = passkey_problem(part("passkey"));
  if (problem.empty() && !is_flag(member(part("speed"), "measured"))) problem = no("speed.measured");
  if (problem.empty()) problem = options_problem(part("options"));
  if (!problem.empty()) return problem;
  const size_t cells = part("scalings").size() * part("lengths").size() * part("passkey")["depths"].size();
  if (cells <= kMaxCells) return "";
  return std::to_string(cells) + " cells (scalings x lengths x depths), more than " +
         std::to_string(kMaxCells);
}

std::string record_problem(const Json& record) {
  if (!is_text(member(record, "kind"))) return no("kind");
  if (!is_text(member(record, "scaling"))) return no("scaling");
  if (!is_count(member(record, "length"), 1)) return no("length");
  const std::string kind = record["kind"];
  if (member(record, "depth") != nullptr && !is_share(member(record, "depth"))) return no("depth");
  if (kind == "perplexity") {  // nll is null when a model gives no finite number
    return is_count(member(record, "tokens")) ? "" : no("tokens");
  }
  if (kind == "speed") return is_count(member(record, "cache_bytes")) ? "" : no("cache_bytes");
  if (kind != "passkey") return "an unknown kind, \"" + kind.substr(0, 60) + "\"";
  if (member(record, "depth") == nullptr) return no("depth");
  for (const char* key : {"trials", "correct"}) {
    if (!is_count(member(record, key))) return no(key);
  }
  return record["correct"].get<int64_t>() <= record["trials"].get<int64_t>() ? "" : no("correct");
}

}  // namespace lariat
