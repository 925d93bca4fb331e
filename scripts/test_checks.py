#!/usr/bin/env python3
"""Tests the checks of the sources: each passes on a copy of the sources, and fails for each planted violation with its name in
the output.

    scripts/test_checks.py [CHECK...]        default: all of them, as check_layers
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import check_filters as reader

ROOT = Path(__file__).resolve().parent.parent
problems, planted = [], 0


def run(command, copy, **variables):
    done = subprocess.run(command, cwd=copy, env=os.environ | variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def program(path, text):
    write(path, text).chmod(0o755)


def copy_of(copy, *patterns):
    """A repository with the files that match git's patterns."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns], cwd=ROOT,
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
    track(copy)


def track(copy):
    subprocess.run(["git", "add", "--all"], cwd=copy, check=True)


def passes(command, copy, where):
    code, output = run(command, copy)
    if code != 0:
        problems.append(f"{where}: fails with nothing planted:\n{output}")


def finds(command, copy, where, *said):
    """Checks that the command fails and names the planted violation."""
    global planted
    planted += 1
    code, output = run(command, copy)
    if code == 0:
        problems.append(f"{where}: is not found")
    problems.extend(f"{where}: found, but without a word of {text!r}:\n{output}" for text in said if text not in output)


def check_each(command, copy, rows):
    """rows: (file, a function of its text or text to append, expected output)"""
    passes(command, copy, command[0])
    for name, change, *said in rows:
        path = copy / name
        before = path.read_text(encoding="utf-8") if path.exists() else None
        write(path, change(before) if callable(change) else (before or "") + change)
        track(copy)
        finds(command, copy, f"{command[0]}: planted in {name}, {said[-1]!r}", *said)
        path.unlink() if before is None else write(path, before)
    track(copy)
    passes(command, copy, command[0])


def include(name):
    return f'#include "{name}"\n'


def check_layers(copy):
    copy_of(copy, "kernels", "models", "engine", "tools", "python", "examples", "scripts", "tests")
    runs, cuda, cli = "engine, but for engine/eval,", "what is not in kernels/cuda", "#include <CLI/CLI.hpp>\n"
    files = [
        ("any file", "kernels/cpu/gemm.cpp", include("../models/spec/spec.h")),
        ("any file", "models/io/json_file.cpp", include("kernels/../engine/session.h")),
        ("any file", "engine/runtime/session.cpp", include("chat.h")),
        ("kernels", "kernels/step.h", include("models/spec/spec.h")),
        ("kernels", "kernels/cpu/gemm.cpp", "#include <nlohmann/json.hpp>\n"),
        ("kernels", "kernels/cuda/linear.cu", include("engine/runtime/session.h")),
        ("kernels", "kernels/reference/new.h", include("tools/options.h")),
        ("kernels", "kernels/cuda/ptx.cuh", "#  include <CLI/CLI.hpp>\n"),
        ("models", "models/run/decoder.cpp", include("engine/runtime/session.h")),
        ("models", "models/families/llama.cpp", include("tools/options.h")),
        ("models", "models/text/regex.h", cli),
        ("models/io", "models/io/mapped_file.cpp", include("models/text/unicode.h")),
        ("models/io", "models/io/text_file.h", include("models/spec/spec.h")),
        ("models/io", "models/io/json_file.cpp", include("kernels/backend.h")),
        ("models/text", "models/text/tokenizer.cpp", include("models/spec/spec.h")),
        ("models/text", "models/text/bpe.h", include("kernels/backend.h")),
        ("models/io", "models/io/mapped_file.h", include("models/files/tensors.h")),
        ("models/files", "models/files/tensors.h", include("models/load/weights.h")),
        ("models/spec", "models/spec/rope_config.cpp", include("models/families/family.h")),
        ("models/spec", "models/spec/spec.h", include("models/positions/position_row.h")),
        ("models/positions", "models/positions/dca.cpp", include("models/run/layer.h")),
        ("models/families", "models/families/family.cpp", include("models/quantization/quantization.h")),
        ("models/text", "models/text/unicode.h", include("models/gguf/gguf.h")),
        ("models/quantization", "models/quantization/fp8.cpp", include("models/gguf/gguf_file.h")),
        ("models/gguf", "models/gguf/gguf.h", include("models/load/open_files.h")),
        ("models/load", "models/load/weights.h", "#  include <models/run/decoder.h>\n"),
        ("models/load", "models/load/config.cpp", include("models/new/new.h")),
        ("models/run", "models/run/decoder.h", include("models/new.h")),
        ("engine", "engine/eval/measure/sweep.cpp", include("tools/options.h")),
        ("engine", "engine/text/chat.h", cli),
        (runs, "engine/runtime/session.cpp", include("engine/eval/measure/sweep.h")),
        (runs, "engine/folder/new.h", include("engine/eval/measure/sweep.h")),
        *(("what is not a test", f"{layer}/new.cpp", include("tests/test_util.h"))
          for layer in ("kernels/cuda", "models", "engine", "tools", "python", "examples")),
        ("python", "python/session.cpp", include("tools/options.h")),
        ("code outside python", "tools/new.cpp", include("python/model.h")),
        (cuda, "kernels/cpu/gemm.cpp", "#include <cuda_runtime.h>\n"),
        (cuda, "models/load/model.cpp", "#include <cuda.h>\n"),
        (cuda, "engine/runtime/session.cpp", "#include <cublas_v2.h>\n"),
        (cuda, "tools/main.cpp", include("kernels/cuda/ptx.cuh")),
        (cuda, "engine/lariat.cpp", include("kernels/cuda/cuda_backend.h")),
        *(("code outside kernels/communicator_mpi.cpp", name, "#include <mpi.h>\n")
          for name in ("kernels/communicator.h", "engine/lariat.cpp", "tests/ranks/main.cpp")),
    ]  # fmt: skip
    rows = [(name, line, name, f"check_layers: {whose} must not include") for whose, name, line in files]
    for name, line in (
        ("models/run/decoder.cpp", "bool gemma(const Family& f) { return f.is(kGemma2); }\n"),
        ("kernels/cpu/gemm.cpp", 'const bool is_phi = name == "Phi3ForCausalLM";\n'),
        ("models/io/json_file.cpp", 'const char* kKind = "gpt_neox";  // read by /engine\n'),
        ("engine/eval/measure/sweep.cpp", 'if (spec.model_type == "qwen2") return;\n'),
        ("tools/options.h", "struct QwenOptions {};\n"),
        ("models/gguf/gguf_config.cpp", 'if (f == "Qwen3ForCausalLM") return;\n'),
        ("models/text/tokenizer.cpp", 'if (model_of(file) == "llama" || type == "gemma2") return;\n'),
    ):
        rows.append((name, line, name, "check_layers: only models/families/ may decide"))
    for name in ("models/new.h", "models/new/new.cpp", "models/load/new/new.h"):
        rows.append((name, "#pragma once\n", name, "check_layers: a file of models must be in a room"))
    for path in ('"/docs/models.md"', 'kSource / "docs" / "page.md"'):
        rows.append(("tests/models/new.h", f"std::ifstream in({path});\n", "tests/models/new.h", "check_layers: tests must not read docs/"))
    # Allowed: comments that name a family, and scalings that share its name.
    write(copy / "engine/comment.cpp", "// As Llama has it.\nauto a = RopeType::kLlama3;  // of Llama 3\n")
    check_each(["scripts/check_layers.sh"], copy, rows)
    for quoted, word in re.findall(r"^forbid (?:'([^']+)'|(\S+)) ", (copy / "scripts/check_layers.sh").read_text(), re.M):
        if quoted + word not in {whose for whose, _, _ in files}:
            problems.append(f"check_layers: no row of this script breaks its rule for {quoted or word}")


def check_lengths(copy):
    def function(lines, head="int long_one(int a) {", indent=""):
        return f"{indent}{head}\n" + f"{indent}  ++a;\n" * (lines - 2) + f"{indent}}}\n"

    def file(lines):
        return "// A line.\n" * lines

    copy_of(copy, "scripts")
    for name, text in (("a.h", file(420)), ("b.cpp", function(70)), ("c.cu", function(70)),
                       ("d.cuh", "class C {\n" + function(70, indent="  ") + "};\n")):  # fmt: skip
        write(copy / "folder" / name, text)
    left = int(re.search(r"^SPINE_LIMIT = (\d+)", (copy / "scripts/check_lengths.py").read_text(), re.M)[1])
    for name in ("kernels/step.h", "models/spec/rope.cpp", "models/run/decoder.h", "models/run/layer.h", "engine/runtime/kv_cache.cpp",
                 "engine/runtime/scheduler.h", "engine/runtime/session.h", "engine/runtime/session_x.cpp", "models/spec/spec.h"):
        write(copy / name, file(min(400, left)))
        left -= min(400, left)
    track(copy)
    beyond = "check_lengths: beyond the limit"
    check_each(["scripts/check_lengths.py"], copy, [
        ("folder/a.h", "// One more.\n", "421 folder/a.h", beyond),
        *((f"new/long.{kind}", file(421), f"421 new/long.{kind}", beyond) for kind in ("h", "cpp", "cu", "cuh")),
        ("folder/b.cpp", function(71), "71 folder/b.cpp:71", beyond),
        ("folder/c.cu", "\n" + function(90, "__global__ void kernel(int a) {"), "90 folder/c.cu:72", beyond),
        ("folder/d.cuh", "struct D {\n" + function(71, indent="  ") + "};\n", "71 folder/d.cuh:74", beyond),
        ("engine/session_new.cpp", "// One more.\n", "the spine: ", beyond),
        ("new/e.h", function(80, "template <class T>\nvoid split(T a,\n           T b) {"), "new/e.h:", beyond),
    ])  # fmt: skip


def check_words(copy):
    copy_of(copy, "scripts", "engine")
    of, what, on, away = "Of", "What", "goes o" "n a" "new", "put a" "way"  # as this file must not have them
    above = "check_words: above a limit"
    check_each(["scripts/check_words.py"], copy, [
        ("engine/new.cpp", f"// {of} glu alone.\nint a;\n" * 500, f"engine/new.cpp:1: // {of} glu", "engine: 'opens with", above),
        ("engine/new.h", f"int a;  // {on}\n" * 500, f"engine: '{on[:7]}'", f"engine: '{on[8:]}'", above),
        ("scripts/new.sh", f"#!/bin/sh\n# {what} a loop costs.\n", f"scripts/new.sh:2: # {what}", "scripts: 'opens with", above),
        ("scripts/new.py", f'print("the file is {away}")\n', "scripts/new.py:1: ", f"scripts: '{away}'", above),
        ("scripts/check_words.py", lambda text: re.sub(r'"engine": \d+', '"engine": 999', text), "engine: ", "at least 999", above),
    ])  # fmt: skip


def check_format(copy):
    copy_of(copy, "scripts", ".clang-format")
    kinds = ("h", "cpp", "cu", "cuh")
    for kind in kinds:
        write(copy / f"folder/as_it_should.{kind}", "int a(int b) { return b; }\n")
    track(copy)
    rows = [(f"folder/planted.{kind}", "int   a( int b ){return b;}\n", f"folder/planted.{kind}") for kind in kinds]
    rows += [("folder/long.h", f"int a = {' + '.join(['1'] * 30)};\n", "folder/long.h")]
    check_each(["scripts/check_format.sh"], copy, rows)
    for name, text, _ in rows:
        write(copy / name, text)
    track(copy)
    run(["scripts/check_format.sh", "--fix"], copy)
    passes(["scripts/check_format.sh"], copy, "scripts/check_format.sh after --fix")


def check_reading(copy):
    copy_of(copy, "scripts", "docs/reading.md", "kernels/*.h", "models/*.cpp", "engine/*.cpp")
    page, quoted, fence = "docs/reading.md", "struct Weight {", "a block of code is not ```cpp FILE"
    check_each(["scripts/check_reading.py"], copy, [
        ("kernels/weight.h", lambda text: text.replace(quoted, "struct Weights {"), "kernels/weight.h has no such lines", quoted),
        ("kernels/weight.h", lambda text: text.replace(quoted + "\n", quoted + "\n  int other;\n"), "kernels/weight.h has no such"),
        (page, lambda text: text.replace(quoted, "struct  Weight {"), "kernels/weight.h has no such lines"),
        (page, "```cpp kernels/weight.h\nstruct Weight {\n…\n#pragma once\n```\n", "kernels/weight.h has no such lines, in this order"),
        (page, "```cpp kernels/nothing.h\nint a;\n```\n", "kernels/nothing.h"),
        (page, "```cpp\nint a;\n```\n", fence),
        (page, "```c++ kernels/weight.h\nint a;\n```\n", fence),
        (page, lambda text: text.replace("```", "~~~"), "quotes no code"),
    ])  # fmt: skip


def check_docs(copy):
    copy_of(copy, "scripts", "README.md", "docs/*.md", "docs/*/*.md", "kernels/*.h", "examples/*.py")
    beyond, table = "check_docs: beyond a limit", "README.md: the table between the speed marks"
    check_each(["scripts/check_docs.py"], copy, [
        ("README.md", "\n" * 99, "lines of README: 209, limit", beyond),
        ("docs/new.md", "a\n" * 2000, "lines of docs: ", beyond),
        ("docs/new.md", "a " * 30_000, "words of docs: ", beyond),
        ("kernels/new.h", "// a b c\n" * 90_000, "words of comments and messages: ", beyond),
        ("README.md", lambda text: text.replace("<!-- speed -->", ""), table),
        ("docs/performance.md", lambda text: text.replace("| 14.6 (", "| 15.6 ("), table),
        ("examples/error_bars.py", "import new\n", "docs/measuring.md: "),
    ])  # fmt: skip


def check_scripts(copy):
    copy_of(copy, "scripts", ".ci")
    check_each(["scripts/check_scripts.sh"], copy, [
        ("scripts/new.py", "import os\n", "scripts/new.py:1", "'os' imported but unused"),
        ("scripts/new.sh", "#!/bin/bash\ncd folder\n", "scripts/new.sh", "SC2164"),
    ])  # fmt: skip


def check_skips(copy):
    copy_of(copy, "scripts", "tests/*.h", "tests/*.cpp", "*CMakeLists.txt", "*.cmake")
    missing = "a test that passes where a file is missing"
    check_each(["scripts/check_skips.sh"], copy, [
        ("tests/tools/rope_test.cpp", "TEST(A, B) {\n  GTEST_SKIP();\n}\n", "tests/tools/rope_test.cpp", "check_skips: GTEST_SKIP"),
        ("tests/cuda/new.h", '  if (none) GTEST_SKIP() << "SKIPPED: none";\n', "tests/cuda/new.h", "check_skips: GTEST_SKIP"),
        ("tests/models/new_test.cpp", "TEST_F(A, DISABLED_B) {}\n", "tests/models/new_test.cpp", "a disabled test"),
        ("tests/engine/new_test.cpp", "  if (!fs::exists(shared)) return;\n", "tests/engine/new_test.cpp", missing),
        ("tests/engine/new_test.cpp", "    if (!std::filesystem::exists(a / b)) continue;\n", "tests/engine/new_test.cpp", missing),
        ("tests/CMakeLists.txt", "target_link_libraries(new_test GTest::gtest_main)\n", "tests/CMakeLists.txt", "link test_main"),
    ])  # fmt: skip


def check_filters(copy):
    """Uses stub programs that list one test per pattern, named after it."""
    copy_of(copy, "scripts", ".ci", "*CMakeLists.txt", "CONTRIBUTING.md")
    names = {}
    for _, programs, filter_ in reader.filters(copy):
        include, exclude = reader.split(filter_)
        made = include + [pattern if include == ["*"] else include[0].replace("*", "") + pattern for pattern in exclude]
        made = [pattern if "." in pattern else re.sub(r"\*([^*]*)$", r"y.z\1", pattern) for pattern in made]
        for program_ in programs:
            names.setdefault(program_, []).extend(made)
    for name, tests in names.items():
        lines = [f"{suite}.\n  {test}" for suite, _, test in (re.sub(r"[*?]", "1", test).partition(".") for test in tests)]
        program(copy / "build" / name, "#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    empty, silent = "matches no test of ", "ctest with a filter and without --no-tests=error"
    check_each(["scripts/check_filters.py"], copy, [
        (".ci/run", lambda text: text.replace(" Fork.OfALong*", " Fork.OfALing*"), ".ci/run: 'Fork.OfALing*' " + empty),
        (".ci/run", lambda text: text.replace(":Team*:-*SplitDoes", ":Teams*:-*SplitDont"), ".ci/run: 'Teams*' " + empty, "*SplitDont"),
        (".ci/run", lambda text: re.sub(r'^.*="[^"$]*\*.*|.*gtest_filter=.*', "", text, flags=re.M), "no pattern"),
        (".ci/run", lambda text: text.replace("sizes$' --no-tests=error", "sizes$'"), ".ci/run:", silent),
        ("scripts/new.sh", "ctest --test-dir build -R Rope\n", "scripts/new.sh:1", silent),
        ("scripts/test.sh", lambda text: text.replace("--no-tests=error ", ""), "scripts/test.sh:", silent),
        ("scripts/mutate.py", lambda text: text.replace('"Verdict*:', '"Verdict*:LongRope*:'), "'LongRope*' " + empty + "engine_test"),
        ("tests/CMakeLists.txt", lambda text: text.replace("*Perplexity*", "*Perplexed*"), "'*Perplexed*' " + empty + "engine_test"),
        ("tests/simt/CMakeLists.txt", lambda text: text.replace('"CudaPtx.*"', '"CudaPtxs.*"'), "'CudaPtxs.*' " + empty + "simt_test"),
        ("CONTRIBUTING.md", "`build/engine_test --gtest_filter='Gone.*'`\n", "CONTRIBUTING.md: 'Gone.*' " + empty),
    ])  # fmt: skip


def check_cuda12(copy):
    """Uses stub headers, as the packages are not always available; the compiler checks the real ones."""
    copy_of(copy, "scripts")
    headers = "build/cuda12/nvidia/cuda_runtime/include/"
    write(copy / "build/cuda12/made", "")
    write(copy / headers / "cuda_runtime_api.h", "#define CUDART_VERSION 12040\nint cudaGraphInstantiate(int* graph);\n")
    write(copy / headers / "cuda_runtime.h", "#include <cuda_runtime_api.h>\n")
    write(copy / "kernels/cuda/runtime.cu", "#include <cuda_runtime.h>\nint f(int* g) { return cudaGraphInstantiate(g); }\n")
    check_each(["scripts/check_cuda12.sh"], copy, [
        (headers + "cuda_runtime_api.h", lambda text: text.replace("12040", "13000"), "static assertion failed"),
        ("kernels/cuda/runtime.cu", "int h(int* g) { return cudaGraphInstantiate(g, 0); }\n", "kernels/cuda/runtime.cu:3"),
        ("kernels/cuda/runtime.cu", "int h() { return cudaNew(); }\n", "cudaNew"),
        ("kernels/cuda/runtime.cu", "int h(int unused) { return 0; }\n", "unused"),
    ])  # fmt: skip


def kernel_ledger(copy):
    """Uses possible outputs of ptxas and nvdisasm for two kernels; compiles nothing."""
    copy_of(copy, "scripts")
    object_file, budget, commands = "build/linear.cu.o", "docs/gpu/kernels.budget", "build/compile_commands.json"
    report = "".join(f"ptxas info    : Compiling entry function '{symbol}' for 'sm_90a'\n"
                     "    0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n"
                     f"ptxas info    : Used {registers} registers, used 1 barriers, 1024 bytes smem\n"
                     for symbol, registers in (("_Z11gemv_kernelv", 168), ("_Z13finish_kerneli", 16)))  # fmt: skip
    write(copy / budget, "# A comment.\ngemv_kernel 168 16 4\nfinish_kernel 16 16 -\n")
    source = write(copy / "kernels/cuda/linear.cu", "")

    def compile_with(program):
        command = {"directory": str(copy / "build"), "file": str(source), "command": f"{program} -x cu -c {source} -o linear.cu.o"}
        write(copy / commands, json.dumps([command]))

    program(copy / "broken", "#!/bin/sh\necho it was compiled again >&2\nexit 1\n")
    compile_with(copy / "broken")
    write(copy / object_file, "")
    said = write(copy / (object_file + ".ptxas"), report)
    check = ["scripts/kernel_ledger.py", "build", "--check", "--arch", "90a", "--nvdisasm", ""]
    report_file = str(said.relative_to(copy))
    check_each(check, copy, [
        (report_file, lambda text: text.replace("Used 168", "Used 169"), "gemv_kernel for sm_90a: 169 registers"),
        (report_file, lambda text: text.replace("8 bytes spill l", "12 bytes spill l"), "finish_kernel for sm_90a: 20 bytes"),
        (report_file, lambda text: text.replace("13finish_kernel", "9new_block"), "new_block: no line", "finish_kernel"),
        (budget, lambda text: text.replace("gemv_kernel 168", "gemv_kernel 160"), "its budget is 160"),
        (budget, "gone_kernel 16 0 -\n", "gone_kernel: in docs/gpu/kernels.budget, but no such kernel"),
        (commands, lambda _: "[]", "compiles no CUDA files"),
    ])  # fmt: skip
    # A report for other architectures, or older than the object, is ignored.
    write(said, report.replace("sm_90a", "sm_80"))
    finds(check, copy, "kernel_ledger: a report of another architecture", "linear.cu for sm_90a: it was compiled again")
    write(said, report)
    os.utime(said, (1, 1))
    finds(check, copy, "kernel_ledger: a report that is too old", "linear.cu for sm_90a: it was compiled again")

    # Loads in flight: a compiler with the same report, and machine code of one kernel.
    program(copy / "nvcc", f"#!/bin/sh\ncat {said}\n")
    compile_with(copy / "nvcc")
    check[-1] = str(copy / "nvdisasm")
    for loads in (4, 3):
        ops = [f"LDG.E R{i}, desc[UR4][R40.64]" for i in range(loads)] + ["FADD R9, R0, R1", "BRA `(.L_x_1)"]
        code = "".join(f"        /*{16 * i:04x}*/                   {op} ;\n" for i, op in enumerate(ops))
        program(copy / "nvdisasm", f"#!/bin/sh\ncat <<'END'\n.text._Z11gemv_kernelv:\n.L_x_1:\n{code}END\n")
        if loads == 4:
            passes(check, copy, "kernel_ledger with nvdisasm")
        else:
            finds(check, copy, "kernel_ledger: planted in a loop", "gemv_kernel for sm_90a: 3 loads in flight, its budget is 4")


def check_tidy(copy):
    """Plants in one file per easily missed folder, and adds a file without a library. CI runs the check itself."""
    copy_of(copy, ".", ":!tests/golden", ":!configs", ":!docs")
    check = ["scripts/check_tidy.py"]
    for name in ("engine/eval/measure/windows.cpp", "models/text/unicode.cpp", "models/io/mapped_file.cpp"):
        with (copy / name).open("a", encoding="utf-8") as file:
            file.write("\nbool planted(int a) { return a == a; }\n")
        finds([*check, name], copy, f"check_tidy: planted in {name}", f"{name}:", "misc-redundant-expression", "read 0 of 1 files")
    for name in ("models/new/planted.cpp", "scripts/planted.cpp"):
        write(copy / name, "")
        track(copy)
        finds(check, copy, f"check_tidy: {name}", f"no unit of the build has {name}")
        (copy / name).unlink()


def check_protections(copy):
    """check_protections.py itself tests each protection by hand; this tests that it knows the current sources."""
    copy_of(copy, "tests/faults", "tools/*.cpp", "engine", "models/io", "kernels/cpu/*.cpp")
    check_each(["tests/faults/check_protections.py", "--match"], copy, [
        ("tools/signals.cpp", lambda text: text.replace("std::signal(SIGPIPE, SIG_IGN);", ""), "closed pipe, sweep"),
        ("kernels/cpu/cpu_backend.cpp", "{ start_team(threads_); }", "threads: kernels/cpu/cpu_backend.cpp has 2"),
    ])  # fmt: skip


CHECKS = [check_layers, check_lengths, check_words, check_format, check_reading, check_docs, check_scripts, check_skips, check_filters, check_cuda12,
          check_tidy, kernel_ledger, check_protections]


def main():
    checks = {check.__name__: check for check in CHECKS}
    if unknown := [name for name in sys.argv[1:] if name not in checks]:
        sys.exit(f"test_checks: there is no {unknown[0]}; there are {', '.join(checks)}")
    if untested := {path.stem for path in (ROOT / "scripts").glob("check_*")} - set(checks):
        problems.append(f"no test of scripts/{min(untested)}")
    for name in sys.argv[1:] or checks:
        before, good = planted, len(problems)
        with tempfile.TemporaryDirectory() as folder:
            checks[name](Path(folder))
        print(f"{name}: {planted - before} violations planted, {'all found' if len(problems) == good else 'FAILED'}", flush=True)
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
