#include "engine/eval/measure/passkey_hay.h"

#include <algorithm>

#include "engine/eval/measure/token_source.h"
#include "kernels/error.h"
#include "models/io/text_file.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

constexpr uint64_t kMaxHayBytes = uint64_t{64} << 20;
constexpr std::string_view kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
constexpr std::string_view kSpaces = " \t\r\n\f\v";

bool is_space(char c) { return kSpaces.find(c) != std::string_view::npos; }

constexpr size_t kLongestWord = 64;  // bytes

std::shared_ptr<const Hay> make_hay(std::string_view round, bool restarts) {
  auto hay = std::make_shared<Hay>();
  for (size_t i = 1; i < round.size(); ++i) {
    const bool word_end = is_space(round[i]) && !is_space(round[i - 1]);
    // Start of a character of 3 or more bytes, except typographic punctuation (U+2000 ...), as in "don’t".
    const auto byte = static_cast<unsigned char>(round[i]);
    const bool unspaced = byte >= 0xE0 && byte != 0xE2;
    // Very long words, such as base64, are cut too.
    const size_t last = hay->places.empty() ? 0 : hay->places.back();
    const bool endless = i - last >= kLongestWord && (byte & 0xC0U) != 0x80U;
    if (word_end || round[i] == '.' || (unspaced && !is_space(round[i - 1])) || endless)
      hay->places.push_back(i);
  }
  hay->places.push_back(round.size());
  hay->text = std::string(round) + (restarts ? ' ' : '\n');
  hay->restarts = restarts;
  return hay;
}

}  // namespace

size_t Hay::bytes(size_t place) const {
  if (place == 0) return 0;
  return (place - 1) / places.size() * text.size() + places[(place - 1) % places.size()];
}

std::string Hay::cut(size_t begin, size_t end) const {
  const auto whole = [&](size_t at) { return at - at % text.size() + char_start(text, at % text.size()); };
  begin = whole(begin);
  end = whole(end);
  std::string piece;
  piece.reserve(end - begin);
  while (begin < end) {
    const size_t at = begin % text.size(), bytes = std::min(text.size() - at, end - begin);
    piece.append(text, at, bytes);
    begin += bytes;
  }
  return piece;
}

bool Hay::ends_sentence(size_t place) const {
  if (place == 0) return true;
  const size_t at = bytes(place) % text.size();  // the last place precedes the separator
  const size_t last = text.find_last_not_of("\"')\xE2\x80\x99\x9D", at - 1);  // skips closing quotes
  const bool stop =
      last != std::string::npos && std::string_view(".!?").find(text[last]) != std::string_view::npos;
  return stop || text.compare(at, 2, "\n\n") == 0;
}

std::shared_ptr<const Hay> noise_hay() {
  static const std::shared_ptr<const Hay> noise = make_hay(kNoise, true);
  return noise;
}

std::shared_ptr<const Hay> read_hay(const std::filesystem::path& file) {
  const std::string bytes = read_text(file, kMaxHayBytes);
  const size_t first = bytes.find_first_not_of(kSpaces);
  if (first == std::string::npos) {
    throw Error(input_name(file) + ": only white space; name a file with text");
  }
  const auto text = std::string_view(bytes).substr(first, bytes.find_last_not_of(kSpaces) + 1 - first);
  auto hay = std::make_shared<Hay>(*make_hay(text, false));
  hay->file = file;
  return hay;
}

std::shared_ptr<const Hay> open_hay(const std::string& name) {
  return name == "noise" ? noise_hay() : read_hay(name);
}

}  // namespace lariat
