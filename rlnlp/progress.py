"""What a run of many stages tells: how far it is, how long it will take, and the useful end of a log."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from rlnlp.runs import atomic_json

SECONDS = {  # first guess, by profile and kind of stage; what was measured replaces it
    "mini": {"check": 4, "nb": 1, "data": 11, "models": 95, "tune": 110, "runs": 100},
    "smoke": {"check": 4, "nb": 1, "data": 7, "models": 11, "tune": 10, "runs": 10},
    "imdb": {"check": 4, "nb": 1, "data": 30, "models": 2200, "tune": 340, "runs": 230},
}
OTHER_SECONDS = 20
PROGRESS = re.compile(r"\d+%\|")


def kind(stage: str) -> str:
    return stage.partition("@")[0]


def clock(seconds: float) -> str:
    """2:05 or 1:02:05."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


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
        try:
            self.known = json.loads(self.path.read_text())
        except (OSError, ValueError):
            self.known = {}

    def guess(self, stage: str) -> float:
        same = [s for name, s in self.known.items() if kind(name) == kind(stage)]
        return self.known.get(stage) or (sum(same) / len(same) if same else self._first(kind(stage)))

    def _first(self, kind: str) -> float:
        return SECONDS.get(self.path.parent.name, SECONDS["mini"]).get(kind, OTHER_SECONDS)

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
