#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "engine/eval/tasks/sized.h"

// Rows of RULER (github.com/NVIDIA/RULER, Apache-2.0, whose texts they hold) without a chat template: the
// files of scripts/data/synthetic, byte for byte, as each task draws in the order of its script. Others
// have a benchmark's form.
namespace lariat {

inline constexpr std::string_view kRulerCommit = "c3f5e3b", kWonderwordsVersion = "3.0.1";
// The tasks without downloads.
inline constexpr std::string_view kRulerTasks[] = {
    "niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe"};
struct FormTask {
  std::string name, form;   // form: of which benchmark
  bool reads_text = false;  // TaskOptions::text
};
std::vector<FormTask> form_tasks();

// Searches the size of the rows; returns a function that makes the next row: a JSON line. Both throw Error if
// no row fits.
std::function<std::string()> task_rows(const TaskOptions& options);

// As Python's json.dump writes a row. more: further members.
std::string json_line(const TaskRow& row, int64_t index, const std::string& more = "");
// Members that a row has if it is not RULER's.
std::string form_members(std::string_view form, int64_t answer_tokens);

}  // namespace lariat
