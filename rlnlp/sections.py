"""Which settings each stage reads, in one small file a stage: what it depends on.

    python -m rlnlp.sections params.yaml build/settings          # run.json, tune_ppo.json, ..., claims.json

The same as naming the sections as `params` of every stage, but those would stand with all their values in dvc.lock once a
stage, and DVC reads and writes the whole of it for every stage. A file comes out different only if a value in it changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rlnlp.runs import atomic_json

_SIZE = ("size", "sizes")
_WHERE = (*_SIZE, "mirror", "device", "threads", "bring", "task")
_TUNE = (*_WHERE, "reward_model", "variants", "sampling", "learner", "algorithms", "tune", "evaluation")
_LEARNERS = ("sampling", "learner", "nlpo", "supervised", "algorithms", "worlds")
READ = {  # stage -> sections, or values in one (*: in each entry); besides these a run reads its own entry, and a report its own
    "data": (*_SIZE, "mirror", "task", "bring.prompts", "evaluation.human_reviews"),
    "models": (*_WHERE, "language_model", "reward_model"),
    "variants": (*_WHERE, "language_model", "reward_model", "sampling", "variants"),
    "tune_ppo": _TUNE,
    "tune_nlpo": (*_TUNE, "nlpo"),
    "tune_a2c": _TUNE,
    "tune_reinforce": _TUNE,
    "tune_grpo": _TUNE,
    "worlds": (*_SIZE, "device", "threads", "task.name", "language_model", "worlds.*.texts", "worlds.*.steps"),
    "run": (*_WHERE, "seeds", "reward_model", "variants", *_LEARNERS, "evaluation"),
    "report": ("profile", *_SIZE, "seeds", "bring", "task", *_LEARNERS, "variants", "tune", "evaluation", "claims"),
    "claims": ("profile", *_SIZE, "seeds", "bring", "claims"),
}  # fmt: skip


def picked(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """name -> its value in params.yaml; dots lead into a section, * into each of its entries, of which there may be none.

    Raises: KeyError naming what is not there.
    """

    def at(place: Any, parts: list[str], name: str) -> Any:
        if not parts:
            return place
        first, *rest = parts
        if isinstance(place, Mapping) and first == "*":
            return {key: at(value, rest, name) for key, value in place.items()}
        if not isinstance(place, Mapping) or first not in place:
            raise KeyError(f"params.yaml has no {name}")
        return at(place[first], rest, name)

    return {name: at(values, name.split("."), name) for name in names}


def main(argv: list[str]) -> int:
    """PARAMS has been checked by the first stage, so it is only read here (a full check imports torch)."""
    if len(argv) != 2:
        print("usage: python -m rlnlp.sections params.yaml build/settings", file=sys.stderr)
        return 2
    values, out = YAML(typ="safe", pure=True).load(Path(argv[0]).read_text(encoding="utf-8")), Path(argv[1])
    for stage, names in READ.items():
        atomic_json(out / f"{stage}.json", picked(values, names))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
