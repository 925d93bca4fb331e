#include "engine/eval/measurement_log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "kernels/error.h"
#include "models/io/atomic_file.h"
#include "models/io/json_file.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// A line of a result has some 400 bytes, the header a few more for each scaling and length; with the losses
// of tokens some 20 for each.
constexpr uint64_t kMaxLogBytes = uint64_t{64} << 20;
constexpr size_t kMaxLineBytes = size_t{16} << 20;
constexpr const char* kVersionKey = "lariat_sweep";
constexpr std::string_view kLogStart = "{\"lariat_sweep\":";

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw Error(file.string() + ": " + what);
}

// Parses a line of a log, the first of which is its plan.
void parse_line(Measurements& log, const std::filesystem::path& file, size_t number, std::string_view line) {
  const std::string where = fmt::format("{}: line {}", file.string(), number);
  if (line.size() > kMaxLineBytes)
    throw Error(fmt::format("{} has {} bytes, more than any result; remove the line, or the file", where,
                            line.size()));
  const Json json = parse_ordered_json(line, where);
  if (number == 1 && (!json.is_object() || !json.contains(kVersionKey)))
    fail(file, "does not begin like the results of a measurement; name another file");
  if (number == 1 && json[kVersionKey] != 1) fail(file, "was written by another version; measure again");
  try {
    if (number == 1) {
      log.plan = plan_from_json(json, where);
    } else {
      log.records.push_back(record_from_json(json, where));
    }
  } catch (const Error& e) {
    throw Error(e.what() + std::string(number == 1 ? "; measure again" : "; remove the line, or the file"));
  }
}

// Adds the last record to those with other keys. Throws Error where it repeats a key with another result.
void add_once(Measurements& log, std::map<std::string, size_t>& known, const std::string& where) {
  const auto [found, is_new] = known.try_emplace(log.records.back().key(), log.records.size() - 1);
  if (is_new) return;
  if (!same_result(log.records[found->second], log.records.back()))
    throw Error(fmt::format("{} has another result for {} than before; remove it, or measure again", where,
                            found->first));
  log.records.pop_back();
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

bool is_measurement_log(const std::filesystem::path& file) {
  std::error_code ec;
  std::string start(kLogStart.size(), ' ');
  return std::filesystem::is_regular_file(file, ec) &&
         std::ifstream(file, std::ios::binary).read(start.data(), std::ssize(start)) && start == kLogStart;
}

Measurements read_log(const std::filesystem::path& file, uint64_t* whole_bytes) {
  return parse_log(read_file(file, kMaxLogBytes), file, whole_bytes);
}

Measurements parse_log(std::string_view text, const std::filesystem::path& file, uint64_t* whole_bytes) {
  Measurements log;
  std::map<std::string, size_t> known;
  size_t at = 0, number = 0;
  for (size_t end = 0; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    parse_line(log, file, ++number, text.substr(at, end - at));
    if (number > 1) add_once(log, known, fmt::format("{}: line {}", file.string(), number));
  }
  if (number == 0) fail(file, "holds no results; start without `resume`");
  if (whole_bytes != nullptr) *whole_bytes = at;
  return log;
}

void check_same_plan(const Plan& plan, const Plan& wanted, const std::filesystem::path& file) {
  const std::string difference = first_difference(to_json(plan), to_json(wanted), "");
  if (difference.empty()) return;
  fail(file, "holds results of another measurement (" + difference +
                 "); use the same model, text and options, or another file");
}

Measurements merge_logs(const std::vector<std::filesystem::path>& files) {
  Measurements merged;
  std::map<std::string, size_t> known;
  for (const auto& file : files) {
    Measurements log = read_log(file);
    if (file == files.front()) merged.plan = log.plan;
    check_same_plan(log.plan, merged.plan, file);
    for (Record& record : log.records) {
      merged.records.push_back(std::move(record));
      add_once(merged, known, file.string());
    }
  }
  return merged;
}

MeasurementLog::MeasurementLog(std::filesystem::path file, const Plan& plan, bool resume)
    : file_(std::move(file)) {
  check_writable(file_);
  std::error_code ec;
  uint64_t bytes = 0;
  const auto status = std::filesystem::status(file_, ec);
  const bool regular = std::filesystem::is_regular_file(status);
  if (resume && std::filesystem::exists(status) && !regular)
    fail(file_, "is not a regular file, so it holds no results to continue; start without `resume`");
  resume = resume && regular && std::filesystem::file_size(file_, ec) > 0;
  if (resume) {
    contents_ = read_log(file_, &bytes);
    check_same_plan(contents_.plan, plan, file_);
  }
  fd_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (resume ? 0 : O_TRUNC), 0666);
  if (fd_ < 0) fail(file_, std::string("cannot be written: ") + std::strerror(errno));
  if (resume) {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
      fail(file_, std::string("cannot be continued: ") + std::strerror(errno));
    }
    return;
  }
  contents_.plan = plan;
  write_line(to_json(plan));
}

MeasurementLog::~MeasurementLog() {
  if (fd_ >= 0) ::close(fd_);
}

void MeasurementLog::append(const Record& record) {
  write_line(to_json(record));
  contents_.records.push_back(record);
}

// One write() per line: processes that are killed leave whole lines but for the last.
void MeasurementLog::write_line(const Json& json) {
  if (const int error = write_all(fd_, json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n")) {
    fail(file_, std::string("writing failed: ") + std::strerror(error) + "; results until here are kept");
  }
}

}  // namespace lariat
