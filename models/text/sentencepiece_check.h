#pragma once
#include <string>
#include <string_view>

namespace lariat::tok {

// The parts of a serialized SentencePiece model that encoding needs, after everything in them that
// libsentencepiece 0.1.97 takes on trust has been checked; what is left out is never given to it. Throws
// Error naming `file`.
//
// It trusts, and reads out of bounds, aborts or runs on without end where they do not hold:
// - pieces hold no NUL (its tries are built of C strings), are short, and none is a prefix of many others
//   (its matcher keeps 64 results);
// - scores are finite (they order a priority queue);
// - the double array of a normalizer's charsmap stays within itself, its replacements end, and no rule is
//   longer than the 32 prefixes that normalizing keeps.
// Left out are the self tests, which run at load and print, and the denormalizer, which lariat does not use.
std::string checked_sentencepiece(std::string_view bytes, const std::string& file);

}  // namespace lariat::tok
