#pragma once

namespace lariat {

// The style sheet of a report. Colours are told apart by people with any colour vision (hues after Okabe and
// Ito, darkened or lightened for contrast), and every line also has its name at its end.
inline constexpr const char* kReportStyle = R"css(
:root { color-scheme: light dark; --page: #fbfbfa; --card: #ffffff; --edge: #e4e4e0; --ink: #1f2328;
  --soft: #5d646d; --grid: #ecebe7; --heat: #0f766e; --cell: #f0efeb; --on: #ffffff; --mark: #e8f3f1;
  --c0: #6b7280; --c1: #b45309; --c2: #7c3aed; --c3: #be185d; --c4: #0f766e; --c5: #1d4ed8; --c6: #4d7c0f;
  --c7: #92400e; --c8: #0e7490; --c9: #111827; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --card: #1b1f23; --edge: #2f353b; --ink: #e6e8ea;
  --soft: #9aa3ad; --grid: #2a2f35; --heat: #2dd4bf; --cell: #262b31; --on: #06231f; --mark: #17312e;
  --c0: #9ca3af; --c1: #f59e0b; --c2: #b794f6; --c3: #f472b6; --c4: #2dd4bf; --c5: #60a5fa; --c6: #a3e635;
  --c7: #d6a06a; --c8: #67e8f9; --c9: #f3f4f6; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 56px; }
header p { color: var(--soft); margin: 4px 0 0; }
h1 { font-size: 28px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 0 0 4px; }
section { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; padding: 22px 24px;
  margin-top: 20px; }
section > p { color: var(--soft); margin: 0 0 14px; font-size: 14px; }
.verdict { background: var(--mark); border-color: transparent; }
.verdict p { color: var(--ink); font-size: 17px; margin: 0; }
ul { margin: 6px 0 0; padding-left: 20px; }
li { margin: 3px 0; }
.last { font-weight: 600; }
svg { display: block; width: 100%; height: auto; }
.narrow { display: none; }
svg text { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink);
  font-variant-numeric: tabular-nums; }
svg .tick, svg .name { fill: var(--soft); }
svg .series { font-weight: 600; }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); } .origin { stroke: var(--soft); stroke-dasharray: 2 4; }
.curve { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
.dashed .curve { stroke-dasharray: 7 5; }
.error { stroke-width: 1.25; opacity: .7; } .leader { fill: none; stroke-width: 1; opacity: .45; }
.cell { fill: var(--cell); } .heat { fill: var(--heat); } svg .on { fill: var(--on); font-weight: 600; }
svg .off { fill: var(--ink); }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--fit)), 1fr)); gap: 20px 28px; }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: 4px; }
figcaption span { color: var(--soft); font-weight: 400; }
.scroll { overflow-x: auto; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, var(--fit)), 1fr)); gap: 20px 32px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--edge); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } th:first-child { text-align: left; }
tbody th { color: var(--ink); font-weight: 600; }
tbody tr:last-child > * { border-bottom: 0; }
td.best { font-weight: 700; background: var(--mark); } td small { color: var(--soft); font-size: 12px; }
div + .scroll { margin-top: 18px; }
.tables .scroll { margin-top: 0; } .tables th, .tables td { padding: 5px 7px; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 8px; }
.notes { color: var(--soft); font-size: 13px; margin-top: 24px; } .notes p { margin: 3px 0; }
)css"
                                            R"css(
@media (max-width: 640px) { main { padding: 22px 12px 36px; } section { padding: 16px 14px; } h1 { font-size: 23px; }
  .wide { display: none; } .narrow { display: block; } td small { display: block; } th, td { padding: 5px 6px; font-size: 12.5px; } }
@media print { :root { --page: #fff; --card: #fff; --edge: #ccc; --ink: #000; --soft: #444; --grid: #e5e5e5;
  --heat: #0f766e; --cell: #f0efeb; --on: #fff; --mark: #e8f3f1; --c0: #6b7280; --c1: #b45309; --c2: #7c3aed;
  --c3: #be185d; --c4: #0f766e; --c5: #1d4ed8; --c6: #4d7c0f; --c7: #92400e; --c8: #0e7490; --c9: #111827; }
  body { font-size: 11pt; } main { padding: 0; max-width: none; } * { print-color-adjust: exact;
  -webkit-print-color-adjust: exact; } section, figure, tr { break-inside: avoid; } section { padding: 12px 14px; }
  .wide { display: block; } .narrow { display: none; } }
)css";

}  // namespace lariat
