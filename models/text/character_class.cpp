#include "models/text/character_class.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lariat::tok {
namespace {

using Kind = CharacterSet::Kind;

// A union of members is members; so is a union or intersection of one part.
CharacterSet simplified(CharacterSet set) {
  if (set.kind == Kind::kMembers) return set;
  std::vector<CharacterSet> parts;
  std::string members;
  bool cased = false;
  for (CharacterSet& part : set.parts) {
    part = simplified(std::move(part));
    if (set.kind == Kind::kUnion && part.kind == Kind::kMembers && !part.negated) {
      members += part.members;
      cased |= part.cased;
    } else if (part.kind == set.kind && !part.negated) {
      std::move(part.parts.begin(), part.parts.end(), std::back_inserter(parts));
    } else {
      parts.push_back(std::move(part));
    }
  }
  if (!members.empty()) parts.push_back({.cased = cased, .members = std::move(members)});
  if (parts.size() == 1) {
    CharacterSet only = std::move(parts.front());
    only.negated ^= set.negated;
    return only;
  }
  set.parts = std::move(parts);
  return set;
}

std::string bracketed(const std::string& members, bool negated) {
  const bool property = members.starts_with("\\p{") && members.find('}') + 1 == members.size();
  if (property) return (negated ? "\\P" : "\\p") + members.substr(2);
  return (negated ? "[^" : "[") + members + "]";
}

std::string any_of(const std::vector<CharacterSet>& parts, bool negated);
std::string all_of(const std::vector<CharacterSet>& parts, bool negated);

// `negated`: the complement of the set.
std::string rendered(const CharacterSet& set, bool negated) {
  const bool complement = negated != set.negated;
  if (set.kind == Kind::kMembers) return bracketed(set.members, complement);
  // A character outside a union is in none of its parts; one outside an intersection misses a part.
  const bool is_union = (set.kind == Kind::kUnion) != complement;
  return is_union ? any_of(set.parts, complement) : all_of(set.parts, complement);
}

std::string any_of(const std::vector<CharacterSet>& parts, bool negated) {
  if (parts.empty()) return "(?!)";
  std::string out;
  for (const CharacterSet& part : parts) out += (out.empty() ? "(?:" : "|") + rendered(part, negated);
  return out + ")";
}

// Every part looks at the same character; the last one takes it.
std::string all_of(const std::vector<CharacterSet>& parts, bool negated) {
  std::string out = "(?:";
  for (const CharacterSet& part : parts) {
    if (&part != &parts.back()) out += "(?=" + rendered(part, negated) + ")";
  }
  return out + (parts.empty() ? "(?s:.)" : rendered(parts.back(), negated)) + ")";
}

}  // namespace

bool is_one_class(const CharacterSet& set) {
  return (set.kind != Kind::kIntersection || set.parts.size() == 1) &&
         std::all_of(set.parts.begin(), set.parts.end(),
                     [](const CharacterSet& part) { return !part.negated && is_one_class(part); });
}

bool is_cased(const CharacterSet& set) {
  return set.cased || std::any_of(set.parts.begin(), set.parts.end(), is_cased);
}

std::string one_of(const CharacterSet& set) { return rendered(simplified(set), false); }

// Oniguruma 6.9: unicode.c, CR_Alnum and its like.
bool posix_set(const std::string& name, CharacterSet& set) {
  struct Posix {
    const char* name;
    const char* members;
    bool negated = false;
  };
  static constexpr Posix kPosix[] = {
      {"alnum", R"(\p{Alphabetic}\p{Nd})"},
      {"alpha", R"(\p{Alphabetic})"},
      {"ascii", R"(\x{0}-\x{7f})"},
      {"blank", R"(\x{9}\p{Zs})"},
      {"cntrl", R"(\p{Cc})"},
      {"digit", R"(\p{Nd})"},
      {"graph", R"(\p{Cc}\p{Cn}\p{Cs}\p{Z})", true},
      {"lower", R"(\p{Lowercase})"},
      {"print", R"(\p{Cc}\p{Cn}\p{Cs}\p{Zl}\p{Zp})", true},
      {"punct", R"(\p{P}\p{S})"},
      {"space", kSpaceMembers},
      {"upper", R"(\p{Uppercase})"},
      {"word", kWordMembers},
      {"xdigit", "0-9A-Fa-f"},
  };
  for (const Posix& posix : kPosix) {
    if (name != posix.name) continue;
    set = {.negated = posix.negated, .cased = name != "space", .members = posix.members};
    return true;
  }
  return false;
}

}  // namespace lariat::tok
