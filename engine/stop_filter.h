#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lariat {

// Passes streamed text through until one of the stop strings appears in it, holding back only what may be the
// beginning of one.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
    std::erase(stops_, std::string());  // an empty stop string would end every text
  }

  bool stopped() const { return stopped_; }

  // Text that may be shown now.
  std::string push(const std::string& piece) {
    if (stopped_) return "";
    held_ += piece;
    size_t cut = std::string::npos;
    for (const auto& stop : stops_) cut = std::min(cut, held_.find(stop));
    stopped_ = cut != std::string::npos;
    const size_t ready = stopped_ ? cut : held_.size() - longest_beginning();
    std::string shown = held_.substr(0, ready);
    held_.erase(0, stopped_ ? held_.size() : ready);
    return shown;
  }

  // Returns the text that was held back, once no more can come.
  std::string flush() { return std::exchange(held_, std::string()); }

 private:
  // Length of the longest end of held_ that begins a stop string.
  size_t longest_beginning() const {
    size_t longest = 0;
    for (const auto& stop : stops_) {
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
        if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) longest = n;
      }
    }
    return longest;
  }

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace lariat
