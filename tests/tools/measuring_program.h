#pragma once
#include <algorithm>

#include "engine/eval/measurement_log.h"
#include "tests/tools/program.h"

namespace lariat::test {

inline Json data_of(const std::filesystem::path& report) {
  const std::string page = slurp(report), open = "id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return Json::parse(page.substr(begin, page.find('<', begin) - begin));
}

class MeasuringTest : public FolderTest {
 protected:
  std::string model() const { return " --model " + model_.string(); }
  std::string file(const std::string& name) const { return (dir_ / name).string(); }
  // Results do not depend on the machine's speed.
  std::string small_sweep(const std::string& report) const {
    return "sweep" + model() + " --file " + text_.string() + " --report " + file(report) +
           " --scalings none,linear,yarn,dynamic-yarn --lengths 256,640 --depths 0,1"
           " --trials 2 --no-speed --device cpu --threads 1 --max-tokens 1000";
  }

  static std::vector<std::string> comparable(const std::filesystem::path& log) {
    std::vector<std::string> lines;
    for (Record record : read_log(log).records) {
      record.timing.reset();
      lines.push_back(to_json(record).dump());
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  std::filesystem::path model_ = kDemo, text_ = model_ / "heldout.txt";
};

// Short runs, also for sanitizers.
using MeasuringErrors = MeasuringTest;

}  // namespace lariat::test
