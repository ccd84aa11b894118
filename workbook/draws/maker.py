"""How the models of a draw are made: part by part, each once; a kill or a change costs only what depends on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbook.store.files import atomic_json
from workbook.store.fingerprint import fingerprint_inputs
from workbook.store.identity import root_of
from workbook.store.once import once

EVERY_PART = ("task.name", "device", "threads")  # settings that every part reads


def reward_name(fraction: float) -> str:
    """The reward model trained on a share of the labels: reward_10 for 0.1."""
    return f"reward_{100 * fraction:g}"


@dataclass(frozen=True)
class Maker:
    """What the parts of one draw are made from. data: folder of the draw's texts; work: where states and finished parts
    live, keyed by all that decides them; models: folder of the draw's base models, for what is made after them."""

    params: Any  # workbook.runs.params.Params
    draw: int
    data: Path
    work: Path
    models: Path = Path()
    wait_s: float = 60  # for another process that is making the same part

    def part(self, name: str, values: Mapping[str, Any], files: Sequence[Path], train: Callable, *more) -> Path:
        """The finished folder of a part: what ``train(maker, fresh folder, folder for states, *more)`` wrote there.

        values: what it reads beside EVERY_PART, and what ``more`` means; files: what it reads. ``train`` returns
        (facts, loss curve or None), kept as facts.json and loss.json.
        """
        values = {"part": name, "draw": self.draw, **self.params.pick(*EVERY_PART), **values}
        inputs = fingerprint_inputs(values, files, code=[root_of(train)])

        def make(fresh: Path, states: Path) -> None:
            facts, curve = train(self, fresh, states, *more)
            atomic_json(fresh / "facts.json", facts)
            if curve:
                atomic_json(fresh / "loss.json", curve)

        return once(self.work / name, inputs, make, self.wait_s)

    def files(self, *names: str) -> list[Path]:
        """Files of the draw's texts, by name."""
        return [self.data / f"{name}.jsonl" for name in names]

    def lacks(self, *names: str) -> list[str]:
        """Which of these files the task does not have."""
        return [path.name for path in self.files(*names) if not path.is_file()]
