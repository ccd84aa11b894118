"""A deck per lesson, made from its notebook: a page of the site with a template of its own, for a wall and for paper.

What is shown of a lesson: its question; of each section the heading, the first paragraph and a formula, list or table
that follows it; each cell that writes something out; what cells gave, with how to read it; the three questions. The
rest is what the teacher says.
"""

from __future__ import annotations

import ast
import re

from workbook.site import outputs
from workbook.site.lessons import OLDER, Lesson, place, reading, shown

HEAD = "---\ntemplate: slides.html\nsearch:\n  exclude: true\n---\n"
DISPLAYED = re.compile(r"    |\||- |\d+\. ")  # a formula, a table, a list
LINES = 16  # a slide holds no longer output of text


def deck(lesson: Lesson) -> str:
    """The slides as Markdown: a section of HTML each."""
    first = lesson.said[0]
    opening = [f"# {lesson.title}", f"**{lesson.question}**", f"[the whole lesson](/{place(lesson.name)})"]
    slides = ["\n\n".join([*opening, *([OLDER] if lesson.kept and not lesson.current else [])])]
    if arrow := re.search(r"(?:^    .+\n?)+", first, re.MULTILINE):
        slides.append(f"## Where we are\n\n{arrow[0].rstrip()}")
    heading = lesson.title
    for number, (kind, text) in enumerate(lesson.cells[1:], 1):
        if kind == "code":
            slides += coded(lesson, number, heading)
            continue
        for part in re.split(r"^(?=##+ )", text, flags=re.MULTILINE):
            if named := re.match(r"##+ (.+)", part):
                heading = named[1]
                slides.append(opened(part))
    body = "\n\n".join(f'<section markdown="1">\n\n{slide}\n\n</section>' for slide in slides)
    return f"{HEAD}\n{body}\n"


def opened(part: str) -> str:
    """A section's slide: its heading, its first paragraph and what is displayed right after; of the last two all."""
    blocks = re.split(r"\n\n+", part.strip())
    ending = part.startswith(("## What to try", "## Three questions"))
    kept = blocks if ending else [*blocks[:2], *(block for block in blocks[2:3] if DISPLAYED.match(block))]
    return "\n\n".join(["## " + kept[0].lstrip("# "), *kept[1:]])


def coded(lesson: Lesson, cell: int, heading: str) -> list[str]:
    """The slides of a cell: what it writes out, if it does; what it gave, with the words on how to read that."""
    text, slides, above = lesson.cells[cell][1], [], f'<p class="of">{outputs.alt(heading)}</p>'
    if any(isinstance(node, (ast.FunctionDef, ast.Lambda, ast.Assert)) for node in ast.walk(ast.parse(text))):
        slides.append(f"{above}\n\n```python\n{text}\n```")
    if given := [each for each in shown(lesson, cell) if each.startswith("<") or each.count("\n") <= LINES]:
        words = reading(lesson, cell)
        slides.append("\n\n".join([above, *given, *([words] if words else [])]))
    return slides
