"""What a run of many stages tells: what is to do, how far it is, how long it will take, and the useful end of a log."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbook.stages.pipeline import RUNS, key, kind
from workbook.store.files import atomic_json, read_json

# first guess, by kind of stage and by profile (another profile: as mini, whose sizes full and follow_up have); what was
# measured replaces it
ANYWHERE = {"check": 4, "nb": 1, "digests": 3, "tidy": 3, "claims": 15}
SECONDS = {
    "mini": {"data": 11, "models": 95, "worlds": 15, "variants": 50, "tune": 110, "runs": 100, "report": 15},
    "smoke": {"data": 7, "models": 11, "worlds": 8, "variants": 8, "tune": 10, "runs": 10, "report": 12, "claims": 12},
    "imdb": {"data": 30, "models": 2200, "worlds": 5, "variants": 800, "tune": 340, "runs": 230, "report": 20},
}
OTHER_SECONDS = 20
PROGRESS = re.compile(r"\d+%\|")
# what workbook.stages.nb says of a failure
NOTEBOOK = re.compile(r"^\S+: cell \d+ failed; see (\S+\.ipynb)$", re.MULTILINE)
KINDS = {  # kind of stage -> one of them, several of them; the others prepare and are not worth a word
    "data": ("data", "data"),
    "models": ("models", "models"),
    "worlds": ("worlds", "worlds"),
    "variants": ("variants", "variants"),
    "tune": ("search", "searches"),
    "runs": ("run", "runs"),
    "report": ("report", "reports"),
    "claims": ("ledger", "ledgers"),
}


def clock(seconds: float) -> str:
    """2:05 or 1:02:05."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def in_words(seconds: float) -> str:
    """about 40 seconds, about 52 minutes, about 3.5 hours."""
    if seconds < 100:
        return f"about {max(1, round(seconds / 10)) * 10} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds < 100 * 60 else f"about {seconds / 3600:.1f} hours"


def to_do(stages: Iterable[str], updates: Mapping[str, int] | None = None, seeds: int = 0) -> str:
    """What is to do, in words: "6 data, 2 searches, 48 runs (225 trainings: 45 conditions x 5 seeds), 8 reports, 1
    ledger".

    stages: those that have to run; updates: condition -> those of one seed, none where nothing is trained. Without
    seeds no trainings are counted. Runs that continue others are counted as runs.
    """
    stages = list(stages)
    count = Counter("runs" if kind(s) in RUNS else kind(s) for s in stages)
    said = {k: f"{count[k]} {names[count[k] > 1]}" for k, names in KINDS.items() if count[k]}
    if seeds and "runs" in said:
        trained = sum((updates or {}).get(key(s), 0) > 0 for s in stages if kind(s) in RUNS)
        parts = [(trained * seeds, "training"), (trained, "condition"), (seeds, "seed")]
        said["runs"] += " ({}: {} x {})".format(*(f"{n} {what}{'s' * (n != 1)}" for n, what in parts))
    return ", ".join(said.values())


def last_words(tail: list[str]) -> str:
    """The line of a log's end that says most: the one before what DVC adds."""
    own = [line.strip() for line in tail if not line.startswith(("ERROR: ", "Running stage", ">"))]
    return own[-1] if own else "no message"


def executed_notebook(log: Path) -> str:
    """The notebook that a failed stage left, with the error in it, as its log names it; empty if it left none."""
    named = NOTEBOOK.findall(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else []
    return named[-1] if named else ""


def log_tail(path: Path, lines: int = 15) -> list[str]:
    """The last useful lines of a log: no progress bars, no blank lines."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("\r", "\n") if path.exists() else ""
    return [line.rstrip() for line in text.splitlines() if line.strip() and not PROGRESS.search(line)][-lines:]


def progress_of(path: Path) -> str:
    """The last progress bar in a log, shortened; empty if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    bars = [part for part in re.split(r"[\r\n]", text) if PROGRESS.search(part)]
    return re.sub(r"\|[^|]*\|", "", bars[-1]).strip()[:90] if bars else ""


@dataclass
class Durations:
    """How long stages take: measured before, else guessed by kind, corrected by what this run measures.

    path: file of what was measured, in a folder named like the profile.
    """

    path: Path
    known: dict[str, float] = field(default_factory=dict)
    expected: float = 0.0
    measured: float = 0.0

    def __post_init__(self) -> None:
        self.known = read_json(self.path) or {}

    def guess(self, stage: str) -> float:
        same = [s for name, s in self.known.items() if kind(name) == kind(stage)]
        return self.known.get(stage) or (sum(same) / len(same) if same else self._first(kind(stage)))

    def _first(self, kind: str) -> float:
        known = {**ANYWHERE, **SECONDS.get(self.path.parent.name, SECONDS["mini"])}
        return known.get("runs" if kind in RUNS else kind, OTHER_SECONDS)

    def record(self, stage: str, seconds: float) -> None:
        self.expected, self.measured = self.expected + self.guess(stage), self.measured + seconds
        self.known[stage] = round(seconds, 1)
        atomic_json(self.path, self.known)

    def left(self, waiting: dict[str, set[str]], running: dict[str, float], jobs: int) -> float:
        """Seconds until all is done. waiting: stage -> what it needs; running: stage -> seconds so far."""
        scale = min(5.0, max(0.2, (self.measured + 60) / (self.expected + 60)))
        ends = {s: max(0.1 * scale * self.guess(s), scale * self.guess(s) - t) for s, t in running.items()}
        free = sorted([*ends.values(), *[0.0] * max(0, jobs - len(ends))])
        todo = dict(waiting)
        while todo:
            ready = [s for s in todo if not todo[s] & todo.keys()] or list(todo)
            first = max(ready, key=self.guess)
            begin = max([free.pop(0), *[ends.get(n, 0.0) for n in todo.pop(first)]])
            ends[first] = begin + scale * self.guess(first)
            free = sorted([*free, ends[first]])
        return max(ends.values(), default=0.0)
