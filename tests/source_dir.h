#pragma once
#include <filesystem>
#include <string>

// Compiled only into source_dir.cpp, so that clones in other folders share other ccache objects.
namespace lariat::test {

std::filesystem::path source_dir();  // root of the sources
std::string lariat_program();        // this build's program

}  // namespace lariat::test
