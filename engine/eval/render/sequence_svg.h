#pragma once
#include <string>
#include <vector>

#include "engine/eval/measurement.h"
#include "engine/eval/sequential.h"

namespace lariat {

// A column's differences from the first one, by row.
struct PairedCurve {
  Column column;
  std::string verdict;
  std::vector<SequencePoint> points;
};
// Confidence sequences and e-values by row, with the classes of kSweepSvgStyle. threshold: the e-value that
// shows a difference; margin: the difference to exclude.
std::string sequence_svg(const Column& first, const std::vector<PairedCurve>& curves, double threshold,
                         double margin);

}  // namespace lariat
