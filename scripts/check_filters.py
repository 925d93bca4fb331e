#!/usr/bin/env python3
"""Checks that every pattern that chooses tests by name still matches a test of the built programs, and that every ctest
command with a filter fails if the filter selects nothing.

    scripts/check_filters.py [BUILD_DIR]          default: build

Patterns: .ci/run, tests/CMakeLists.txt, tests/simt/CMakeLists.txt, SUITES of scripts/mutate.py, and --gtest_filter in
Markdown files. A pattern to exclude must exclude a test that the patterns before the minus select.
"""
import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SANITIZED = ["tools_test", "engine_test", "kernels_test", "models_test"]
FILTER = r"/(\w+_test)\b[^\n|]*?(?:\\\n[^\n]*?)?--gtest_filter=(?:'([^'$]+)'|(\w[\w*?./:-]*))"


def filters_of_ci(text):
    """-> (programs, filter) of each. Patterns to exclude stand in variables of asan()."""
    words = " ".join(re.findall(r'^\s*(?:local )?\w+\+?="([^"$]*\*[^"$]*)"$', text, re.M)).split()
    if words:
        yield SANITIZED, "-" + ":".join(words)
    yield from filters_of_page(text)


def filters_of_cmake(text):
    for name, words in re.findall(r'(?:set\(|string\(JOIN ":" )(SIMT_SIZES|SIMT_SANITIZED|\w+_filter)\s([^)]*)\)', text):
        program = "simt_test" if name.startswith("SIMT") else name.replace("_filter", "_test")
        yield [program], ":".join(re.findall(r'[^\s"]+', words))


def filters_of_mutate(text):
    """Evaluates the assignments up to SUITES alone: the script itself needs python3-clang."""
    wanted = ("METHODS", "RUNNING", "LOGS", "SUITES")
    found = [node for node in ast.parse(text).body if isinstance(node, ast.Assign) and node.targets[0].id in wanted]
    values = {}
    exec(compile(ast.Module(found, []), "mutate.py", "exec"), values)
    for program, filter_ in dict.fromkeys(row for rows in values["SUITES"].values() for row in rows):
        yield [program], filter_


def filters_of_page(text):
    for program, quoted, word in re.findall(FILTER, text):
        yield [program], quoted + word


def filters(root):
    """-> [(file, programs, filter)]"""
    readers = {".ci/run": filters_of_ci, "tests/CMakeLists.txt": filters_of_cmake, "tests/simt/CMakeLists.txt": filters_of_cmake,
               "scripts/mutate.py": filters_of_mutate}  # fmt: skip
    found = []
    for name, reader in readers.items():
        rows = [(name, *row) for row in reader((root / name).read_text(encoding="utf-8"))]
        if not rows:
            sys.exit(f"check_filters: {name}: no pattern was found; adapt filters_of_... to the file")
        found += rows
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in pages.split():
        found += [(name, *row) for row in filters_of_page((root / name).read_text(encoding="utf-8"))]
    return found


def split(filter_):
    """-> patterns to include, patterns to exclude"""
    parts = [part.strip(":").split(":") if part else [] for part in filter_.split("-", 1)]
    return parts[0] or ["*"], parts[1] if len(parts) > 1 else []


def tests_of(program):
    """-> names of the program's tests as SUITE.NAME"""
    listed = subprocess.run([program, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True, check=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names


def matches(pattern, names):
    expression = re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern))
    return [name for name in names if expression.fullmatch(name)]


def calls_without_error(root):
    """ctest commands of scripts that filter and do not fail without a test."""
    scripts = subprocess.run(["git", "ls-files", ".ci", "scripts/*.sh"], cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in scripts.split():
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            command = line.split("# ")[0]
            if re.search(r'\bctest\b.*( -[LRE]+ |"\$@")', command) and "--no-tests=error" not in command:
                yield f"{name}:{number}: ctest with a filter and without --no-tests=error"


def main():
    build = Path(sys.argv[1] if sys.argv[1:] else ROOT / "build").resolve()
    known = cache(lambda program: tests_of(build / program))
    problems, count = list(calls_without_error(ROOT)), 0
    for where, programs, filter_ in filters(ROOT):
        names = [name for program in programs for name in known(program)]
        include, exclude = split(filter_)
        selected = [name for pattern in include for name in matches(pattern, names)]
        for pattern, among in [(p, names) for p in include] + [(p, selected) for p in exclude]:
            count += 1
            if not matches(pattern, among):
                problems.append(f"{where}: {pattern!r} matches no test of {', '.join(programs)}")
    print(*problems, sep="\n", end="\n" * bool(problems))
    print(f"{count} patterns looked up")
    sys.exit("check_filters: a test was renamed or removed; adapt the pattern" if problems else 0)


if __name__ == "__main__":
    main()
