#include "engine/eval/sweep_log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>

#include "engine/eval/needles.h"
#include "kernels/error.h"
#include "models/io/atomic_file.h"
#include "models/io/json_fields.h"
#include "models/io/json_file.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// A line of a result has some 400 bytes, the header a few more for each scaling and length; with the losses
// of tokens some 20 for each.
constexpr uint64_t kMaxLogBytes = uint64_t{64} << 20;
constexpr size_t kMaxLineBytes = size_t{16} << 20;
constexpr int kVersion = 1;
constexpr std::string_view kLogStart = "{\"lariat_sweep\":";

// A report has a cell for each scaling, length and depth, and looks at all scalings of a length for most of
// them.
constexpr size_t kMaxList = 100, kMaxCells = 10'000;
// Sums of these stay within 64 bits and are exact in double.
constexpr int64_t kMaxCount = int64_t{1} << 49;
constexpr double kMostNumber = std::numeric_limits<double>::max();

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw Error(file.string() + ": " + what);
}

// --- the members that tables and reports read: there, of their type and in their bounds ---

template <class T>
size_t list(const JsonFields& fields, const char* key, const std::optional<std::vector<T>>& values) {
  if (!values || values->empty() || values->size() > kMaxList) {
    fields.fail(key, fmt::format("expected a list of 1 to {}", kMaxList));
  }
  return values->size();
}

void check_fields(const JsonFields& header) {
  header.need_object("model").need_string("name");
  if (!header.present("text")) header.fail("text", "expected an object or null");
  if (header.has("text")) header.need_object("text").need_string("name");
  header.need_integer("original_ctx", 1, kMaxCount);
  size_t cells = list(header, "scalings", header.strings("scalings"));
  header.integers("lengths", 1, kMaxCount);
  if (header.has("methods")) header.need_object("methods");
  cells *= list(header, "lengths", header.numbers("lengths", 1, static_cast<double>(kMaxCount)));
  const JsonFields perplexity = header.need_object("perplexity"), passkey = header.need_object("passkey");
  if (passkey.present("tasks")) cells *= list(passkey, "tasks", passkey.strings("tasks"));
  if (perplexity.need_boolean("measured")) header.need_object("text");
  perplexity.need_string("method");
  perplexity.need_integer("stride", 0, kMaxCount);
  perplexity.need_number("max_tokens", -kMostNumber, kMostNumber);
  passkey.need_boolean("measured");
  cells *= list(passkey, "depths", passkey.numbers("depths", 0.0, 1.0));
  passkey.need_integer("trials", 0, kMaxCount);
  passkey.need_number("seed", -kMostNumber, kMostNumber);
  if (!needle_task(passkey.need_string("task")))
    passkey.fail("task", "expected passkey, multikey, multivalue, multiquery or tracking");
  passkey.need_integer("needles", 1, kMostNeedles);
  passkey.need_object("haystack").need_string("name");
  header.need_object("speed").need_boolean("measured");
  const JsonFields growing = header.need_object("growing");
  if (growing.need_boolean("measured")) {
    header.need_object("text");
    growing.need_integer("step", 1, kMaxCount);
    list(growing, "columns", growing.strings("columns"));
  }
  const JsonFields options = header.need_object("options");
  for (const char* key : {"backend", "dtype", "k_dtype", "v_dtype"}) options.need_string(key);
  if (!options.present("factor")) options.fail("factor", "expected a number or null");
  options.number("factor", -kMostNumber, kMostNumber);
  options.need_boolean("stale_cache");
  if (cells > kMaxCells) {
    throw Error(fmt::format("{} has {} cells (scalings x lengths x depths), more than {}", header.file(),
                            cells, kMaxCells));
  }
}

void check_positions(const JsonFields& record) {
  const auto positions = record.need_objects("positions");
  if (positions.size() > kMaxList) record.fail("positions", fmt::format("expected at most {}", kMaxList));
  for (const JsonFields& bucket : positions) {
    const int64_t from = bucket.need_integer("from", 0, kMaxCount - 1);
    bucket.need_integer("to", from + 1, kMaxCount);
    bucket.need_integer("tokens", 0, kMaxCount);
    bucket.number("loss", -kMostNumber, kMostNumber);  // null where there is no finite one
  }
}

void check_record(const JsonFields& record) {
  const std::string kind = record.need_string("kind");
  record.need_string("scaling");
  record.need_integer("length", 1, kMaxCount);
  record.number("rope_factor", -kMostNumber, kMostNumber);
  if (record.present("task")) record.need_string("task");
  if (kind == "passkey" || record.present("depth")) record.need_number("depth", 0.0, 1.0);
  if (kind == "growing" || record.has("positions")) check_positions(record);
  if (kind == "perplexity") {  // nll is null when a model gives no finite number
    record.need_integer("tokens", 0, kMaxCount);
  } else if (kind == "growing") {
    record.number("factor", -kMostNumber, kMostNumber);
    for (const char* key : {"text_tokens", "holds"}) {
      if (record.present(key)) record.need_integer(key, 1, kMaxCount);
    }
  } else if (kind == "speed") {
    record.need_integer("cache_bytes", 0, kMaxCount);
  } else if (kind == "passkey") {
    const int64_t trials = record.need_integer("trials", 0, kMaxCount);
    if (record.need_integer("correct", 0, kMaxCount) > trials)
      record.fail("correct", "expected at most \"trials\"");
    record.number("recall", 0.0, static_cast<double>(trials));
    if (record.present("trial")) {
      record.need_integer("trial", 0, kMaxCount);
      record.need_string("task");
      record.need_string("answer");
    }
  } else if (kind == "losses") {
    record.need_integer("window", 0, kMaxCount);
    record.need_integer("reached", 0, kMaxCount);
    if (!record.integers("sizes", 0, kMaxCount) || !record.numbers("losses", -1, kMostNumber))
      record.fail("losses", "expected numbers, and as many \"sizes\" as readings");
  } else {
    record.fail("kind", "expected growing, perplexity, passkey, speed or losses");
  }
}

// Runs one of the two checks, and says what to do about a line that fails it.
template <class Check>
void check_line(const Check& check, const Json& line, const std::string& where, const char* what_to_do) {
  try {
    const nlohmann::json unordered = line;
    check(JsonFields(unordered, where));
  } catch (const Error& e) {
    throw Error(std::string(e.what()) + what_to_do);
  }
}

Json parse_line(const std::filesystem::path& file, size_t line_number, std::string_view line) {
  const std::string where = fmt::format("{}: line {}", file.string(), line_number);
  if (line.size() > kMaxLineBytes) {
    throw Error(
        fmt::format("{} has {} bytes, more than any result; remove it, or the file", where, line.size()));
  }
  Json json = parse_ordered_json(line, where);
  if (line_number > 1) {
    check_line(check_record, json, where, "; remove the line, or the file");
    return json;
  }
  if (!json.is_object() || !json.contains("lariat_sweep")) {
    fail(file, "does not begin like the results of a sweep; name another file");
  }
  if (json["lariat_sweep"] != kVersion) fail(file, "was written by another version; measure again");
  return json;
}

// Whether a difference in this member leaves the results the same: a model is known by its fingerprints, and
// logs of earlier versions lack some members.
bool is_label(const std::string& path, const Json& there) {
  return path == "model.name" ||
         (there.is_null() && (path == "options.weights" || path == "options.prefill_chunk"));
}

// "options.stride" and the like, for the first member in which two headers differ; empty: in none.
std::string first_difference(const Json& a, const Json& b, const std::string& path) {
  if (!a.is_object() || !b.is_object()) {
    return a == b || is_label(path, a) ? "" : path + ": " + a.dump() + " there, " + b.dump() + " here";
  }
  Json names = a;
  names.update(b);
  for (const auto& [name, unused] : names.items()) {
    if (path.empty() && name == "shard") continue;
    const Json left = a.contains(name) ? a[name] : Json(), right = b.contains(name) ? b[name] : Json();
    std::string inner = first_difference(left, right, path.empty() ? name : path + "." + name);
    if (!inner.empty()) return inner;
  }
  return "";
}

}  // namespace

std::string record_key(const Json& record) {
  std::string key = record["kind"].get<std::string>() + "/" + record["scaling"].get<std::string>() + "/" +
                    record["length"].dump();
  if (record.contains("depth")) key += "/" + Json(record["depth"].get<double>()).dump();
  for (const char* part : {"task", "trial", "of", "window", "reached"}) {  // of a run's log (run_log.h)
    if (record.contains(part)) key += fmt::format("/{} {}", part, record[part].dump());
  }
  return key;
}

std::set<std::string> record_keys(const SweepRecords& log) {
  std::set<std::string> keys;
  for (const auto& record : log.records) keys.insert(record_key(record));
  return keys;
}

Json without_timing(Json record) {
  record.erase("timing");
  return record;
}

bool is_sweep_log(const std::filesystem::path& file) {
  std::error_code ec;
  std::string start(kLogStart.size(), ' ');
  return std::filesystem::is_regular_file(file, ec) &&
         std::ifstream(file, std::ios::binary).read(start.data(), std::ssize(start)) && start == kLogStart;
}

SweepRecords read_sweep_log(const std::filesystem::path& file, uint64_t* whole_bytes) {
  return parse_sweep_log(read_file(file, kMaxLogBytes), file, whole_bytes);
}

SweepRecords parse_sweep_log(std::string_view text, const std::filesystem::path& file,
                             uint64_t* whole_bytes) {
  SweepRecords log;
  std::map<std::string, size_t> known;  // the records by their keys
  size_t at = 0, number = 0;
  for (size_t end = 0; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    Json json = parse_line(file, ++number, text.substr(at, end - at));
    if (number == 1) {
      log.header = std::move(json);
      continue;
    }
    const auto [found, is_new] = known.try_emplace(record_key(json), log.records.size());
    if (is_new) {
      log.records.push_back(std::move(json));
    } else if (without_timing(log.records[found->second]) != without_timing(json)) {
      fail(file, fmt::format("line {} has another result for {} than a line before it; remove one of them",
                             number, found->first));
    }
  }
  if (number == 0) fail(file, "holds no results; start without `resume`");
  if (whole_bytes != nullptr) *whole_bytes = at;
  return log;
}

void check_header(const Json& header, const std::filesystem::path& file) {
  check_line(check_fields, header, file.string() + ": line 1", "; measure again");
}

void check_same_sweep(const Json& header, const Json& wanted, const std::filesystem::path& file) {
  const std::string difference = first_difference(header, wanted, "");
  if (difference.empty()) return;
  fail(file, "holds results of another sweep (" + difference +
                 "); use the same model, text and options, or another file");
}

SweepRecords merge_sweep_logs(const std::vector<std::filesystem::path>& files) {
  SweepRecords merged;
  std::map<std::string, size_t> where;
  for (const auto& file : files) {
    SweepRecords log = read_sweep_log(file);
    if (merged.header.is_null()) {
      check_header(log.header, file);
      merged.header = log.header;
    }
    check_same_sweep(log.header, merged.header, file);
    for (auto& record : log.records) {
      const auto [found, is_new] = where.try_emplace(record_key(record), merged.records.size());
      if (is_new) {
        merged.records.push_back(std::move(record));
      } else if (without_timing(merged.records[found->second]) != without_timing(record)) {
        fail(file,
             "has another result for " + found->first + " than a file before it; measure one of them again");
      }
    }
  }
  return merged;
}

SweepLog::SweepLog(std::filesystem::path file, const Json& header, bool resume) : file_(std::move(file)) {
  check_writable(file_);
  check_header(header, file_);
  std::error_code ec;
  uint64_t bytes = 0;
  const auto status = std::filesystem::status(file_, ec);
  const bool regular = std::filesystem::is_regular_file(status);
  if (resume && std::filesystem::exists(status) && !regular)
    fail(file_, "is not a regular file, so it holds no results to continue; start without `resume`");
  resume = resume && regular && std::filesystem::file_size(file_, ec) > 0;
  if (resume) {
    contents_ = read_sweep_log(file_, &bytes);
    check_same_sweep(contents_.header, header, file_);
    check_header(contents_.header, file_);  // null and not there are the same to a comparison
  }
  fd_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (resume ? 0 : O_TRUNC), 0666);
  if (fd_ < 0) fail(file_, std::string("cannot be written: ") + std::strerror(errno));
  if (resume) {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
      fail(file_, std::string("cannot be continued: ") + std::strerror(errno));
    }
    return;
  }
  contents_.header = header;
  write_line(header);
}

SweepLog::~SweepLog() {
  if (fd_ >= 0) ::close(fd_);
}

void SweepLog::append(const Json& record) {
  write_line(record);
  contents_.records.push_back(record);
}

// One write() per line: processes that are killed leave whole lines but for the last.
void SweepLog::write_line(const Json& json) {
  if (const int error = write_all(fd_, json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n")) {
    fail(file_, std::string("writing failed: ") + std::strerror(error) + "; results until here are kept");
  }
}

}  // namespace lariat
