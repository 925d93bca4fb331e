#!/usr/bin/env bash
# From a fresh clone to a story and a context extension report: installs packages, builds and runs the demo checkpoint.
# Repeatable.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh
scripts/configure.sh demo
MAKEFLAGS=-j$(nproc) cmake --build build --target lariat lariat_man

model=configs/demo
echo
echo "== lariat generate --model $model --prompt \"Once upon a time\" --temperature 0.7 --max-new-tokens 200"
printf 'Once upon a time'
build/lariat generate --model "$model" --prompt "Once upon a time" --temperature 0.7 --max-new-tokens 200 --seed 1

report=build/demo.html
sweep=(sweep --model "$model" --scalings "none,yarn,dynamic-yarn" --lengths "512,2048" --no-speed --report "$report")
echo
echo "== lariat ${sweep[*]}"
# Prints only the share of found passkeys over all depths.
build/lariat "${sweep[@]}" | awk '
  /^passkeys, /{ name = $2; next }
  /^depth /    { if (!heading++) printf "%-14s%10s%13s\n", "passkeys found", $2, $3; next }
  /^all /      { printf "%-14s%8s %%%11s %%\n", name, $2, $5; next }
  /^([0-9]+ %|$)/{ next }
  /^(At|From|Before|Beside|Beyond) /{ if (!said++) print ""; print; next }
  { print }'
echo "The whole report: $report"
