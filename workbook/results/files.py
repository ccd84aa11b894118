"""The committed tables of a profile, in reports/<profile>: as they were written, or packed (`results.pack`)."""

from __future__ import annotations

import bz2
import json
import lzma
from pathlib import Path
from typing import Any

PER_SEED, CURVES, CONDITIONS, FACTS = "per_seed.csv", "curves.csv", "conditions.json", "facts.json"
SAMPLES, EPISODES = "samples.jsonl", "episodes.json"
TEXTS_OF_A_SEED = 5  # of each seed, that pages show
DRAWS = "draws.csv.xz"  # of a registered design, in the place of the others
FURTHER = "further.csv.xz"  # in reports: tests of a registered design's claims that only other profiles can make
REGISTERED = "registered.json"  # in reports: the words of registered designs
LEARNING_CURVES, METRICS = "learning_curves.csv", "metrics.json"  # for DVC's plot and its comparison of versions

OPENS = {".xz": lzma.open, ".bz2": bz2.open}  # what is behind the name of a packed table: what reads it


def packed(name: str) -> str:
    """The name of a table that is kept packed, a fifth of its size or a tenth: texts are smallest in bz2, numbers and
    what repeats itself in xz."""
    return name + (".bz2" if name == SAMPLES else ".xz")


def standing(reports: Path, name: str) -> Path:
    """A table in a profile's folder of reports, packed where only that is there."""
    plain, small = reports / name, reports / packed(name)
    return small if small.is_file() and not plain.is_file() else plain


def per_seed(reports: Path) -> Path:
    """The table of seeds in a profile's folder of reports."""
    return standing(reports, PER_SEED)


def read_text(file: Path) -> str:
    """The text of a table, packed or not."""
    with OPENS.get(file.suffix, open)(file, "rt", encoding="utf-8") as stream:
        return stream.read()


def lines_of(file: Path) -> list[str]:
    """The lines of a file of JSON lines, packed or not: a text in it may hold U+2028 and its like, at which
    `str.splitlines` would cut too."""
    return [line for line in read_text(file).split("\n") if line]


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, packed or not."""
    return [json.loads(line) for line in lines_of(file)]


def table_of(reports: Path) -> Path | None:
    """The table of what a profile's runs were measured to be, of draws or of seeds; None where there is none."""
    return next((file for file in (reports / DRAWS, per_seed(reports)) if file.is_file()), None)
