"""Reads models/families/families.def, the only list of families and their golden checkpoints."""

import pathlib
import re

DEFINITION = pathlib.Path(__file__).resolve().parents[2] / "models" / "families" / "families.def"


def rows(macro):
    """The arguments of each LARIAT_`macro`(...), in the file's order."""
    found = re.findall(rf"^LARIAT_{macro}\((.*)\)$", DEFINITION.read_text(), re.M)
    return [[cell.strip() for cell in row.split(",")] for row in found]


def families():
    """[(architecture, model_type, the reader of its config)]"""
    return [tuple(row[:3]) for row in rows("FAMILY")]


def golden_checkpoints(*lists):
    """Names of the checkpoints in any of the lists (kTrace, kKeys, ...); without lists, of all checkpoints."""
    return [name for name, in_lists in rows("CHECKPOINT") if not lists or set(lists) & set(in_lists.split(" | "))]
