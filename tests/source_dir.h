#pragma once
#include <filesystem>
#include <string>

// Paths that only source_dir.cpp is compiled with, so that clones in other folders share all other objects of
// ccache.
namespace lariat::test {

std::filesystem::path source_dir();  // the root of the sources
std::string lariat_program();        // the program `lariat` of this build

}  // namespace lariat::test
