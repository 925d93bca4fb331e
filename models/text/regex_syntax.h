#pragma once
#include <string>
#include <string_view>

namespace lariat::tok {

// Rewrites a pattern of a tokenizer.json (Oniguruma, Ruby syntax) for PCRE2 where the two differ: \s is
// Unicode White_Space (PCRE2 adds U+180E), \w and POSIX brackets are Oniguruma's, \p{Han} is the script alone
// (PCRE2 adds characters that the script shares), (?m) is PCRE2's (?s), (?i) lasts to the end of its group,
// alternatives included. Character classes may hold classes, '&&' and \S, which PCRE2 does not know.
//
// Throws Error on what is not rewritten (\h, \b, {n,m}+, \p or '&&' under (?i) and others); `where` (file and
// key) opens the message.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace lariat::tok
