#!/usr/bin/env python3
"""clang-tidy over every .cpp outside tests. Fails on a finding, and if it did not read all files of git ls-files.

    scripts/check_tidy.py            every file, two units at a time
    scripts/check_tidy.py FILE...    only these files, each as a unit

A unit is a file, or several files that CMake compiles as one: clang-tidy spends most of its time on library headers.
"""
import json
import os
import platform
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-tidy"
CUDA = "/usr/local/cuda/include"
# Files that only CUDA builds compile, with their flags.
OTHERS = {"kernels/cuda/blas.cpp": ["-isystem", CUDA], "examples/generate.cpp": [], "examples/perplexity.cpp": []}
# A unity build includes .cpp files.
COMMON = ["--quiet", "--extra-arg=-Wno-unknown-warning-option", "--checks=-bugprone-suspicious-include"]
# Vector kernels are compiled once per instruction set; the least one and AVX2 reach all of their code.
VECTORS = "--extra-arg=-DHWY_COMPILE_ONLY_STATIC"
AVX2 = [VECTORS, "--extra-arg=-march=haswell", "--extra-arg=-maes"]


def units():
    """-> {unit as passed to clang-tidy: [names of its files]}"""
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLARIAT_UNITY=ON",
                    "-DLARIAT_CUDA=OFF", "-DLARIAT_WERROR=ON", "-DCMAKE_CXX_COMPILER_LAUNCHER="], stdout=subprocess.DEVNULL, check=True)
    found = {}
    for command in json.loads((BUILD / "compile_commands.json").read_text()):
        unit = Path(command["file"])
        members = [unit]
        if "Unity" in unit.parts:
            members = map(Path, re.findall(r'^#include "(.*)"$', unit.read_text(), re.M))
        names = [str(member.relative_to(ROOT)) for member in members if BUILD not in member.parents]
        if names and all(name.endswith(".cpp") and not name.startswith("tests/") for name in names):
            found[str(unit)] = names
    found.update((str(ROOT / name), [name]) for name in OTHERS)
    return found


def tidy(unit, names, vectors):
    """-> clang-tidy's findings in a unit, or None"""
    flags = ["-p", str(BUILD)]
    if names[0] in OTHERS:
        flags = [unit, "--", "-std=c++20", f"-I{ROOT}", *OTHERS[names[0]]]
        unit = "--warnings-as-errors=*"
    done = subprocess.run(["clang-tidy", *COMMON, *vectors, unit, *flags], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{', '.join(names)}:\n{done.stdout}{done.stderr}"


def main():
    listed = subprocess.run(["git", "ls-files", "*.cpp", ":!tests"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    wanted, todo = set(listed.stdout.split()), units()
    if sys.argv[1:]:
        wanted = set(sys.argv[1:])
        todo = {str(ROOT / name): [name] for names in todo.values() for name in names if name in wanted}
    known = {name for names in todo.values() for name in names}
    if missed := sorted(wanted - known):
        sys.exit(f"check_tidy: no unit of the build has {', '.join(missed)}; add it to a library in CMakeLists.txt")
    jobs = [(unit, names, [VECTORS] if names[0].startswith("kernels/cpu/") else []) for unit, names in todo.items()]
    if platform.machine() == "x86_64":
        jobs += [(unit, names, AVX2) for unit, names in todo.items() if "foreach_target.h" in (ROOT / names[0]).read_text()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = list(pool.map(tidy, *zip(*jobs)))
    failed = {name for (_, names, _), finding in zip(jobs, findings) if finding is not None for name in names}
    read = known - failed
    print(*filter(None, findings), sep="\n", end="")
    print(f"clang-tidy read {len(read & wanted)} of {len(wanted)} files in {len(jobs)} passes over {len(todo)} units")
    sys.exit(0 if read >= wanted else "check_tidy: findings, or files that were not read")


if __name__ == "__main__":
    main()
