#!/usr/bin/env python3
"""Makes the goldens of the chat templates: what transformers renders, and what it refuses.

Run:  python3 tests/golden/make_chat_templates.py [--shared DIR]
Needs: transformers 5.23 with Jinja 3.1.6; the templates are in chat_template_texts.py and chat_template_features.py.

Writes tests/golden/chat_templates.json:
  now, tokens     the time (local) and the special tokens of all cases
  templates       name: source
  conversations   name: messages
  cases           [{"template": name, "conversation": name, "prompt": add_generation_prompt, "variables": {...},
                  "text": rendered}, or "error": what raise_exception says, "" where anything else is raised]
  variables       of the features
  features        [{"source", "text" or "error"}], with the first conversation, without a generation prompt
With --shared (the folder that holds tokenizers/) also the cases of the templates there, "shared":
  [{"folder", "conversation", "prompt", "variables", "sha256" of the text or "error", "ids": the sum of (i + 1) * id of
  the tokens, or null where the tokenizer alone is not enough}]; without it the old ones stay.
"""

import argparse
import datetime
import hashlib
import json
import pathlib

import jinja2
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

from chat_template_features import FEATURES, LINES, REFUSED, VARIABLES
from chat_template_texts import CONVERSATIONS, TEMPLATES, THINKING

OUT = pathlib.Path(__file__).resolve().parent / "chat_templates.json"
NOW = datetime.datetime(2024, 7, 6, 15, 4, 5)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = Clock


def without_nulls(messages):  # as apply_chat_template does before it renders
    return [{key: value for key, value in message.items() if value is not None} for message in messages]


def render(source, messages, prompt, variables):
    """-> {"text"} or {"error"}"""
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [without_nulls(messages)], chat_template=source, add_generation_prompt=prompt, **variables)
        return {"text": texts[0]}
    except Exception as error:  # whatever Python raises is a refusal
        return {"error": str(error) if type(error) is jinja2.exceptions.TemplateError else ""}


def variants(thinking):
    yield False, {}
    yield True, {}
    if thinking:
        for value in (False, True):
            yield True, {"enable_thinking": value, "thinking": value}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", type=pathlib.Path)
    args = parser.parse_args()

    cases = []
    for name, source in TEMPLATES.items():
        for conversation, messages in CONVERSATIONS.items():
            for prompt, variables in variants(name in THINKING):
                case = {"template": name, "conversation": conversation, "prompt": prompt}
                if variables:
                    case["variables"] = variables
                cases.append(case | render(source, messages, prompt, TOKENS | variables))
    first = next(iter(CONVERSATIONS.values()))
    sources = FEATURES.split("\n") + LINES + REFUSED.split("\n")
    features = [{"source": source} | render(source, first, False, TOKENS | VARIABLES) for source in sources]

    shared = json.loads(OUT.read_text())["shared"] if OUT.exists() else []
    if args.shared:
        shared = shared_cases(args.shared)
    golden = {"now": NOW.isoformat(), "tokens": TOKENS, "templates": TEMPLATES, "conversations": CONVERSATIONS,
              "cases": cases, "variables": VARIABLES, "features": features, "shared": shared}
    # One case a line.
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":"))
    for key in ("template", "source", "folder"):
        text = text.replace('{"%s":' % key, '\n{"%s":' % key)
    OUT.write_text(text + "\n")
    refused = sum("error" in case for case in cases + features)
    print(f"{len(cases)} cases of {len(TEMPLATES)} templates, {len(features)} features; {refused} of them refused; "
          f"{len(shared)} of the shared folder")


def shared_cases(root):
    shared = []
    for file in sorted(root.glob("*/*/tokenizer_config.json")):
        tokenizer = AutoTokenizer.from_pretrained(file.parent)
        if not tokenizer.chat_template:
            continue
        for conversation, messages in CONVERSATIONS.items():
            for prompt, variables in variants(True):
                case = {"folder": f"{file.parent.parent.name}/{file.parent.name}", "conversation": conversation,
                        "prompt": prompt, "variables": variables}
                try:
                    text = tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, tokenize=False,
                                                         **variables)
                    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False,
                                                        **variables)
                    case["sha256"] = hashlib.sha256(text.encode()).hexdigest()
                    case["ids"] = sum((i + 1) * id for i, id in enumerate(ids))
                except Exception as error:
                    case["error"] = str(error) if type(error) is jinja2.exceptions.TemplateError else ""
                shared.append(case)
    return shared


if __name__ == "__main__":
    main()
