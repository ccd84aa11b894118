"""The lessons' pages: what each asks, goes through and leaves to try. Outputs are made by whoever runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd

from workbook.results.tables import markdown

ASKED = re.compile(r"\*\*Question\.\*\*\s*(.+?)(?:\n\n|\Z)", re.DOTALL)


def read(root: Path) -> dict[str, tuple[list[str], int]]:
    """Lesson -> (its text cells, how many cells of code it has), in order."""
    found = {}
    for file in sorted((root / "notebooks").glob("[01][0-9]_*.ipynb")):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        said = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        found[file.stem] = (said, sum(cell["cell_type"] == "code" for cell in cells))
    return found


def pages(root: Path) -> dict[str, str]:
    """Notebook -> its page as Markdown, links as in the notebook.

    Raises: ValueError for one without a title or a question.
    """
    made = {}
    for name, (said, code) in read(root).items():
        title = re.match(r"# (.+)", said[0])
        if not title or not ASKED.search(said[0]):
            raise ValueError(f"notebooks/{name}.ipynb: expected a first cell with a title and **Question.**")
        sections = re.findall(r"^## (.+)", "\n".join(said), re.MULTILINE)
        ending = next((i for i, text in enumerate(said) if text.startswith("## What to try")), len(said))
        parts = [
            said[0],
            f'<p class="launch" hidden><a data-launch="notebooks/{name}.ipynb">Open it in this JupyterLab</a></p>',
            f"Open it: `make lab`, then `{name}`. It has {code} cells of code; its outputs are made when you run it, "
            "not kept.",
            "## What it goes through",
            "\n".join(f"{i}. {section}" for i, section in enumerate(numbered(sections), 1)),
            *said[ending:],
        ]
        made[f"notebooks/{name}.ipynb"] = "\n\n".join(parts) + "\n"
    return made


def place(notebook: str) -> str:
    """The page of a notebook."""
    return f"learn/{Path(notebook).stem}/index.md"


def numbered(sections: list[str]) -> list[str]:
    """The sections of the lesson itself, without numbers that they carry and without those that close it."""
    kept = [re.sub(r"^\d+\.?\s*", "", section) for section in sections]
    return [section for section in kept if section not in ("What to try", "Three questions")]


def table(root: Path) -> str:
    """A row per lesson: its page, its question."""
    rows = []
    for name, (said, _) in read(root).items():
        title = re.match(r"# (.+)", said[0])[1]
        asked = " ".join(ASKED.search(said[0])[1].split())
        rows.append({"lesson": f"[{title}](/learn/{name}/index.md)", "question": asked})
    return markdown(pd.DataFrame(rows))
