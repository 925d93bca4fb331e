#!/usr/bin/env python3
"""Which inputs a step of .ci/run has not passed with as they are.

    scripts/changed.py STEP TOOL INPUT...            prints those of the inputs
    scripts/changed.py --passed STEP TOOL INPUT...   notes in .ci/passed that the step has passed with all of them

An input is a file, or a folder, which stands for its files; a file stands for itself and the project's files that it includes,
directly or not. TOOL is the program that the step depends on: its version counts, and so does what says how a step runs. Libraries
of the system do not: .ci/run --all asks this script nothing.
"""
import functools
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PASSED = ROOT / ".ci/passed"
COMMON = [".ci/run", ".clang-tidy", "CMakeLists.txt", "CMakePresets.json", "scripts/changed.py"]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


@functools.cache
def content(path):
    return path.read_bytes()


@functools.cache
def includes(path):
    """The project's files that one file names in its #include lines."""
    found = []
    for name in INCLUDE.findall(content(path).decode(errors="replace")):
        for place in (ROOT / name, path.parent / name):  # an absolute name, as in CMake's unity files, is its own place
            if place.is_file() and place.resolve().is_relative_to(ROOT):
                found.append(place.resolve())
                break
    return found


def files_of(name):
    path = (ROOT / name).resolve()
    if path.is_dir():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", name]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        left = [ROOT / file for file in listed if (ROOT / file).is_file()]
    else:
        left = [path]
    if not left or not left[0].is_file():
        sys.exit(f"changed.py: error: there is no {name}")
    files = set()
    while left:
        file = left.pop()
        if file not in files:
            files.add(file)
            left += includes(file)
    return files


def fingerprint(name, version):
    digest = hashlib.sha256(version)
    for file in sorted({*files_of(name), *(ROOT / common for common in COMMON)}):
        # The names of folders differ from clone to clone, in the unity files too.
        text = content(file).replace(str(ROOT).encode(), b"")
        digest.update(f"\n{file.relative_to(ROOT)} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]


def main():
    words = sys.argv[1:]
    record = words[:1] == ["--passed"]
    step, tool, *inputs = words[record:]
    program = shutil.which(tool) or shutil.which(f"/usr/local/cuda/bin/{tool}")
    version = subprocess.run([program, "--version"], capture_output=True, check=True).stdout if program else b"none"
    now = {name: fingerprint(name, version) for name in inputs}
    lines = PASSED.read_text().splitlines() if PASSED.exists() else []
    if record:
        others = [line for line in lines if line.split()[0] != step]
        PASSED.write_text("".join(f"{line}\n" for line in sorted(others + [f"{step} {name} {now[name]}" for name in now])))
    else:
        for name in inputs:
            if f"{step} {name} {now[name]}" not in lines:
                print(name)


if __name__ == "__main__":
    main()
