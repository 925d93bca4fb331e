#!/usr/bin/env python3
"""Compares lariat serve with lm-eval's hf model: log-likelihoods of 20 questions of 4 answers, and 20 texts of 48 tokens, in float32.

    tools/lab/peers/lm_eval_tasks.py DIR [--bos]    --bos: where hf adds one (Llama, Gemma)

Needs build/lariat, and a Python with lm-eval[api], torch and transformers.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LARIAT = Path(__file__).resolve().parents[3] / "build/lariat"
# The first answer is the right one.
QUESTIONS = """The sun rises in the: east, kitchen, shoe, purple
Once upon a time, there lived a young: girl, of, seven, is
She opened the door and walked into the: house, walked, and, blue
Fish swim in the: water, bread, sky, chair
The capital of France is: Paris, London, Berlin, Madrid
Two plus two is: four, nine, green, seven
In winter the ground was covered with: snow, lions, trains, songs
The baker gave him a loaf of: bread, rain, stone, sky
A cat likes to drink: milk, paper, bricks, doors
At night we can see the moon and the: stars, lunch, spoon, noon
Lily was sad because she had lost her: ball, quickly, under, the
He was thirsty, so he drank a glass of: water, wood, sand, wind
The opposite of hot is: cold, fire, warm, hot
Bees make: honey, cheese, cars, glass
We write with a: pen, cloud, river, cow
After Monday comes: Tuesday, Sunday, Friday, March
The dog began to: bark at the stranger, bark the of at, table of the, yellow on at
They had flour, sugar and butter, but they had no: eggs, of, ran, very
An apple is a kind of: fruit, animal, car, stone
“I am sorry,” she said — the café was: closed … for today, üüü, naïve of, 😀😀"""
TEXTS = ["Once upon a time", "There was a small boy named", "Lily had a good friend", "The secret number of the brown door was",
         "One day, Tom found a silver", "She lived in a white house near", '"I am sorry," she said.', "The capital of France is",
         "Water boils at", "A list of colours: red, green,", "def add(a, b):", "1, 2, 3, 4,", "In the morning, the bird",
         "They wanted to make a cake", "The king said to the queen", "My name is", "It was raining, so",
         "Question: Which planet is the largest?\nAnswer:", "for i in range(10):\n", "The café in Zürich"]  # fmt: skip
TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
{rest}"""
CHOICES = """output_type: multiple_choice
doc_to_text: "{{query}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
GENERATE = """output_type: generate_until
doc_to_text: "{{query}}"
doc_to_target: ""
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 48, do_sample: false, temperature: 0.0}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


def write_tasks(folder):
    rows = [line.rsplit(": ", 1) for line in QUESTIONS.splitlines()]
    questions = [{"query": query, "choices": answers.split(", "), "gold": 0} for query, answers in rows]
    for name, data, rest in (("questions", questions, CHOICES), ("texts", [{"query": text} for text in TEXTS], GENERATE)):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in data), encoding="utf-8")
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, data=path, rest=rest), encoding="utf-8")


def evaluate(folder, name, *arguments):
    """-> {task: {document: results of lm-eval}}"""
    out = folder / name
    command = [sys.executable, "-m", "lm_eval", "run", "--include_path", folder, "--tasks", "questions,texts", "--log_samples",
               "--output_path", out, *arguments]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    files = {task: next(out.rglob(f"samples_{task}_*.jsonl")) for task in ("questions", "texts")}
    return {task: {row["doc_id"]: row for row in map(json.loads, path.open(encoding="utf-8"))} for task, path in files.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="DIR")
    parser.add_argument("--bos", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tasks(folder)
        hf = evaluate(folder, "hf", "--model", "hf", "--model_args", f"pretrained={options.model},dtype=float32", "--device", "cpu")
        command = [LARIAT, "serve", "-m", options.model, "--port", "0", "--dtype", "f32", "--kv-dtype", "f32"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            try:
                url = next(line for line in server.stderr if "listening on" in line).split()[-1]
                served = evaluate(folder, "served", "--model", "local-completions", "--batch_size", "4", "--model_args",
                                  f"base_url={url}/completions,model=any,tokenizer={options.model},tokenizer_backend=huggingface,"
                                  f"add_bos_token={options.bos},max_length=512,num_concurrent=1")  # fmt: skip
            finally:
                server.terminate()

    def scores(of):
        return [float(answer[0][0]) for row in of["questions"].values() for answer in row["resps"]]

    def texts(of):
        return [row["resps"][0][0] for row in of["texts"].values()]

    for name, of in (("hf", hf), ("lariat", served)):
        print(f"{name}: accuracy {sum(row['acc'] for row in of['questions'].values()) / len(of['questions']):.2f}")
    largest = max(abs(a - b) for a, b in zip(scores(hf), scores(served), strict=True))
    pairs = list(zip(texts(hf), texts(served), strict=True))
    print(f"largest difference of {len(scores(hf))} log-likelihoods: {largest:.1e}")
    print(f"equal texts: {sum(a == b for a, b in pairs)}, but for the first space {sum(a.lstrip() == b.lstrip() for a, b in pairs)}")


if __name__ == "__main__":
    main()
