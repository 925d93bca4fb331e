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

#include "models/atomic_file.h"
#include "kernels/error.h"
#include "models/json_fields.h"
#include "models/json_file.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// A line of a result has some 400 bytes, the header a few more for each scaling and length.
constexpr uint64_t kMaxLogBytes = uint64_t{64} << 20;
constexpr size_t kMaxLineBytes = size_t{64} << 10;
constexpr int kVersion = 1;

// A report has a cell for each scaling, length and depth, and looks at all scalings of a length for most of
// them.
constexpr size_t kMaxList = 100, kMaxCells = 10'000;
// Sums of these stay within 64 bits and are exact in double.
constexpr int64_t kMaxCount = int64_t{1} << 50;

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what,
                       Remedy remedy = Remedy::kNone) {
  throw Error(file.string() + ": " + what, remedy);
}

// --- the members that tables and reports read: there, of their type and in their bounds ---

template <class T>
T required(const JsonFields& fields, const char* key, const std::optional<T>& value, const char* expected) {
  if (!value) fields.fail(key, std::string("expected ") + expected);
  return *value;
}

JsonFields part(const JsonFields& fields, const char* key) {
  return required(fields, key, fields.object(key), "an object");
}

std::string text(const JsonFields& fields, const char* key) {
  return required(fields, key, fields.string(key), "a string");
}

bool flag(const JsonFields& fields, const char* key) {
  return required(fields, key, fields.boolean(key), "true or false");
}

int64_t count(const JsonFields& fields, const char* key, int64_t low = 0) {
  return required(fields, key, fields.integer(key, low, kMaxCount), "a count");
}

double share(const JsonFields& fields, const char* key) {
  return required(fields, key, fields.number(key, 0.0, 1.0), "a number from 0 to 1");
}

std::optional<double> number(const JsonFields& fields, const char* key) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return fields.number(key, -kMost, kMost);
}

template <class T>
size_t list(const JsonFields& fields, const char* key, const std::optional<std::vector<T>>& values) {
  if (!values || values->empty() || values->size() > kMaxList) {
    fields.fail(key, fmt::format("expected a list of 1 to {}", kMaxList));
  }
  return values->size();
}

void check_fields(const JsonFields& header) {
  text(part(header, "model"), "name");
  if (!header.present("text")) header.fail("text", "expected an object or null");
  if (header.has("text")) text(part(header, "text"), "name");
  count(header, "original_ctx", 1);
  header.integers("lengths", 1, kMaxCount);
  size_t cells = list(header, "scalings", header.strings("scalings")) *
                 list(header, "lengths", header.numbers("lengths", 1, static_cast<double>(kMaxCount)));
  const JsonFields perplexity = part(header, "perplexity"), passkey = part(header, "passkey");
  if (flag(perplexity, "measured") && !header.has("text")) header.fail("text", "expected an object");
  text(perplexity, "method");
  count(perplexity, "stride");
  required(perplexity, "max_tokens", number(perplexity, "max_tokens"), "a number");
  flag(passkey, "measured");
  cells *= list(passkey, "depths", passkey.numbers("depths", 0.0, 1.0));
  count(passkey, "trials");
  required(passkey, "seed", number(passkey, "seed"), "a number");
  flag(part(header, "speed"), "measured");
  const JsonFields options = part(header, "options");
  for (const char* key : {"backend", "dtype", "k_dtype", "v_dtype"}) text(options, key);
  if (!options.present("factor")) options.fail("factor", "expected a number or null");
  number(options, "factor");
  flag(options, "stale_cache");
  if (cells > kMaxCells) {
    throw Error(fmt::format("{} has {} cells (scalings x lengths x depths), more than {}", header.file(),
                            cells, kMaxCells));
  }
}

void check_record(const JsonFields& record) {
  const std::string kind = text(record, "kind");
  text(record, "scaling");
  count(record, "length", 1);
  if (kind == "passkey" || record.present("depth")) share(record, "depth");
  if (kind == "perplexity") {  // nll is null when a model gives no finite number
    count(record, "tokens");
  } else if (kind == "speed") {
    count(record, "cache_bytes");
  } else if (kind == "passkey") {
    if (count(record, "correct") > count(record, "trials"))
      record.fail("correct", "expected at most \"trials\"");
  } else {
    record.fail("kind", "expected perplexity, passkey or speed");
  }
}

// Both checks, with what to do about a line that fails them.
template <class Check>
void check_line(const Check& check, const Json& line, const std::string& where, const char* what_to_do) {
  try {
    const nlohmann::json unordered = line;
    check(JsonFields(unordered, where));
  } catch (const Error& e) {
    throw Error(std::string(e.what()) + what_to_do);
  }
}

// A header written when scale steps were called rungs.
void rename_rungs(Json& header) {
  if (!header.contains("options") || !header["options"].is_object()) return;
  Json& options = header["options"];
  if (!options.contains("rungs")) return;
  options["steps_per_octave"] = options["rungs"];
  options.erase("rungs");
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
  rename_rungs(json);
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

// --- fingerprints ---

constexpr std::streamoff kEnds = 1 << 20;  // bytes of either end of a file of weights

class Hash {
 public:
  void add(const char* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      value_ = (value_ ^ static_cast<unsigned char>(data[i])) * 0x100000001B3U;
  }
  void add(const std::string& name) { add(name.c_str(), name.size() + 1); }
  std::string hex() const { return fmt::format("{:016x}", value_); }

 private:
  uint64_t value_ = 0xCBF29CE484222325U;
};

std::ifstream open(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(file.string() + ": cannot be read; check the name and its permissions");
  return in;
}

// At most `bytes` from where the stream stands.
void add_stream(std::ifstream& in, uintmax_t bytes, Hash& hash) {
  std::vector<char> buffer(1 << 16);
  while (bytes > 0 && in) {
    in.read(buffer.data(), static_cast<std::streamsize>(std::min<uintmax_t>(bytes, buffer.size())));
    const auto n = static_cast<size_t>(in.gcount());
    hash.add(buffer.data(), n);
    bytes -= n;
  }
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

std::string file_fingerprint(const std::filesystem::path& file) {
  Hash hash;
  std::ifstream in = open(file);
  add_stream(in, UINTMAX_MAX, hash);
  return hash.hex();
}

std::string model_fingerprint(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string(), extension = entry.path().extension().string();
    const bool counts = extension == ".safetensors" || name == "config.json" || name == "tokenizer.json" ||
                        name == "tokenizer.model" || name == "tokenizer_config.json";
    if (counts && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Hash hash;
  for (const auto& file : files) {
    std::ifstream in = open(file);
    const auto size = std::filesystem::file_size(file);
    hash.add(file.filename().string());
    hash.add(std::to_string(size));
    const bool weights = file.extension() == ".safetensors" && size > 2 * static_cast<uintmax_t>(kEnds);
    add_stream(in, weights ? static_cast<uintmax_t>(kEnds) : size, hash);
    if (weights) {
      in.seekg(-kEnds, std::ios::end);
      add_stream(in, static_cast<uintmax_t>(kEnds), hash);
    }
  }
  return hash.hex();
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
  if (number == 0) fail(file, "holds no results", Remedy::kFreshLog);
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
  if (const int error = write_all(fd_, json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n")) {
    fail(file_, std::string("writing failed: ") + std::strerror(error) + "; results until here are kept");
  }
}

}  // namespace lariat
