#!/usr/bin/env python3
"""Lists registers, spills and hot loops of every compiled CUDA kernel, and checks docs/gpu/kernels.budget.

    scripts/kernel_ledger.py [BUILD_DIR] [--arch 80,90a] [--check] [--markdown docs/gpu/kernels.md] [--nvdisasm PROGRAM]
    scripts/kernel_ledger.py [BUILD_DIR] --arch 80 --nvdisasm PROGRAM --blocks KERNEL

Compiles each .cu file of kernels/cuda for each architecture with the command of BUILD_DIR/compile_commands.json and reads
the registers, spills and static shared memory of every kernel from ptxas. A report kept by the build (keep_ptxas.sh) is used
instead if the machine code is not needed, or if cuobjdump takes it out of the build's object. With nvdisasm (CUDA toolkit, or
Python packages nvidia-cuda-nvdisasm and nvidia-cuda-cuobjdump), lists for the loop with
most of a kernel's memory and tensor instructions: instructions, global loads, loads in flight before the first use, generic
instead of global loads, and F2F conversions. --check fails if a kernel exceeds its budget. --blocks lists the basic blocks of
that loop for one instance, to add up the instructions of one path.
"""
import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET = ROOT / "docs/gpu/kernels.budget"
REGISTERS_PER_SM = 65536


def fail(text):
    sys.exit(f"kernel_ledger: error: {text}")


def compile_file(entry, arch, folder):
    """-> (ptxas output, path of the machine code)"""
    words = entry["command"]
    words = re.sub(r'\s"?--generate-code=\S+', "", words)
    words = re.sub(r"^\S*ccache ", "", words)
    cubin = folder / f"{Path(entry['file']).stem}.{arch}.cubin"
    words = re.sub(r" -o \S+", f" -o {cubin}", words)
    words = re.sub(r" -c (?=\S+\.cu)", " -cubin ", words)
    words = re.sub(r" -M[DF] ?\S*\.d\b| -MT \S+| -MD\b", "", words)
    words += f" -gencode arch=compute_{arch},code=sm_{arch} -Xptxas -v"
    done = subprocess.run(words, shell=True, cwd=entry["directory"], capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"{entry['file']} for sm_{arch}: {done.stderr.strip().splitlines()[-1]}")
    return done.stderr + done.stdout, cubin


def reported(entry):
    """The build's ptxas report of this file; None if missing or older than the object."""
    written = Path(entry["directory"]) / re.search(r" -o (\S+)", entry["command"])[1]
    report = written.with_name(written.name + ".ptxas")
    if not report.exists() or not written.exists() or report.stat().st_mtime < written.stat().st_mtime:
        return None
    return report.read_text()


def extracted(entry, arch, folder):
    """Path of the machine code in the build's object, or None without cuobjdump or this architecture."""
    if not shutil.which("cuobjdump"):
        return None
    written = Path(entry["directory"]) / re.search(r" -o (\S+)", entry["command"])[1]
    own = folder / f"{written.stem}.{arch}"
    own.mkdir()
    subprocess.run(["cuobjdump", "-xelf", "all", written.resolve()], cwd=own, stdout=subprocess.DEVNULL, check=True)
    return next(own.glob(f"*.sm_{arch}.cubin"), None)


def plain(names):
    """{symbol: kernel name and template arguments}"""
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    plains = {}
    for symbol, name in zip(names, text.splitlines()):
        name = re.sub(r"\(anonymous namespace\)::|lariat::|cuda::|^void |\(\w*\)(?=\d)", "", name)
        plains[symbol] = re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)$", "", name)
    return plains


ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def kernels_of(text, arch):
    """ptxas report of one architecture -> {symbol: registers, bytes spilled, bytes of static shared memory}"""
    found, symbol = {}, None
    for line in text.splitlines():
        if match := ENTRY.search(line):
            symbol = match[1] if match[2] == arch else None
            if symbol:
                found[symbol] = {"registers": 0, "spills": 0, "shared": 0}
        elif symbol and (match := SPILLS.search(line)):
            found[symbol]["spills"] = int(match[1]) + int(match[2])
        elif symbol and (match := USED.search(line)):
            shared = SHARED.search(line)
            found[symbol].update(registers=int(match[1]), shared=int(shared[1]) if shared else 0)
    return found


INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\d+\s+)?([A-Z][\w.]*)\s*([^;]*);")
JUMP = re.compile(r"BRA|BRX|JMP|CALL|RET|EXIT")


def parse(lines):
    """-> [(instruction, operands, predicate)], {label: index of the next instruction}"""
    code, labels = [], {}
    for line in lines:
        if match := re.match(r"\s*\.(L_x_\d+):", line):
            labels[match[1]] = len(code)
        elif match := INSTRUCTION.search(line):
            code.append((match[2], match[3], match[1] or ""))
    return code, labels


def hottest(code, labels):
    """-> (begin, end) of the loop with most loads, tensor products and shared-memory reads, or None"""
    best = None
    for end, (name, operands, _) in enumerate(code):
        target = re.search(r"L_x_\d+", operands)
        begin = labels.get(target[0]) if name.startswith("BRA") and target else None
        if begin is None or begin > end:
            continue
        weight = sum(op.startswith(("LDG", "HMMA", "LDSM", "LDGSTS")) for op, _, _ in code[begin : end + 1])
        if weight and (best is None or weight > best[0]):
            best = weight, begin, end + 1
    return best and best[1:]


def hot_loop(lines):
    """Machine code of a kernel -> figures of its hottest loop."""
    code, labels = parse(lines)
    place = hottest(code, labels)
    return loop_figures([(name, operands) for name, operands, _ in code[slice(*place)]]) if place else None


def blocks(lines):
    """Machine code of a kernel -> basic blocks of its hottest loop: start, number of instructions, some kinds of them, and the
    final jump."""
    code, labels = parse(lines)
    begin, end = hottest(code, labels) or (0, 0)
    names = {place: label for label, place in labels.items()}
    starts = {begin, end, *(place for place in names if begin < place < end)}
    starts |= {i + 1 for i in range(begin, end) if JUMP.match(code[i][0])}
    found = []
    for first, last in zip(sorted(starts), sorted(starts)[1:]):
        ops = [name for name, _, _ in code[first:last]]
        kinds = [f"{n} {kind}" for kind in ("HMMA", "LDSM", "LDGSTS", "LDG.", "MUFU", "FSEL") if (n := sum(o.startswith(kind) for o in ops))]
        name, operands, predicate = code[last - 1]
        jump = f"{predicate.strip()} {name} {operands}".strip() if JUMP.match(name) else ""
        found.append(f"{names.get(first, ''):10} {last - first:5}  {', '.join(kinds):40} {jump}".rstrip())
    return found


def loop_figures(body):
    loads = [op for op, _ in body if op.startswith("LDG") and not op.startswith("LDGSTS")]
    flying, most, pending = 0, 0, set()
    for op, operands in body:
        registers = [int(n) for n in re.findall(r"\bR(\d+)", operands)]
        if not registers:
            continue
        if op.startswith("LDG") and not op.startswith("LDGSTS"):
            width = 4 if ".128" in op else 2 if ".64" in op else 1
            flying += 1
            pending |= {registers[0] + i for i in range(width)}
            most = max(most, flying)
        elif pending.intersection(registers):
            flying, pending = 0, set()
    return {"instructions": len(body), "loads": len(loads), "in_flight": most,
            "generic": sum(re.match(r"LD(\.|$)", op) is not None for op, _ in body),
            "f2f": sum(op.startswith("F2F") for op, _ in body),
            "mma": sum(op.startswith("HMMA") for op, _ in body)}  # fmt: skip


def code_of(cubin, nvdisasm):
    """-> {symbol: lines of machine code}"""
    text = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^\.text\.(\w+):$", text, flags=re.M)
    return {symbol: body.splitlines() for symbol, body in zip(parts[1::2], parts[2::2])}


def cuda_files(build):
    """-> entries of compile_commands.json"""
    commands = build / "compile_commands.json"
    if not commands.exists():
        fail(f"{commands}: no such file; configure with -DLARIAT_CUDA=ON first")
    entries = [e for e in json.loads(commands.read_text()) if re.search(r"/kernels/cuda/\w+\.cu$", e["file"])
               and " -x cu " in e["command"]]  # fmt: skip
    if not entries:
        fail(f"{commands}: compiles no CUDA files; configure with -DLARIAT_CUDA=ON first")
    return entries


def list_blocks(build, arch, nvdisasm, kernel):
    if not nvdisasm:
        fail("--blocks needs nvdisasm: --nvdisasm PROGRAM")
    own = [e for e in cuda_files(build) if f" {kernel.split('<')[0]}(" in Path(e["file"]).read_text()]
    with tempfile.TemporaryDirectory() as folder:
        code = {}
        for entry in own:
            code |= code_of(compile_file(entry, arch, Path(folder))[1], nvdisasm)
    names = {name: symbol for symbol, name in plain(list(code)).items()} if code else {}
    if kernel not in names:
        known = "".join(f"\n  {name}" for name in sorted(names))
        fail(f"no kernel {kernel!r}" + (f"; there are{known}" if known else ""))
    print("\n".join(blocks(code[names[kernel]])))


def measure(build, archs, nvdisasm):
    """-> [(kernel with template arguments, file, arch, figures, hot loop or None)]"""
    entries = cuda_files(build)
    rows = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:

        def look(entry, arch):
            kept = reported(entry)
            if kept and kernels_of(kept, arch):
                cubin = extracted(entry, arch, Path(name)) if nvdisasm else None
                if cubin or not nvdisasm:
                    return kept, cubin
            return compile_file(entry, arch, Path(name))

        jobs = [(entry, arch, pool.submit(look, entry, arch)) for arch in archs for entry in entries]
        for entry, arch, job in jobs:
            text, cubin = job.result()
            kernels = kernels_of(text, arch)
            code = code_of(cubin, nvdisasm) if nvdisasm and kernels else {}
            names = plain(list(kernels)) if kernels else {}
            rows += [(names[symbol], Path(entry["file"]).name, arch, figures, hot_loop(code.get(symbol, [])))
                     for symbol, figures in kernels.items()]  # fmt: skip
    return rows


def over_budget(rows):
    """Lines of the budget: kernel, maximum registers, maximum bytes spilled, minimum loads in flight (-: no limit)."""
    limits = {}
    for line in BUDGET.read_text().splitlines():
        if line and not line.startswith("#"):
            kernel, registers, spills, in_flight = line.split()
            limits[kernel] = int(registers), int(spills), None if in_flight == "-" else int(in_flight)
    built = {row[0].split("<")[0] for row in rows}
    found = [f"{kernel}: in {BUDGET.relative_to(ROOT)}, but no such kernel was built" for kernel in limits if kernel not in built]
    for name, _, arch, figures, loop in rows:
        kernel = name.split("<")[0]
        if kernel not in limits:
            found.append(f"{name}: no line in {BUDGET.relative_to(ROOT)}")
            continue
        registers, spills, in_flight = limits[kernel]
        for what, value, limit in (("registers", figures["registers"], registers), ("bytes spilled", figures["spills"], spills)):
            if value > limit:
                found.append(f"{name} for sm_{arch}: {value} {what}, its budget is {limit}")
        if in_flight is not None and loop and loop["loads"] and loop["in_flight"] < in_flight:
            found.append(f"{name} for sm_{arch}: {loop['in_flight']} loads in flight, its budget is {in_flight}")
    return found


def table(rows, archs, shortest=0):
    """One line per kernel: the maximum of its instances; the loop of the instance with the longest loop. Skips kernels with a loop
    of fewer than `shortest` instructions and, if shortest > 0, kernels without a loop."""
    head = ["kernel", "instances", *(f"registers sm_{arch}" for arch in archs), "spilled", "shared, bytes", "warps per SM",
            "loop: instructions", "loads", "in flight", "generic", "F2F", "mma"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for kernel in sorted({row[0].split("<")[0] for row in rows}):
        mine = [row for row in rows if row[0].split("<")[0] == kernel]
        registers = [max(r[3]["registers"] for r in mine if r[2] == arch) for arch in archs]
        granted = -(-max(registers) // 8) * 8
        loops = [row[4] for row in mine if row[4] and row[2] == archs[-1]]
        loop = max(loops, key=lambda figures: figures["instructions"]) if loops else None
        if shortest > (loop["instructions"] if loop else 0):
            continue
        keys = ("instructions", "loads", "in_flight", "generic", "f2f", "mma")
        cells = [f"`{kernel}`", len({row[0] for row in mine}), *registers, max(r[3]["spills"] for r in mine),
                 max(r[3]["shared"] for r in mine), min(64, REGISTERS_PER_SM // (32 * granted)),
                 *((loop[key] for key in keys) if loop else "-" * len(keys))]  # fmt: skip
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, nargs="?", default=ROOT / "build")
    parser.add_argument("--arch", default="80,90a", help="compute capabilities [default: 80,90a]")
    parser.add_argument("--check", action="store_true", help="fail if a kernel exceeds its budget")
    parser.add_argument("--markdown", type=Path, help="replace the table between <!-- ledger --> and <!-- /ledger -->")
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm"), help="disassembler; without one, loops are skipped")
    parser.add_argument("--blocks", metavar="KERNEL", help="list the hottest loop of one instance for the first --arch")
    args = parser.parse_args()
    archs = args.arch.split(",")
    if args.blocks:
        return list_blocks(args.build.resolve(), archs[0], args.nvdisasm, args.blocks)
    rows = measure(args.build.resolve(), archs, args.nvdisasm)
    if not args.nvdisasm:
        print("SKIPPED: loads in flight of CUDA kernels: nvdisasm is missing; put it on PATH (pip install nvidia-cuda-nvdisasm)")
    if args.markdown:
        rewritten = table(rows, archs, shortest=64 if args.nvdisasm else 0)
        text, times = re.subn(r"<!-- ledger -->.*<!-- /ledger -->", lambda _: f"<!-- ledger -->\n{rewritten}\n<!-- /ledger -->",
                              args.markdown.read_text(), flags=re.S)  # fmt: skip
        if times != 1:
            fail(f"{args.markdown}: no marks <!-- ledger --> and <!-- /ledger -->")
        args.markdown.write_text(text)
    elif not args.check:
        print(table(rows, archs))
    if args.check:
        problems = over_budget(rows)
        print("\n".join(problems) or f"{len(rows)} kernels of sm_{', sm_'.join(archs)} within their budgets")
        sys.exit(bool(problems))


if __name__ == "__main__":
    main()
