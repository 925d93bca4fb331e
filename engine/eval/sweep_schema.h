#pragma once
#include <string>

#include <nlohmann/json.hpp>

namespace lariat {

// What is wrong with the first line of a sweep's log, as the rest of "line 1 has ..."; empty when every
// member that tables and reports read is there, of its type and in its bounds.
std::string header_problem(const nlohmann::ordered_json& header);

// The same for one of the lines after it.
std::string record_problem(const nlohmann::ordered_json& record);

}  // namespace lariat
