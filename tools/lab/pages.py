"""Output of the lab's scripts: tables, marked parts of Markdown pages, figures."""

from pathlib import Path


def table(head, rows):
    """A Markdown table; a cell of None is "-"."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in [head, *rows]]
    lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def replace(path, mark, text):
    """Puts `text` between the lines <!-- mark --> and <!-- /mark --> of a page; appends missing marks."""
    path, begin, end = Path(path), f"<!-- {mark} -->", f"<!-- /{mark} -->"
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    before, found, rest = page.partition(begin)
    if not (found and end in rest):
        before, rest = page + ("\n" if page else ""), end + "\n"
    path.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


STYLE = """<style>
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2328; }
.head { font-size: 16px; font-weight: 650; } .note, .tick { fill: #59636e; } .tick { font-size: 13px; }
.paper { fill: #ffffff; } .grid { stroke: #e4e8ec; } .rule { stroke: #8a939d; stroke-dasharray: 2 4; }
.curve { fill: none; stroke-width: 2.2; stroke-linejoin: round; } .stale { stroke-dasharray: 6 5; }
.c0 { stroke: #8a939d; } .c1 { stroke: #d9480f; } .c2 { stroke: #2563eb; } .c3 { stroke: #0b8f83; }
.c4 { stroke: #8b35d6; stroke-dasharray: 7 6; } .c5 { stroke: #1f2328; } .c6 { stroke: #be185d; }
.c7 { stroke: #a16207; stroke-width: 9; stroke-linecap: round; }
text.c0 { fill: #59636e; } text.c1 { fill: #d9480f; } text.c2 { fill: #2563eb; } text.c3 { fill: #0b8f83; }
text.c0, text.c1, text.c2, text.c3 { stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ed; } .note, .tick, text.c0 { fill: #9aa4af; } .paper { fill: #0f1318; } .grid { stroke: #262d35; }
.c1 { stroke: #ff9a4d; } .c2 { stroke: #7aa9ff; } .c3 { stroke: #34d3c3; } .c4 { stroke: #c893ff; }
.c5 { stroke: #e6e9ed; } .c6 { stroke: #ff7ab8; } .c7 { stroke: #eab308; }
text.c1 { fill: #ff9a4d; } text.c2 { fill: #7aa9ff; } text.c3 { fill: #34d3c3; }
}
</style>
"""


def svg_text(x, y, anchor, style, words):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{words}</text>\n'


def svg(width, height, label, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{label}">\n{STYLE}<rect class="paper" width="{width}" height="{height}"/>\n'
            f"{body}</svg>\n")  # fmt: skip
