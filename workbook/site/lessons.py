"""The lessons' pages: the whole lesson with what its cells gave, the questions' answers apart, what to read.

Outputs are those of ``workbook.site.outputs``: shown as today's where their key is that of the code as it is, named as
an older code's where not, and left out, with the command that makes them, where there are none.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from workbook.results.tables import markdown
from workbook.site import outputs
from workbook.store.identity import Code

ASKED = re.compile(r"\*\*Question\.\*\*\s*(.+?)(?:\n\n|\Z)", re.DOTALL)
LEADS_ON = re.compile(r"(?<=[.?!]) [^.?!]*:$")  # a question's last sentence, of a picture that follows it
FOLDER = re.compile(r"^working folder: .*\n?", re.MULTILINE)  # of the machine that made the outputs
NUMBERED = re.compile(r"^(\d+)\. (.+)$", re.MULTILINE)
READ = re.compile(r"\*(?:How to read|Reading|What you see|Look for|Look at)")
AHEAD = re.compile(r"\*[^*]*\b(?:below|next)\b")  # words on how to read what comes behind them
LISTED, ANSWERS, READING = "docs/learn/lessons.md", "docs/learn/answers.md", "docs/learn/reading.md"
TYPED = re.compile(r"^\| `notebooks/` \|.*?\n(?=\n)", re.MULTILINE | re.DOTALL)  # the list that a clone shows
WORDS_A_MINUTE, SECONDS_A_LINE = 120, 10  # of reading; assumed, nobody has been timed
MISSING = "made when you run it; none are kept yet"
OLDER = (
    '!!! warning "Outputs of older code"\n\n    What the cells gave was kept before the code that this lesson runs was '
    "changed; numbers may differ today. `make lessons` makes them anew."
)


class Lesson(NamedTuple):
    """cells: (kind, text) of each cell; kept: its outputs or None; current: whether today's code gave them."""

    name: str
    cells: list[tuple[str, str]]
    kept: outputs.Outputs | None
    current: bool

    @property
    def number(self) -> int:
        return int(self.name[:2])

    @property
    def said(self) -> list[str]:
        """Its text cells."""
        return [text for kind, text in self.cells if kind == "markdown"]

    @property
    def title(self) -> str:
        return re.match(r"# (.+)", self.said[0])[1]

    @property
    def question(self) -> str:
        return LEADS_ON.sub("", " ".join(ASKED.search(self.said[0])[1].split()))

    @property
    def asked(self) -> list[str]:
        """The three questions at its end."""
        return [text for _, text in NUMBERED.findall(self.said[-1].partition("## Three questions")[2])]

    @property
    def minutes(self) -> int:
        """Of reading, to the next five."""
        lines = sum(len(text.splitlines()) for kind, text in self.cells if kind == "code")
        needed = len(" ".join(self.said).split()) / WORDS_A_MINUTE + lines * SECONDS_A_LINE / 60
        return 5 * round(needed / 5)

    @property
    def takes(self) -> str:
        """Reading and computing, in words."""
        computing = f", {self.kept.seconds} s of computing" if self.kept else ""
        return f"{self.minutes} minutes of reading{computing}"

    def given(self, cell: int) -> list[dict[str, str]]:
        """What a cell gave; of one that shows committed tables: what it shows today."""
        text = self.cells[cell][1]
        if outputs.from_tables(text):
            return outputs.computed(text)
        kept = self.kept.cells.get(cell, ()) if self.kept else ()
        told = [{**each, "text": FOLDER.sub("", each["text"])} if "text" in each else each for each in kept]
        return [each for each in told if each.get("text") != ""]


@cache
def read(root: Path) -> dict[str, Lesson]:
    """Name -> lesson, in order. Raises: ValueError for one without a title, a question or its three questions."""
    code, found = Code(root), {}
    for name in outputs.names(root):
        cells = json.loads((root / f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        kept = outputs.read(root, name)
        current = kept is not None and kept.key == outputs.key(root, name, code)
        found[name] = Lesson(name, [(c["cell_type"], "".join(c["source"])) for c in cells], kept, current)
        first = found[name].said[0]
        if not re.match(r"# .+", first) or not ASKED.search(first) or len(found[name].asked) != 3:
            raise ValueError(
                f"notebooks/{name}.ipynb: expected a first cell with a title and **Question.**, a last one with three"
            )
    return found


def pages(root: Path) -> dict[str, str]:
    """Notebook -> its page as Markdown, links as in the notebook."""
    books = sections(root, READING)
    return {f"notebooks/{name}.ipynb": page(lesson, books) for name, lesson in read(root).items()}


def page(lesson: Lesson, books: dict[int, str]) -> str:
    """A lesson's page. Raises: ValueError where there is nothing to read beside it."""
    if lesson.number not in books:
        raise ValueError(f"{READING}: expected a section ## Lesson {lesson.number}")
    first, *rest = lesson.said
    about = [f"*It takes* {lesson.takes}.", f"*Open it:* `make lab`, then `{lesson.name}`."]
    about += [f"*On a wall:* [slides](/{deck(lesson.name)})."]
    if lesson.kept is None:
        about += [f"*Outputs:* {MISSING} (`make lessons`)."]
    launch = f'<a data-launch="notebooks/{lesson.name}.ipynb">Open it in this JupyterLab</a>'
    parts = [
        first,
        f'<p class="launch" hidden>{launch}</p>',
        " ".join(about),
        *([OLDER] if lesson.kept and not lesson.current else []),
    ]
    for number, (kind, text) in enumerate(lesson.cells[1:], 1):
        parts += [text] if kind == "markdown" else [f"```python\n{text}\n```", *shown(lesson, number)]
    return "\n\n".join([*parts, "## To read", books[lesson.number]]) + "\n"


def shown(lesson: Lesson, cell: int) -> list[str]:
    """What a cell gave, as Markdown and HTML; pictures lie beside the page."""
    found = []
    for number, each in enumerate(lesson.given(cell)):
        if "text" in each:
            found.append(f"``` {{ .text .no-copy }}\n{each['text']}\n```")
        elif "html" in each:
            found.append(f'<div class="given">{each["html"]}</div>')
        else:
            file = picture(cell, number, each)
            found.append(f'<p class="given"><a href="{file}"><img src="{file}" alt="{about(lesson, cell)}"></a></p>')
    return found


def picture(cell: int, number: int, given: dict[str, str]) -> str:
    """The file of a cell's picture, beside the page that shows it."""
    return f"cell-{cell:02}-{number}.{'svg' if 'svg' in given else 'png'}"


def about(lesson: Lesson, cell: int) -> str:
    """What a picture shows, in words: the section it stands in, and how its text says that it is read."""
    before = "\n".join(text for kind, text in lesson.cells[:cell] if kind == "markdown")
    headings = re.findall(r"^#+ (.+)$", before, re.MULTILINE)
    how = re.match(r"\*[^*]*\*:?\s*(.+?[.?])(?:\s|$)", reading(lesson, cell), re.DOTALL)
    return outputs.alt(headings[-1] + (f": {how[1]}" if how else ""))


def reading(lesson: Lesson, cell: int) -> str:
    """The words on how to read what a cell gave; "" where there are none. They stand behind it; before it only where no
    cell above them gave anything, or where they say that they lead on."""
    behind = [block for block in readings(lesson, cell + 1) if not AHEAD.match(block)]
    taken = cell > 1 and lesson.cells[cell - 2][0] == "code" and lesson.given(cell - 2)
    before = [block for block in readings(lesson, cell - 1) if not taken or AHEAD.match(block)]
    return next(iter(behind + before), "")


def readings(lesson: Lesson, cell: int) -> list[str]:
    """The blocks of a text cell that say how to read something."""
    return [
        block
        for kind, text in lesson.cells[cell : cell + 1]
        if kind == "markdown"
        for block in re.split(r"\n\n+", text)
        if READ.match(block)
    ]


def files(root: Path) -> dict[str, bytes]:
    """Path on the site -> picture, of all lessons: once beside the page, once beside the slides."""
    found = {}
    for name, lesson in read(root).items():
        for cell, given in (lesson.kept.cells if lesson.kept else {}).items():
            for number, each in enumerate(given):
                if "svg" in each or "png" in each:
                    data = each["svg"].encode() if "svg" in each else outputs.picture(each["png"])
                    for page_of in (f"learn/{name}/index.md", deck(name)):
                        found[f"{Path(page_of).parent.as_posix()}/{picture(cell, number, each)}"] = data
    return found


def place(notebook: str) -> str:
    """The page of a notebook."""
    return f"learn/{Path(notebook).stem}/index.md"


def deck(name: str) -> str:
    """The page of a lesson's slides."""
    return f"teach/slides/{name}/index.md"


def sections(root: Path, page_of: str) -> dict[int, str]:
    """Number of a lesson -> what a page says under `## Lesson N`."""
    parts = re.split(r"^## Lesson (\d+)\n", (root / page_of).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {int(number): text.strip() for number, text in zip(parts[1::2], parts[2::2])}


def answered(root: Path) -> str:
    """The page of answers with each question before its answer. Raises: ValueError where one is missing."""
    text = (root / ANSWERS).read_text(encoding="utf-8")
    known = sections(root, ANSWERS)
    for name, lesson in read(root).items():
        answers = dict(NUMBERED.findall(known.get(lesson.number, "")))
        if [*answers] != ["1", "2", "3"]:
            raise ValueError(f"{ANSWERS}: expected answers 1., 2. and 3. under ## Lesson {lesson.number}")
        both = "\n".join(f"{i}. *{q}*\n\n    {answers[str(i)]}\n" for i, q in enumerate(lesson.asked, 1))
        head, whole = f"## Lesson {lesson.number}\n\n", f"[{lesson.title}](/{place(name)})"
        text = text.replace(head + known[lesson.number], f"{head}{whole}\n\n{both}")
    return text


def listed(root: Path) -> str:
    """The page of lessons, with pages, times and slides in its list. Raises: ValueError where it has no list."""
    text, found = TYPED.subn(lambda _: table(root) + "\n", (root / LISTED).read_text(encoding="utf-8"))
    if found != 1:
        raise ValueError(f"{LISTED}: expected one table that begins with `notebooks/`, found {found}")
    return text


def table(root: Path) -> str:
    """A row per lesson: its page, its question, how long it takes, its slides."""
    rows = [
        {
            "lesson": f"[{lesson.title}](/{place(name)})",
            "question": lesson.question,
            "reading": f"{lesson.minutes} min",
            "computing": f"{lesson.kept.seconds} s" if lesson.kept else "–",
            "slides": f"[slides](/{deck(name)})",
        }
        for name, lesson in read(root).items()
    ]
    return markdown(pd.DataFrame(rows))
