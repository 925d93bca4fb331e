#include "engine/eval/render/report.h"

namespace lariat {

// Style of the report page, including dark colours for its figures (their style: kSweepSvgStyle).
const std::string_view kReportStyle = R"(<style>
:root { --page: #fbfbfa; --card: #ffffff; --edge: #e4e4e0; --ink: #1f2328; --soft: #5d646d; --mark: #e8f3f1; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 56px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h1 + p { color: var(--soft); margin: 4px 0 0; }
h2 { font-size: 19px; margin: 0 0 4px; }
section { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; padding: 22px 24px;
  margin-top: 20px; }
section > p { color: var(--soft); margin: 0 0 14px; font-size: 14px; }
.verdict { background: var(--mark); border-color: transparent; }
ul { margin: 6px 0 0; padding-left: 20px; }
li.overall { font-weight: 600; }
svg { display: block; width: 100%; height: auto; }
.narrow { display: none; }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 270px), 1fr)); gap: 20px 30px; }
figure { margin: 0; }
figcaption { font-weight: 600; margin-bottom: 4px; }
small { color: var(--soft); font-weight: 400; font-size: 12px; }
.scroll { overflow-x: auto; }
svg + .scroll { margin-top: 18px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--edge); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
th:first-child { text-align: left; }
tbody th { color: var(--ink); font-weight: 600; }
tbody tr:last-child > * { border-bottom: 0; }
td.best { font-weight: 700; background: var(--mark); }
.swatch { display: inline-block; width: 10px; height: 10px; margin-right: 8px; }
.notes { color: var(--soft); font-size: 13px; margin-top: 24px; }
.notes p { margin: 3px 0; }
@media screen and (max-width: 640px) {
main { padding: 22px 12px 36px; } section { padding: 16px 14px; } h1 { font-size: 23px; }
.wide { display: none; } .narrow { display: block; } td small { display: block; }
th, td { padding: 5px 6px; font-size: 12.5px; }
}
@media screen and (prefers-color-scheme: dark) {
:root { color-scheme: dark; --page: #14171a; --card: #1b1f23; --edge: #2f353b; --ink: #e6e8ea; --soft: #9aa3ad;
  --mark: #17312e; }
svg { fill: #e6e8ea; } .tick, .name { fill: #9aa3ad; } .grid { stroke: #2a2f35; } .axis, .origin { stroke: #9aa3ad; }
.cell { fill: #262b31; } .heat { fill: #2dd4bf; } .on { fill: #06231f; }
.of-none { stroke: #9ca3af; fill: #9ca3af; } .of-linear { stroke: #f59e0b; fill: #f59e0b; }
.of-ntk { stroke: #b794f6; fill: #b794f6; } .of-dynamic { stroke: #f472b6; fill: #f472b6; }
.of-yarn { stroke: #2dd4bf; fill: #2dd4bf; } .of-dynamic-yarn { stroke: #60a5fa; fill: #60a5fa; }
.of-llama3 { stroke: #a3e635; fill: #a3e635; } .of-longrope { stroke: #d6a06a; fill: #d6a06a; }
.of-proportional { stroke: #67e8f9; fill: #67e8f9; } .of-model { stroke: #f3f4f6; fill: #f3f4f6; }
.of-yarn-radix { stroke: #34d399; fill: #34d399; } .of-dynamic-yarn-radix { stroke: #818cf8; fill: #818cf8; }
}
@media print {
main { padding: 0; max-width: none; } section, figure, tr { break-inside: avoid; }
* { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.maps { grid-template-columns: repeat(3, 1fr); }
}
</style>
)";

}  // namespace lariat
