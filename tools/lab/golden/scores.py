#!/usr/bin/env python3
"""Scores answers with the benchmarks' own functions: tests/golden/scores.jsonl, a line per answer.

    tools/lab/golden/scores.py RULER SKILLS

RULER: a checkout of NVIDIA/RULER at c3f5e3b (Apache-2.0). SKILLS: nemo_skills/evaluation/evaluator of NVIDIA-NeMo/Skills at
991a743, branch chsieh/ruler2 (Apache-2.0). Their functions are read from there. MRCR's score is Python's difflib, GraphWalks' rule
and the letter of a choice are written here from their descriptions.
"""

import ast
import difflib
import json
import pathlib
import random
import re
import sys

OUT = pathlib.Path(__file__).resolve().parents[3] / "tests" / "golden" / "scores.jsonl"


def distance(a, b):
    """Levenshtein distance, in place of the package editdistance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last = row
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y)))
    return row[-1]


def functions(file, names, within=None, **world):
    """-> the named functions of a source file, or of one of its functions."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    if within:
        body = next(node.body for node in body if isinstance(node, ast.FunctionDef) and node.name == within)
    chosen = [node for node in body if isinstance(node, ast.FunctionDef) and node.name in names]
    assert {node.name for node in chosen} == set(names), (file, names)
    world |= {"re": re}
    exec(compile(ast.Module(chosen, []), str(file), "exec"), world)
    return [world[name] for name in names]


class EditDistance:
    eval = staticmethod(distance)


def f1(answer, expected):
    last = re.fullmatch(r".*?Final Answer:\s*\[(.*)\].*", answer.strip().split("\n")[-1])
    if not last:
        return 0.0
    found, expected = {name.strip() for name in last[1].split(",") if name.strip()}, set(expected)
    if not found and not expected:
        return 1.0
    both = len(found & expected)
    if both == 0:
        return 0.0
    precision, recall = both / len(found), both / len(expected)
    return 2 * precision * recall / (precision + recall)


def mrcr(answer, expected):
    reference, start = expected
    if not answer.startswith(start):
        return 0.0
    return difflib.SequenceMatcher(None, answer.removeprefix(start), reference.removeprefix(start)).ratio()


def words(rnd, n):
    return " ".join(rnd.choice(["red", "Blue", "ÑANDÚ", "k\u212a", "İstanbul", "tree", "ΟΔΟΣ", "42", "jalapeño"]) for _ in range(n))


def changed(rnd, text):
    """Another case, or control bytes, or other words around the text."""
    kind = rnd.randrange(8)
    return [text, text.upper(), text.lower(), text.swapcase(), f"\x00\x1f {text}\x07\x1c ", f" so it is {text}.\n\nNext", text[1:],
            f"{text[: len(text) // 2]}\x0b{text[len(text) // 2 :]}"][kind]  # fmt: skip


def listed(rnd):
    """A RULER row: references and an answer with some of them."""
    pool = ["1234567", "8a7f-44", "jalapeño", "Ñandú", "İZMİR", "K", "\u212aelvin", "ΣΑΣ", "Straße", "ABCDE", "word", "wide awake"]
    references = rnd.sample(pool, rnd.choice([1, 1, 3, 5]))
    given = rnd.sample(references, rnd.randint((len(references) + 1) // 2, len(references))) + rnd.sample(pool, rnd.randrange(3))
    rnd.shuffle(given)
    answer = rnd.choice([", ", " ", "\n", " and "]).join(changed(rnd, one) for one in given)
    return references, rnd.choice([answer] * 9 + ["", " \x01\x02 ", answer.replace("i", "i\u0307")])


def copied(rnd):
    references = listed(rnd)[0]
    return references, rnd.choice(["", " ", "\n", "\x1c", "\u3000", "a"]) + changed(rnd, references[-1]) + rnd.choice(["", "\n", "\xa0"])


def sentences(rnd):
    """A RULERv2 row: an answer after thoughts, documents or other words."""
    references = [words(rnd, rnd.randrange(1, 7)) for _ in range(rnd.choice([1, 1, 2, 4]))]
    parts = []
    for one in references:
        kept = [word for word in one.split() if rnd.random() < 0.8]
        parts.append(changed(rnd, " ".join(kept + ["tree"] * rnd.randrange(2))))
    answer = rnd.choice([" ", "\n", "\n\n", "\u2003", "\x85"]).join(parts)
    before = rnd.choice(["", "", "Answer: ", "Answer: no. Answer:", f"<think>{references[0]}</think>", f"</think>Answer: {references[0]}\n\n",
                         f"Document 3:{references[0]}\ntext\n\n", f"Document 1: a\nDocument 2: {references[0]}", f"Document :\n{references[0]}\n\n",
                         f"Document 12:\n\n{references[0]}"])  # fmt: skip
    return references, before + answer


def prose(rnd):
    start = rnd.choice(["aB3xY9", "Zq81"])
    text = start + words(rnd, rnd.choice([3, 20, 60]))
    other = [rnd.choice("red tree") if rnd.random() < 0.08 else c for c in text[len(start) :] if rnd.random() < 0.95]
    at = rnd.randrange(len(other) + 1)
    answer = start + "".join(other[at:] + other[:at])
    return [text, start], rnd.choice([answer] * 8 + [text, " " + text, "", text[: len(text) // 2], start, text.upper()])


def nodes(rnd):
    expected = [f"{rnd.getrandbits(40):010x}" for _ in range(rnd.choice([0, 1, 2, 8]))]
    given = [name for name in expected if rnd.random() < 0.7] + [f"{rnd.getrandbits(40):010x}"] * rnd.randrange(3)
    rnd.shuffle(given)
    line = f"Final Answer: [{', '.join(given)}]"
    return expected, rnd.choice([line, "Thus\n" + line, line + "\n", line + ".", line[:-1], line.replace(": ", ":"), line + "\nDone", ""])


def letters(rnd):
    right = rnd.choice("ABCD")
    forms = ["Answer: {}", "**Answer:** {}", "Answer: **{}**", "answer : {}.", "Answer: {}\nAnswer: B", "I take {}", "Answer: {}2", "\\boxed{{{}}}",
             "\\boxed{{\\text{{{}}}}} Answer: A", "\\boxed{{A or {}}}", "__Answer__: {}", "Answer: {}BC", "Answer: {} "]  # fmt: skip
    return [right], rnd.choice(forms).format(rnd.choice([right, right, "C", right.lower()]))


def letter_of(answer):
    box = answer.rfind("\\boxed{")
    if box >= 0:
        depth, content = 0, ""
        for c in answer[box + 6 :]:
            depth += (c == "{") - (c == "}")
            if depth == 0:
                break
            content += c
        content = content[1:]
        found = re.findall(r"\b[A-J]\b(?!.*\b[A-J]\b)", content, re.DOTALL)
        return content if len(content) == 1 or not found else found[-1]
    found = re.findall(r"(?i)[\*\_]{0,2}Answer[\*\_]{0,2}\s*:[\s\*\_]{0,2}\s*([A-Z])(?![a-zA-Z0-9])", answer)
    return found[-1] if found else None


def main():
    ruler, skills = map(pathlib.Path, sys.argv[1:])
    match_all, match_part = functions(ruler / "scripts/eval/synthetic/constants.py", ["string_match_all", "string_match_part"])
    [cleaned] = functions(ruler / "scripts/eval/evaluate.py", ["postprocess_pred"])
    names = ["string_match_all_single", "string_match_2steps_single", "string_match_part_single", "post_process_preds", "wer"]
    second = functions(skills / "ruler.py", names, within="eval_ruler2", editdistance=EditDistance)
    rnd, rows = random.Random(42), []

    def add(metric, count, make, score):
        for _ in range(count):
            references, answer = make(rnd)
            rows.append({"metric": metric, "references": references, "answer": answer, "score": score(answer, references)})

    add("all", 100, listed, lambda answer, refs: match_all([cleaned(answer, {})], [refs]))
    add("part", 60, listed, lambda answer, refs: match_part([cleaned(answer, {})], [refs]))
    for metric, function in zip(("rulerv2-all", "rulerv2-2steps", "rulerv2-part"), second):
        add(metric, 60, sentences, lambda answer, refs, function=function: 100 * function(answer, refs))
    add("mrcr", 60, prose, lambda answer, refs: 100 * mrcr(answer, refs))
    add("f1", 60, nodes, lambda answer, refs: 100 * f1(answer, refs))
    add("choice", 60, letters, lambda answer, refs: 100.0 * (letter_of(answer) == refs[0]))
    add("exact", 40, copied, lambda answer, refs: 100.0 * any(answer.strip() == one.strip() for one in refs))
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
