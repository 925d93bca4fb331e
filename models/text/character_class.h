#pragma once
#include <string>
#include <vector>

namespace lariat::tok {

// Members of a PCRE2 class, without its brackets, that mean what Oniguruma's \s and \w mean inside a class.
inline constexpr const char* kSpaceMembers =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
inline constexpr const char* kWordMembers = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

// A set of characters as Oniguruma's classes write it: members, unions and intersections, each of which may
// be negated.
struct CharacterSet {
  enum class Kind { kMembers, kUnion, kIntersection };
  Kind kind = Kind::kMembers;
  bool negated = false;
  bool cased = false;     // kMembers: (?i) may change it
  std::string members{};  // kMembers: as they stand in a PCRE2 class
  std::vector<CharacterSet> parts{};
};

// Whether the set is written as one class without intersections, in which nothing but the whole is negated.
bool is_one_class(const CharacterSet& set);
// Whether (?i) may change the set.
bool is_cased(const CharacterSet& set);

// A PCRE2 pattern that matches one character of the set.
std::string one_of(const CharacterSet& set);

// The set of a POSIX bracket ("alpha"); false for an unknown name.
bool posix_set(const std::string& name, CharacterSet& set);

}  // namespace lariat::tok
