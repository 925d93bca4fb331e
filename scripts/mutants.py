#!/usr/bin/python3
"""Finds the mutants of a C++ file in clang's syntax tree for scripts/mutate.py, and writes the file with all of them.

Flips comparisons, replaces conditions and their operands by true or false, shifts constants, swaps arithmetic operators and
std::min and its relatives, deletes statements. Constant expressions are skipped.
"""
import re
import sys

from clang.cindex import CursorKind as Kind
from clang.cindex import Index

FLIPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
SWAPPED = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&"}
SWAPPED |= {a + "=": b + "=" for a, b in SWAPPED.items()}
CALLS = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor", "all_of": "any_of", "any_of": "all_of"}
NEUTRAL = {"&&": "true", "||": "false"}  # neutral value of an operand
OPERATORS = {Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR, Kind.CALL_EXPR, Kind.UNEXPOSED_EXPR}
LITERALS = {Kind.INTEGER_LITERAL, Kind.FLOATING_LITERAL, Kind.CXX_BOOL_LITERAL_EXPR}
WITH_STATEMENTS = {Kind.COMPOUND_STMT, Kind.IF_STMT, Kind.FOR_STMT, Kind.WHILE_STMT, Kind.CXX_FOR_RANGE_STMT, Kind.CASE_STMT,
                   Kind.DEFAULT_STMT, Kind.DO_STMT}  # fmt: skip
CONSTANT = {Kind.STATIC_ASSERT, Kind.ENUM_DECL}

# `reached` marks executed mutants.
PRELUDE = """\
#ifndef LARIAT_MUTANTS
#define LARIAT_MUTANTS
#undef NDEBUG
#define _GLIBCXX_ASSERTIONS  // an index beyond the end is noticed
#include <cstdio>
#include <cstdlib>
namespace {
struct LariatMutants {
  int active = std::getenv("LARIAT_MUTANT") ? std::atoi(std::getenv("LARIAT_MUTANT")) : 0;
  const char* file = std::getenv("LARIAT_REACHED");
  bool reached[%d] = {};
  ~LariatMutants() {
    std::FILE* out = file ? std::fopen(file, "a") : nullptr;
    if (!out) return;
    for (int i = 0; i < int(sizeof(reached)); ++i)
      if (reached[i]) std::fprintf(out, "%%d\\n", i);
    std::fclose(out);
  }
} lariat_mutants;
inline bool lariat_mutant(int i) {
  if (lariat_mutants.file && !lariat_mutants.reached[i]) lariat_mutants.reached[i] = true;
  return lariat_mutants.active == i;
}
}
#endif
#line 1
"""


class Mutant:
    def __init__(self, begin, end, line, before, after, switch):
        self.begin, self.end, self.line = begin, end, line
        self.before, self.after = " ".join(before.split()), " ".join(after.split())
        self.switch = switch  # (the switch's expression, original text, text with other mutants) -> text
        self.number, self.reaching, self.occurrence = 0, [], ""


class Finder:
    """The mutants of one file. Offsets are bytes; `text` has one character per byte."""

    def __init__(self, path, text, arguments):
        self.path, self.text, self.mutants, self.left_out, self.seen = str(path), text, [], 0, set()
        unit = Index.create().parse(self.path, arguments)
        if errors := [str(d) for d in unit.diagnostics if d.severity >= 3]:
            sys.exit("mutate: libclang cannot read it:\n" + "\n".join(errors[:5]))
        self.walk(unit.cursor, unit.cursor, False)

    def here(self, node):
        return node.location.file is not None and node.location.file.name == self.path

    def span(self, node):
        return node.extent.start.offset, node.extent.end.offset

    def around(self, begin, end):
        """The characters before and after, without white space."""
        return self.text[:begin].rstrip()[-1:], self.text[end:].lstrip()[:1]

    def add(self, begin, end, after, switch):
        """Adds a mutant unless it exists already (a template's instance, or Highway's next target)."""
        if end <= begin or (begin, end, after) in self.seen:
            return
        self.seen.add((begin, end, after))
        if self.constant:
            self.left_out += 1
        else:
            self.mutants.append(Mutant(begin, end, self.text.count("\n", 0, begin), self.text[begin:end], after, switch))

    def replace(self, begin, end, after):
        self.add(begin, end, after, lambda on, old, new: f"({on} ? ({after}) : ({new}))")

    def become(self, node, value):
        """Mutants of a condition or an operand: true and false."""
        if value == "true":
            self.add(*self.span(node), value, lambda on, old, new: f"({on} || ({new}))")
        else:
            self.add(*self.span(node), value, lambda on, old, new: f"(!{on} && ({new}))")

    def walk(self, node, parent, constant):
        for child in node.get_children():
            if node.kind == Kind.TRANSLATION_UNIT and not self.here(child):
                continue
            begin, end = self.span(child)
            head = self.text[begin : child.location.offset] if child.kind.is_declaration() else ""
            inner = constant or child.kind in CONSTANT or bool(re.search(r"\bconst(expr|eval|init)\b", head))
            inner = inner or (node.kind == Kind.CASE_STMT and self.text[node.extent.start.offset : begin].strip() == "case")
            inner = inner or (node.kind == Kind.IF_STMT and self.text.startswith("if constexpr", node.extent.start.offset)
                              and self.around(begin, end)[0] == "(")  # fmt: skip
            self.constant = inner
            if self.here(child):
                self.mutate(child, node)
            self.walk(child, node, inner)

    def mutate(self, node, parent):
        children = list(node.get_children())
        (begin, end), (left, right) = self.span(node), self.around(*self.span(node))
        if node.kind in (Kind.IF_STMT, Kind.WHILE_STMT, Kind.FOR_STMT, Kind.DO_STMT, Kind.CONDITIONAL_OPERATOR):
            self.condition(node, children)
        elif node.kind in LITERALS and not self.text[end : end + 1].isalnum():
            self.literal(begin, end, node.kind)
        elif node.kind in OPERATORS and len(children) >= 2:
            self.operator(begin, end, children, node.type.get_canonical().spelling)
        if node.kind == Kind.CALL_EXPR and node.spelling in CALLS:
            name = re.match(rf"(std::(?:ranges::)?)({node.spelling})\b", self.text[begin:end])
            if name:
                after = name[1] + CALLS[name[2]]
                self.replace(begin, end, after + self.text[begin + name.end() : end])
        whole = parent.kind in WITH_STATEMENTS and right == ";" and (
            parent.kind == Kind.COMPOUND_STMT or left in "):" or self.text[:begin].rstrip().endswith("else"))  # fmt: skip
        if whole and node.kind.is_expression() and node.kind != Kind.CXX_THROW_EXPR and not self.text.startswith("throw", begin):
            self.add(begin, end, "", lambda on, old, new: f"{on} ? void() : void(({new}))")
        elif whole and (node.kind in (Kind.BREAK_STMT, Kind.CONTINUE_STMT) or self.text[begin:end] == "return"):
            self.add(begin, self.text.index(";", end) + 1, "", lambda on, old, new: f"{{ if (!{on}) {old} }}")

    def condition(self, node, children):
        for child in children if node.kind != Kind.CONDITIONAL_OPERATOR else children[:1]:
            around = self.around(*self.span(child))
            if not child.kind.is_expression():
                continue
            if node.kind in (Kind.CONDITIONAL_OPERATOR, Kind.IF_STMT) and around in (("(", ")"), (";", ")"), (around[0], "?")):
                self.become(child, "true")
                self.become(child, "false")
            elif around == ((";", ";") if node.kind == Kind.FOR_STMT else ("(", ")")):
                self.become(child, "false")

    def literal(self, begin, end, kind):
        old = self.text[begin:end]
        if kind == Kind.CXX_BOOL_LITERAL_EXPR:
            self.replace(begin, end, "false" if old == "true" else "true")
        elif old[0].isdigit() and kind == Kind.INTEGER_LITERAL:
            self.replace(begin, end, old + " + 1")
        elif old[0].isdigit():
            self.replace(begin, end, "2 * " + old if re.search("[1-9]", old) else "1.0")

    def operator(self, begin, end, children, type_name):
        (_, middle), (other, last) = self.span(children[0]), self.span(children[-1])
        between = self.text[middle:other]
        name = between.strip()
        if last != end or self.span(children[0])[0] != begin:
            return
        if name in NEUTRAL:
            for child in (children[0], children[-1]):
                parts = list(child.get_children())
                if len(parts) < 2 or self.text[self.span(parts[0])[1] : self.span(parts[-1])[0]].strip() != name:
                    self.become(child, NEUTRAL[name])
        elif name == "+" and "string" in type_name:
            self.left_out += 1
        elif new := (FLIPPED | SWAPPED).get(name):
            self.replace(begin, end, f"{self.text[begin:middle]}{between.replace(name, new)}{self.text[other:end]}")


def render(text, mutants, begin, end):
    """text[begin:end] with the switches of the inner mutants, outermost first."""
    out, at = "", begin
    while mutants:
        outer, inside = mutants[0], 1
        while inside < len(mutants) and mutants[inside].end <= outer.end:
            inside += 1
        old = text[outer.begin : outer.end]
        new = render(text, mutants[1:inside], outer.begin, outer.end)
        out += text[at : outer.begin] + outer.switch(f"lariat_mutant({outer.number})", old, new)
        at, mutants = outer.end, mutants[inside:]
    return out + text[at:end]
