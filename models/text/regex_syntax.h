#pragma once
#include <string>
#include <string_view>

namespace lariat::tok {

// Rewrites a tokenizer.json's pattern (Oniguruma, Ruby syntax) for PCRE2. \s is Unicode White_Space (PCRE2
// adds U+180E); \w and POSIX brackets are Oniguruma's; \p{Han} is the script only (PCRE2 adds shared
// characters); (?m) is PCRE2's (?s); (?i) lasts to the end of its group, alternatives included. Classes may
// hold classes, '&&' and \S. Throws Error for other differences (\h, \b, {n,m}+, \p or '&&' under (?i) and
// more); `where` (file and key) begins the message.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace lariat::tok
