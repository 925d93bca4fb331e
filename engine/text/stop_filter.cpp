#include "engine/text/stop_filter.h"

#include <algorithm>

#include "models/text/unicode.h"

namespace lariat {

StopFilter::StopFilter(const Tokenizer& tokenizer, StreamDecoder decoder, std::vector<std::string> stops)
    : tokenizer_(tokenizer), decoder_(std::move(decoder)), stops_(std::move(stops)) {
  std::erase(stops_, std::string());  // an empty stop string would end every text
}

std::string StopFilter::push(int32_t id) {
  if (stopped_) return "";
  if (stops_.empty()) return decoder_.push(id);
  const std::string bytes = tokenizer_.bytes_of(id);
  held_ += bytes;
  waiting_.emplace_back(id, bytes.size());
  size_t cut = std::string::npos;
  for (const auto& stop : stops_) cut = std::min(cut, held_.find(stop));
  stopped_ = cut != std::string::npos;
  return release(stopped_ ? cut : held_.size() - longest_beginning());
}

std::string StopFilter::flush() { return stopped_ ? "" : release(held_.size()) + decoder_.flush(); }

// Text of the tokens that end within the first `bytes`; after a stop, of exactly these bytes.
std::string StopFilter::release(size_t bytes) {
  std::string shown;
  auto token = waiting_.begin();
  size_t at = 0;
  for (; token != waiting_.end() && at + token->second <= bytes; at += token++->second)
    shown += decoder_.push(token->first);
  if (stopped_) {
    const bool part = at < bytes && !tokenizer_.is_special(token->first);
    if (part) shown += decoder_.push(token->first);
    shown += decoder_.flush();
    const std::string rest = part ? valid_utf8(held_.substr(bytes, at + token->second - bytes)) : "";
    if (shown.ends_with(rest)) shown.resize(shown.size() - rest.size());
  }
  waiting_.erase(waiting_.begin(), token);
  held_.erase(0, at);
  return shown;
}

// Length of the longest suffix of held_ that is a prefix of a stop string.
size_t StopFilter::longest_beginning() const {
  size_t longest = 0;
  for (const auto& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) longest = n;
    }
  }
  return longest;
}

}  // namespace lariat
