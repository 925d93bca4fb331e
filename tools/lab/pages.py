"""Tables and parts of Markdown pages that scripts of the laboratory write."""

from pathlib import Path


def table(head, rows):
    """A Markdown table; a cell of None is "-"."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in [head, *rows]]
    lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def replace(path, mark, text):
    """Puts `text` between the lines <!-- mark --> and <!-- /mark --> of a page, at its end where they are missing."""
    path, begin, end = Path(path), f"<!-- {mark} -->", f"<!-- /{mark} -->"
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    before, found, rest = page.partition(begin)
    if not (found and end in rest):
        before, rest = page + ("\n" if page else ""), end + "\n"
    path.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
