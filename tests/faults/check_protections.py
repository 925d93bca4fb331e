#!/usr/bin/env python3
"""Removes the protections from a copy of the program, one at a time, and checks that a test of `ctest -L faults` fails.

    tests/faults/check_protections.py [NAME...]        default: all of them
    tests/faults/check_protections.py --match          only lists protections whose source text has changed

Works in build-protections/ (a copy of the sources and a build); the working tree is not touched.
"""
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COPY = os.path.join(ROOT, "build-protections")

# name: (file, removed text, replacement, test that must fail)
PROTECTIONS = {
    "mapped files": ("models/io/mapped_file.cpp", "::sigaction(SIGBUS,", "::sigaction(SIGUSR1,", "ChangedFile.*"),
    "closed pipe, sweep": ("tools/signals.cpp", "std::signal(SIGPIPE, SIG_IGN);", "", "Signals.ASweepGoesOn*"),
    "closed pipe, text": ("tools/generate.cpp", "return std::cout.good();", "return true;",
                          "Signals.AReaderThatHasSeenEnough*"),
    "closed pipe, code": ("tools/main.cpp", "if (lariat::stdout_has_no_reader()) return 128 + SIGPIPE;", "",
                          "Signals.AReaderThatHasSeenEnough*"),
    "hang-up": ("tools/signals.cpp", "{SIGINT, SIGTERM, SIGHUP}", "{SIGINT, SIGTERM}", "Signals.AClosedTerminal*"),
    "interrupts": ("tools/signals.cpp", "{SIGINT, SIGTERM, SIGHUP}", "{SIGHUP}", "Signals/EndingSignal.*"),
    "answers": ("engine/text/generate.cpp",
                "stop_if(options.generate.interrupted);  // a text that was cut short is no answer", "",
                "Signals/EndingSignal.KeepsTheAnswersOfLines*"),
    "figures": ("tools/divergence.cpp", "print(measured.record, command.method);\n        std::cout << std::flush;",
                "print(measured.record, command.method);", "Signals/EndingSignal.KeepsTheFigures*"),
    "nohup": ("tools/signals.cpp", "== SIG_IGN) std::signal(signal, SIG_IGN)", "== SIG_IGN) continue",
              "Signals.AnIgnoredHangUp*"),
    "stdout": ("tools/main.cpp", "  return finish();\n}\n", "  return 0;\n}\n", "FullDisk.TextThatCannotBeWritten*"),
    "file size": ("tools/signals.cpp", "std::signal(SIGXFSZ, SIG_IGN);", "", "FullDisk.AFileThatMayNotGrow*"),
    "temporary file": ("models/io/atomic_file.cpp", 
                       "    temporary_ += \".tmp\" + std::to_string(::getpid()) + (i > 0 ? \".\" + std::to_string(i) : \"\");\n",
                       "    ::unlink(temporary_.c_str());\n", "FullDisk.AReportThatDoesNotFit*"),
    "written lines": ("models/io/atomic_file.cpp", "if (n <= 0) return n < 0 ? errno : EIO;", "if (n <= 0) return 0;",
                      "FullDisk.ResultsThatDoNotFit*"),
    "half a line": ("engine/eval/measurement_log.cpp", "::ftruncate(fd_, static_cast<off_t>(bytes)) != 0", "bytes == 0",
                    "Signals.AKilledSweep*"),
    "threads": ("kernels/cpu/cpu_backend.cpp", "{ start_team(threads_); }",
                "{ if (threads_ > 100000) start_team(threads_); }", "OutOfMemory.OfThreads*"),
    "cache": ("engine/runtime/kv_cache.cpp", "} catch (const CacheFull& e) {", "} catch (const std::bad_cast& e) {",
              "OutOfMemory.OfAGrowingCache"),
    "memory": ("tools/main.cpp", "  } catch (const std::bad_alloc&) {\n"
               "    return fail(\"out of memory; use a shorter --ctx or a smaller model\", 1);\n"
               "  } catch (const std::exception& e) {\n    return fail(e.what(), 1);\n", "", "OutOfMemory.*"),
    "allocation": ("kernels/cpu/cpu_backend.cpp", "posix_memalign(&data, alignment, rounded) != 0",
                   "(posix_memalign(&data, alignment, rounded), false)",
                   "OutOfMemory.OfAPrefillInOnePiece"),
}


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def build():
    done = run(["cmake", "--build", os.path.join(COPY, "build"), "--target", "lariat", "faults_test"])
    if done.returncode != 0:
        sys.exit(f"check_protections: does not compile:\n{done.stdout[-3000:]}")


def failing(test):
    done = run([os.path.join(COPY, "build", "faults_test"), f"--gtest_filter={test}"])
    if "[ RUN " not in done.stdout or "[  SKIPPED ]" in done.stdout:
        sys.exit(f"check_protections: {test} did not run:\n{done.stdout[-2000:]}")
    return done.returncode != 0


def unmatched(names):
    for name in names:
        path, old, _, _ = PROTECTIONS[name]
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            if (count := file.read().count(old)) != 1:
                yield f"{name}: {path} has {count} times {old!r}"


def main():
    only_match = sys.argv[1:] == ["--match"]
    names = list(PROTECTIONS) if only_match else sys.argv[1:] or list(PROTECTIONS)
    if problems := list(unmatched(names)):
        sys.exit("check_protections: " + "\n".join(problems))
    if only_match:
        return
    os.makedirs(COPY, exist_ok=True)
    tracked = run(["git", "-C", ROOT, "ls-files", "-z"], check=True).stdout.split("\0")
    for name in filter(None, tracked):
        target = os.path.join(COPY, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(os.path.join(ROOT, name), target)
    subprocess.run(["cmake", "-S", COPY, "-B", os.path.join(COPY, "build"), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DLARIAT_CUDA=OFF"], check=True, stdout=subprocess.DEVNULL)
    build()
    if failing("*"):
        sys.exit("check_protections: the tests fail with every protection in place")
    unproven = []
    for name in names:
        path, old, new, test = PROTECTIONS[name]
        path = os.path.join(COPY, path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(old, new, 1))
            build()
            fails = failing(test)
        finally:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        print(f"{'fails without' if fails else 'DOES NOT NOTICE the loss of'} {name}: {test}", flush=True)
        if not fails:
            unproven.append(name)
    sys.exit(1 if unproven else 0)


if __name__ == "__main__":
    main()
