#pragma once

namespace lariat {

extern const char* const kPage;  // chat in a browser: HTML that loads nothing else

}  // namespace lariat
