#include "tools/serve/prompt_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/saved_context.h"
#include "engine/runtime/request.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

// A sequence that keeps the RoPE frequencies of a loaded cache: a dynamic scale moves them only with the
// next tokens.
SequenceOptions as_saved(const Session& session) {
  SequenceOptions options{session.rope(), PositionMethod{}};
  options.rope->type = RopeType::kDynamic;
  return options;
}

std::string file_name(const RopeFrequencies& frequencies, std::span<const int32_t> tokens) {
  uint64_t sum = 0;
  add_to_checksum(sum, std::as_bytes(std::span(frequencies.inv_freq)));
  add_to_checksum(sum, std::as_bytes(std::span(&frequencies.attention_factor, 1)));
  add_to_checksum(sum, std::as_bytes(tokens));
  return fmt::format("prompt-{:016x}.context", sum);
}

bool is_prompt(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  return entry.is_regular_file() && name.starts_with("prompt-") && name.ends_with(".context");
}

}  // namespace

PromptStore::PromptStore(Session& session, fs::path folder, uint64_t most_bytes,
                         std::function<void(const std::string& line)> warn)
    : session_(session), folder_(std::move(folder)), most_bytes_(most_bytes), warn_(std::move(warn)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (!fs::is_directory(folder_))
    throw Error(fmt::format("{}: no folder can be made ({}); use another --cache-dir", folder_.string(),
                            error ? error.message() : "a file has its name"));
  list();
}

void PromptStore::list() {
  std::vector<fs::directory_entry> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
    if (is_prompt(entry)) files.push_back(entry);
  std::ranges::sort(files, std::greater(), [](const auto& file) { return file.last_write_time(); });
  const Sequence probe = session_.new_sequence(as_saved(session_));
  for (const fs::directory_entry& file : files) {
    try {
      OpenedContext opened = open_context(session_, probe, file.path());
      stored_.push_back({file.path(), std::move(opened.record.frequencies), std::move(opened.record.tokens),
                         file.file_size()});
    } catch (const Error& error) {
      warn_(fmt::format("{}; this prompt is left alone", error.what()));
    }
  }
}

Sequence PromptStore::shared(const SequenceOptions& options, std::span<const int32_t> prompt) {
  Sequence sequence = session_.new_sequence(options);
  session_.share_prefix(sequence, prompt, std::ssize(prompt));
  return sequence;
}

std::pair<PromptStore::Entry, int64_t> PromptStore::longest(const RopeFrequencies& frequencies,
                                                            std::span<const int32_t> prompt) {
  std::pair<Entry, int64_t> best{stored_.end(), 0};
  const int64_t chunk = session_.options().shared_chunk();
  for (auto entry = stored_.begin(); entry != stored_.end(); ++entry) {
    const int64_t length = common_prefix(entry->tokens, prompt) / chunk * chunk;
    if (length > best.second && entry->frequencies == frequencies) best = {entry, length};
  }
  return best;
}

void PromptStore::use(Entry entry) {
  std::error_code ignored;
  fs::last_write_time(entry->file, fs::file_time_type::clock::now(), ignored);
  stored_.splice(stored_.begin(), stored_, entry);
}

void PromptStore::find(const SequenceOptions& options, std::span<const int32_t> prompt) {
  const Sequence held = shared(options, prompt);
  if (!held.method().name.empty()) return;
  const auto frequencies = frequencies_for(session_.options(), held.rope(), std::ssize(prompt));
  const auto [entry, length] = longest(frequencies, prompt);
  if (length <= held.length()) return;
  try {
    const SavedContext loaded = load_context(session_, entry->file, as_saved(session_));
    session_.prefixes().name(loaded.sequence, loaded.tokens);
    session_.prefixes().keep(loaded.sequence.cache());
    use(entry);
  } catch (const std::exception& error) {
    warn_(error.what());
    stored_.erase(entry);
  }
}

void PromptStore::keep(const SequenceOptions& options, std::span<const int32_t> prompt) {
  const Sequence held = shared(options, prompt);
  if (held.length() == 0) return;
  const std::span tokens = prompt.first(static_cast<size_t>(held.length()));
  const RopeFrequencies& frequencies = held.cache().frequencies();
  if (const auto [entry, length] = longest(frequencies, tokens); length == held.length()) return use(entry);
  const fs::path file = folder_ / file_name(frequencies, tokens);
  try {
    make_room(held.cache().bytes());
    save_context(session_, held, tokens, file, "a prompt of lariat serve");
    stored_.push_front({file, frequencies, {tokens.begin(), tokens.end()}, fs::file_size(file)});
  } catch (const std::exception& error) {
    warn_(error.what());
  }
}

void PromptStore::make_room(uint64_t bytes) {
  for (const Stored& stored : stored_) bytes += stored.bytes;
  for (; bytes > most_bytes_ && !stored_.empty(); stored_.pop_back()) {
    std::error_code ignored;
    fs::remove(stored_.back().file, ignored);
    bytes -= stored_.back().bytes;
  }
}

}  // namespace lariat
