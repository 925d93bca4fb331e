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
#include "models/text/unicode.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// Read and written at most; a token's loss takes about 20 bytes.
constexpr uint64_t kMaxLogBytes = uint64_t{64} << 20;
constexpr const char* kVersionKey = "lariat_sweep";
constexpr std::string_view kLogStart = "{\"lariat_sweep\":";

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw Error(file.string() + ": " + what);
}

void parse_line(std::vector<Measurements>& parts, const std::filesystem::path& file, size_t number,
                std::string_view line) {
  const std::string where = fmt::format("{}: line {}", file.string(), number);
  const Json json = parse_ordered_json(line, where);
  const bool plan = json.contains(kVersionKey);
  if (number == 1 && !plan) fail(file, "not a results file; name another file");
  if (plan && json[kVersionKey] != 1) fail(file, "written by another version of lariat; measure again");
  try {
    if (plan) {
      parts.push_back({plan_from_json(json, where)});
    } else {
      parts.back().records.push_back(record_from_json(json, where));
    }
  } catch (const Error& e) {
    throw Error(e.what() + std::string(plan ? "; measure again" : "; remove the line or the file"));
  }
}

// Drops the last record if it repeats another one. Throws Error if the results differ.
void add_once(Measurements& log, std::map<std::string, size_t>& known, const std::string& where) {
  const auto [found, is_new] = known.try_emplace(log.records.back().key(), log.records.size() - 1);
  if (is_new) return;
  if (!same_result(log.records[found->second], log.records.back()))
    throw Error(fmt::format("{}: a second, different result for {}; remove the line or measure again", where,
                            found->first));
  log.records.pop_back();
}

// First differing member of two plans: "passkey.seed: 0 there, 9 here".
std::string first_difference(const Json& there, const Json& here) {
  const Json left = there.flatten(), right = here.flatten();
  Json names = left;
  names.update(right);
  for (const auto& [name, unused] : names.items()) {
    const Json a = left.value(name, Json()), b = right.value(name, Json());
    if (a != b)
      return fmt::format("{}: {} there, {} here", replace_all(name.substr(1), "/", "."), a.dump(), b.dump());
  }
  return "";
}

[[noreturn]] void fail_other(const std::filesystem::path& file, const Json& there, const Json& here) {
  fail(file, "holds results of another measurement (" + first_difference(there, here) +
                 "); use the same model, text and options, or another file");
}

void check_same_model(const Plan& there, const Plan& here, const std::filesystem::path& file) {
  const auto texts = [](const Plan& plan, const Plan& other) {
    Plan of{.model = plan.model};
    of.model.name.clear();
    if (plan.text && other.text)
      of.text = TextFile{.name = plan.text->name, .fingerprint = plan.text->fingerprint};
    if (plan.passkey.measured && other.passkey.measured) of.passkey.haystack = plan.passkey.haystack;
    return to_json(of);
  };
  const Json left = texts(there, here), right = texts(here, there);
  if (left != right) fail_other(file, left, right);
}

// bytes: 0, then the size of all complete lines.
std::vector<Measurements> parse_parts(std::string_view text, const std::filesystem::path& file,
                                      size_t& bytes) {
  std::vector<Measurements> parts;
  std::map<std::string, size_t> known;
  size_t number = 0;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', bytes)) {
    parse_line(parts, file, ++number, text.substr(bytes, end - bytes));
    bytes = end + 1;
    if (parts.back().records.empty()) known.clear();
    if (!parts.back().records.empty())
      add_once(parts.back(), known, fmt::format("{}: line {}", file.string(), number));
  }
  if (number == 0) fail(file, "holds no results; start without `resume`");
  return parts;
}

// files: of each part, or one for all.
Measurements select(const std::vector<Measurements>& parts, const Plan& plan,
                    const std::vector<std::filesystem::path>& files) {
  Measurements log{plan};
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::filesystem::path& file = files[std::min(i, files.size() - 1)];
    check_same_model(parts[i].plan, plan, file);
    for (const Record& record : parts[i].records) {
      if (!plan.covers(record) || plan.identity(record) != parts[i].plan.identity(record)) continue;
      log.records.push_back(record);
      add_once(log, known, file.string());
    }
  }
  return log;
}

}  // namespace

bool is_measurement_log(const std::filesystem::path& file) {
  std::error_code ec;
  std::string start(kLogStart.size(), ' ');
  return std::filesystem::is_regular_file(file, ec) &&
         std::ifstream(file, std::ios::binary).read(start.data(), std::ssize(start)) && start == kLogStart;
}

Measurements read_log(const std::filesystem::path& file) {
  return parse_log(read_file(file, kMaxLogBytes), file);
}

Measurements parse_log(std::string_view text, const std::filesystem::path& file) {
  size_t bytes = 0;
  const auto parts = parse_parts(text, file, bytes);
  return select(parts, parts.back().plan, {file});
}

Measurements merge_logs(const std::vector<std::filesystem::path>& files) {
  std::vector<Measurements> logs;
  logs.reserve(files.size());
  for (const auto& file : files) logs.push_back(read_log(file));
  Plan plan = logs.front().plan;
  for (const Measurements& log : logs) plan.join(log.plan);
  for (size_t i = 0; i < logs.size(); ++i) {
    for (const Record& record : logs[i].records) {
      const Json there = logs[i].plan.identity(record), here = plan.identity(record);
      if (there != here) fail_other(files[i], there, here);
    }
  }
  return select(logs, plan, files);
}

MeasurementLog::MeasurementLog(std::filesystem::path file, const Plan& plan, bool resume)
    : file_(std::move(file)) {
  check_writable(file_);
  std::error_code ec;
  size_t bytes = 0;
  bool continues = false;
  const auto status = std::filesystem::status(file_, ec);
  const bool regular = std::filesystem::is_regular_file(status);
  if (resume && std::filesystem::exists(status) && !regular)
    fail(file_, "not a regular file, so it cannot be resumed; start without `resume`");
  resume = resume && regular && std::filesystem::file_size(file_, ec) > 0;
  if (resume) {
    const auto parts = parse_parts(read_file(file_, kMaxLogBytes), file_, bytes);
    contents_ = select(parts, plan, {file_});
    continues = to_json(parts.back().plan) == to_json(plan);
  }
  fd_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (resume ? 0 : O_TRUNC), 0666);
  if (fd_ < 0) fail(file_, std::string("cannot be written: ") + std::strerror(errno));
  if (resume && ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
    fail(file_, std::string("cannot be resumed: ") + std::strerror(errno));
  bytes_ = bytes;
  regular_ = std::filesystem::is_regular_file(file_, ec);
  contents_.plan = plan;
  if (!continues) write_line(to_json(plan));
}

MeasurementLog::~MeasurementLog() { ::close(fd_); }

void MeasurementLog::append(const Record& record) {
  write_line(to_json(record));
  contents_.records.push_back(record);
}

// One write() per line: killed processes leave at most one incomplete line, the last.
void MeasurementLog::write_line(const Json& json) {
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (regular_ && bytes_ + line.size() > kMaxLogBytes)
    fail(file_,
         fmt::format("full: a resumed run reads at most {} MiB; measure fewer tokens, or keep no results",
                     kMaxLogBytes >> 20));
  if (const int error = write_all(fd_, line)) {
    fail(file_, std::string("writing failed: ") + std::strerror(error) +
                    "; check the space on its disk, earlier results are kept");
  }
  bytes_ += line.size();
}

}  // namespace lariat
