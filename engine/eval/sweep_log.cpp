#include "engine/eval/sweep_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "engine/eval/sweep_schema.h"
#include "engine/writable.h"
#include "kernels/error.h"
#include "models/json_file.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// A line of a result has some 400 bytes, the header a few more for each scaling and length.
constexpr uint64_t kMaxLogBytes = uint64_t{64} << 20;
constexpr size_t kMaxLineBytes = size_t{64} << 10;
constexpr int kVersion = 1;

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw Error(file.string() + ": " + what);
}

Json parse_line(const std::filesystem::path& file, size_t number, std::string_view line) {
  const std::string where = "line " + std::to_string(number);
  if (line.size() > kMaxLineBytes) {
    fail(file, where + " has " + std::to_string(line.size()) +
                   " bytes, more than any result; remove it, or the file");
  }
  Json json = parse_ordered_json(line, file.string() + ": " + where);
  if (number == 1) {
    if (!json.is_object() || !json.contains("lariat_sweep")) {
      fail(file, "does not begin like the results of a sweep; name another file");
    }
    if (json["lariat_sweep"] != kVersion) fail(file, "was written by another version; measure again");
    return json;
  }
  const std::string problem = record_problem(json);
  if (!problem.empty()) fail(file, where + " has " + problem + "; remove the line, or the file");
  return json;
}

// "options.stride" and the like, for the first member in which two headers differ; empty: in none.
std::string first_difference(const Json& a, const Json& b, const std::string& path) {
  if (!a.is_object() || !b.is_object()) {
    return a == b ? "" : path + ": " + a.dump() + " there, " + b.dump() + " here";
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
  return key;
}

Json without_timing(Json record) {
  record.erase("timing");
  return record;
}

SweepRecords read_sweep_log(const std::filesystem::path& file, uint64_t* whole_bytes) {
  return parse_sweep_log(read_file(file, kMaxLogBytes), file, whole_bytes);
}

SweepRecords parse_sweep_log(std::string_view text, const std::filesystem::path& file,
                             uint64_t* whole_bytes) {
  SweepRecords log;
  size_t at = 0, number = 0;
  for (size_t end = 0; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    Json json = parse_line(file, ++number, text.substr(at, end - at));
    if (number == 1) {
      log.header = std::move(json);
    } else {
      log.records.push_back(std::move(json));
    }
  }
  if (number == 0) fail(file, "holds no results; start without --resume");
  if (whole_bytes != nullptr) *whole_bytes = at;
  return log;
}

void check_header(const Json& header, const std::filesystem::path& file) {
  const std::string problem = header_problem(header);
  if (!problem.empty()) fail(file, "line 1 has " + problem + "; measure again");
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
  resume = resume && std::filesystem::exists(file_, ec) && std::filesystem::file_size(file_, ec) > 0;
  if (resume) {
    contents_ = read_sweep_log(file_, &bytes);
    check_same_sweep(contents_.header, header, file_);
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
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + at, line.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail(file_, std::string("writing failed: ") + std::strerror(errno) + "; results until here are kept");
    at += static_cast<size_t>(n);
  }
}

}  // namespace lariat
