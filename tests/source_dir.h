#pragma once
#include <filesystem>
#include <string>

// Paths compiled only into source_dir.cpp, so that clones in other folders share all other ccache objects.
namespace lariat::test {

std::filesystem::path source_dir();  // root of the sources
std::string lariat_program();        // this build's `lariat` program

}  // namespace lariat::test
