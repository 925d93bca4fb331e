#!/usr/bin/env python3
"""The tables and the figure of docs/real-model.md, from the files of scripts/real_model.sh.

    tools/lab/peers/real_model_tables.py FOLDER [--docs docs/real-model.md] [--svg docs/real-model.svg]

Tables: logits, growing, positions, divergence, speed, passkey, tasks. A table without files is skipped, a missing cell is
"-". With --docs a table replaces the text between <!-- NAME --> and <!-- /NAME --> of the page; tables without such marks
are printed. The commands are in FOLDER/*.command.
"""
import argparse
import json
import math
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import pages  # noqa: E402

# name, label, CSS class, stale keys
METHODS = (("none", "none", "c0", False), ("yarn", "yarn 4", "c1", False), ("dynamic", "dynamic", "c2", False),
           ("dynamic-yarn", "dynamic-yarn", "c3", False), ("dynamic-stale", "dynamic, stale", "c2", True),
           ("dynamic-yarn-stale", "dynamic-yarn, stale", "c3", True),
           ("transformers", "dynamic in transformers", "c4", True))  # fmt: skip

# Named as in scripts/real_model.sh
POSITIONS = ("dca", "self-extend", "self-extend-auto", "string", "rerope", "rerope-auto", "sinks", "lm-infinite",
             "dca+dynamic-yarn", "dca+yarn", "self-extend+dynamic-yarn", "string+dynamic-yarn")  # fmt: skip


def read(folder, name):
    path = folder / name
    try:
        return json.loads(path.read_text()) if path.exists() else None
    except json.JSONDecodeError as error:
        sys.exit(f"real_model_tables: error: {path}: no JSON: {error}; remove it and run scripts/real_model.sh again")


def growing(folder, names):
    """-> {name: [(first position, end, tokens, loss)]}"""
    curves = {}
    for name in names:
        if data := read(folder, f"growing-{name}.json"):
            curves[name] = [(p["from"], p["to"], p["tokens"], p["loss"]) for p in data["results"][0]["positions"] if p["tokens"]]
    return curves


def growing_table(folder, labels):
    curves = growing(folder, labels)
    if not curves:
        return None
    ctx = max(parts[-1][1] for parts in curves.values())
    edges = [ctx * eighths // 8 for eighths in (0, 1, 2, 3, 4, 6, 8)]
    rows = []
    for name, label in labels.items():
        row = [label]
        for begin, end in zip(edges, edges[1:]):
            inside = [p for p in curves.get(name, []) if begin <= p[0] and p[1] <= end]
            whole = sum(p[1] - p[0] for p in inside) == end - begin
            mean = sum(p[2] * p[3] for p in inside) / sum(p[2] for p in inside) if whole else None
            row.append(f"{math.exp(mean):.1f}" if whole else None)
        rows += [row] if name in curves else []
    return pages.table(["positions", *(f"{a:,} .. {b:,}" for a, b in zip(edges, edges[1:]))], rows)


def logits_table(folder):
    if not (data := read(folder, "logits.json")):
        return None
    return (f"Logits of {data['tokens']} tokens: the largest difference from transformers' is {data['ratio']:.1e} of the largest "
            f"logit, the argmax the same at {100 * data['same_top']:.1f} %. Greedy: {data['greedy_same']} of "
            f"{data['greedy']} tokens the same.")  # fmt: skip


LLAMA_LINES = {"kl": r"Mean +KLD: +(\S+) ± +(\S+)", "kl_99": r"99\.0% +KLD: +(\S+)", "dp": r"RMS Δp *: +(\S+) ± +(\S+) %",
               "top": r"Same top p: +(\S+) ± +(\S+) %", "ratio": r"Mean PPL\(Q\)/PPL\(base\) +: +(\S+) ± +(\S+)"}  # fmt: skip
LARIAT_KEYS = {"kl": "kl", "kl_99": "kl_p99", "dp": "p_diff_rms", "top": "same_top", "ratio": "ppl_ratio"}


def divergence_table(folder):
    rows = []
    for weights, peer in (("q8", "q8"), ("q4", "q4_0")):
        if data := read(folder, f"divergence-{weights}.json"):
            row = [f"lariat {weights}"]
            for key, name in LARIAT_KEYS.items():
                scale = 100 if key in ("dp", "top") else 1
                error = data.get(name + "_stderr")
                row.append(f"{scale * data[name]:.4g}" + (f" ± {scale * error:.2g}" if error is not None else ""))
            rows.append(row)
        path = folder / f"divergence-llama.cpp-{peer}.txt"
        if path.exists():
            text, row = path.read_text(errors="replace"), [f"llama.cpp {weights[:2].upper()}_0"]
            for pattern in LLAMA_LINES.values():
                found = re.search(pattern, text)
                row.append(" ± ".join(f"{float(n):.4g}" for n in found.groups()) if found else None)
            rows.append(row)
    head = ["weights", "mean KL, nats", "99th percentile", "RMS of Δp, %", "same top token, %", "perplexity ratio"]
    return pages.table(head, rows) if rows else None


def speed_table(folder):
    rows = []
    for weights, peer in (("f32", "f32"), ("q8", "q8"), ("q4", "q4_0")):
        if data := read(folder, f"speed-lariat-{weights}.json"):
            rates = {result["test"]: result["tok_s_median"] for result in data["results"]}
            rows.append([f"lariat {weights}", f"{rates['pp']:.0f}", f"{rates['tg']:.1f}"])
        if data := read(folder, f"speed-llama.cpp-{peer}.json"):
            rates = {"pp" if test["n_prompt"] > 0 else "tg": test["avg_ts"] for test in data}
            label = "F32" if weights == "f32" else weights[:2].upper() + "_0"
            rows.append([f"llama.cpp {label}", f"{rates['pp']:.0f}", f"{rates['tg']:.1f}"])
    if data := read(folder, "speed-transformers.json"):
        rows.append(["transformers f32", f"{data['pp']:.0f}", f"{data['tg']:.1f}"])
    return pages.table(["tokens per second", "prefill of 512", "decoding 64"], rows) if rows else None


def recall_table(folder, kind, names):
    """Rows: methods or tasks; columns: lengths, in %."""
    lengths = sorted({int(path.stem.rsplit("-", 1)[1]) for path in folder.glob(f"{kind}-*.json")})
    rows = []
    for name in names:
        found = {length: read(folder, f"{kind}-{name}-{length}.json") for length in lengths}
        shares = {n: data["accuracy"][str(n)] for n, data in found.items() if data}
        rows += [[name, *(f"{100 * shares[n]:.0f}" if n in shares else None for n in lengths)]] if shares else []
    return pages.table([{"passkey": "found, %", "task": "recall, %"}[kind], *(f"{n:,}" for n in lengths)], rows) if rows else None


def picture(curves, trained):
    left, right, top, bottom, width, height = 46, 356, 66, 356, 520, 404
    ctx = max(parts[-1][1] for parts in curves.values())
    values = [math.exp(p[3]) for name, parts in curves.items() if name != "transformers" for p in parts]
    low, high = min(values) / 1.2, max(values) * 1.1
    x = lambda position: left + (right - left) * position / ctx  # noqa: E731
    y = lambda value: bottom - (bottom - top) * math.log(value / low) / math.log(high / low)  # noqa: E731
    svg = [pages.svg_text(left, 26, "start", "head", "Perplexity while a context grows"),
           pages.svg_text(left, 46, "start", "note", "SmolLM2-135M reading a book; dashed: stale keys")]  # fmt: skip
    ticks = [n * 10**e for e in range(-1, 7) for n in (1, 2, 5) if low <= n * 10**e <= high]
    for value in ticks:
        svg.append(f'<path class="grid" d="M{left} {y(value):.1f}H{right}"/>\n')
        svg.append(pages.svg_text(left - 7, y(value) + 4.5, "end", "tick", f"{value:g}"))
    for position in range(0, ctx + 1, ctx // 4):
        name = f"{position / 1024:g}k" if position else "0"
        svg.append(pages.svg_text(x(position), bottom + 18, "middle", "tick", name))
    svg.append(pages.svg_text(right, bottom + 38, "end", "note", "position in tokens"))
    if trained < ctx:
        svg.append(f'<path class="rule" d="M{x(trained):.1f} {top}V{bottom}"/>\n')
        svg.append(pages.svg_text(x(trained) - 5, top + 12, "end", "tick", "trained"))
    labels = []
    for name, label, colour, stale in METHODS:
        if name in curves and name != "transformers":
            points = [(x((a + b) / 2), y(math.exp(loss))) for a, b, _, loss in curves[name]]
            path = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
            svg.append(f'<path class="curve {colour}{" stale" if stale else ""}" d="M{path}"/>\n')
            labels.append([points[-1][1], colour, label])
    labels.sort()
    for i, entry in enumerate(labels):  # 17 pixels apart, down from the top, then up
        entry[0] = max(entry[0], labels[i - 1][0] + 17 if i else top)
    for i in reversed(range(len(labels))):
        labels[i][0] = min(labels[i][0], labels[i + 1][0] - 17 if i + 1 < len(labels) else bottom - 8)
    svg += [pages.svg_text(right + 8, py + 4.5, "start", colour, label) for py, colour, label in labels]
    return pages.svg(width, height, "Perplexity by position, each way of reaching beyond the trained context", "".join(svg))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path, help="file with marked tables to replace")
    parser.add_argument("--svg", type=Path, help="file for the figure")
    args = parser.parse_args()
    folder = args.folder
    tables = {"logits": logits_table(folder), "growing": growing_table(folder, {name: label for name, label, *_ in METHODS}),
              "positions": growing_table(folder, {name: name for name in POSITIONS}), "divergence": divergence_table(folder),
              "speed": speed_table(folder), "passkey": recall_table(folder, "passkey", [name for name, *_ in METHODS]),
              "tasks": recall_table(folder, "task", ("multikey", "multivalue", "multiquery", "tracking"))}  # fmt: skip
    if not any(tables.values()):
        sys.exit(f"real_model_tables: error: {folder}: no results of scripts/real_model.sh")
    page = args.docs.read_text(encoding="utf-8") if args.docs else ""
    for name, table in tables.items():
        if table and f"<!-- {name} -->" in page:
            pages.replace(args.docs, name, table)
        elif table:
            print(f"{name}\n\n{table}\n")
    if args.svg and (curves := growing(folder, [name for name, *_ in METHODS])):
        trained = read(folder, "model/config.json") or {"max_position_embeddings": 8192}
        args.svg.write_text(picture(curves, trained["max_position_embeddings"]), encoding="utf-8")


if __name__ == "__main__":
    main()
