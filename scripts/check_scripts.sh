#!/usr/bin/env bash
# Lints the scripts: pyflakes for Python, shellcheck's warnings for shell.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in pyflakes3 shellcheck; do
  command -v $tool >/dev/null || { echo "check_scripts: $tool is missing; run scripts/install.sh --ci" >&2; exit 1; }
done
failed=0
git ls-files -z -- '*.py' | xargs -0 pyflakes3 || failed=1
git ls-files -z -- '*.sh' .ci/run | xargs -0 shellcheck --severity=warning || failed=1
exit $failed
