#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lariat {

// Haystack text, repeated endlessly.
struct Hay {
  std::filesystem::path file;  // empty: the noise text
  std::string text;            // one round, trimmed, plus the separator
  bool restarts = true;        // restarts after each needle; false: continues
  // Allowed cuts, as byte offsets: word ends, around full stops, and between characters of scripts without
  // spaces.
  std::vector<size_t> places;

  // Byte offset of a place in the endless text.
  size_t bytes(size_t place) const;
  // Bytes [begin, end) of the endless text, extended to whole characters.
  std::string cut(size_t begin, size_t end) const;
  bool ends_sentence(size_t place) const;
};

// The sentences of landmark-attention.
std::shared_ptr<const Hay> noise_hay();
// Loads at most 64 MiB. Throws Error naming the file if it is empty or not UTF-8.
std::shared_ptr<const Hay> read_hay(const std::filesystem::path& file);
// name: "noise" or a file.
std::shared_ptr<const Hay> open_hay(const std::string& name);

}  // namespace lariat
