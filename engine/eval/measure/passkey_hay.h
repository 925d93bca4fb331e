#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lariat {

// The text that needles are hidden in: one round of it, repeated for ever.
struct Hay {
  std::filesystem::path file;  // empty: the noise
  std::string text;      // a round, without white space at its ends, and what separates it from the next
  bool restarts = true;  // from its beginning behind each needle; else it goes on
  // The places at which it may be cut: bytes up to the end of each word, before and behind a full stop, and
  // between the characters of scripts that write no spaces.
  std::vector<size_t> places;

  // The number of bytes up to the n-th place of the endless text; 0 for place 0.
  size_t bytes(size_t place) const;
  // The endless text from byte `begin` to `end`, no character cut in two.
  std::string cut(size_t begin, size_t end) const;
  // True where a sentence ends at that place.
  bool ends_sentence(size_t place) const;
};

// The five sentences of landmark-attention, again and again.
std::shared_ptr<const Hay> noise_hay();
// Reads a text of the user's own, at most 64 MiB. Throws Error naming the file when there is no text in it or
// it is not UTF-8.
std::shared_ptr<const Hay> read_hay(const std::filesystem::path& file);
// The hay of a name: "noise", or a file.
std::shared_ptr<const Hay> open_hay(const std::string& name);

}  // namespace lariat
