#include "tests/source_dir.h"

namespace lariat::test {

std::filesystem::path source_dir() { return LARIAT_SOURCE_DIR; }
std::string lariat_program() { return LARIAT_PROGRAM; }

}  // namespace lariat::test
