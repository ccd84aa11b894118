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
_TUNE = (*_WHERE, "reward_model", "variants", "sampling", "learner", "tune", "evaluation")
READ = {  # stage -> sections, or values in one; besides these a run reads its own entry, and a report its own
    "data": (*_SIZE, "mirror", "task", "bring.prompts", "evaluation.human_reviews"),
    "models": (*_WHERE, "language_model", "reward_model"),
    "variants": (*_WHERE, "language_model", "reward_model", "sampling", "variants"),
    "tune_ppo": _TUNE,
    "tune_nlpo": (*_TUNE, "nlpo"),
    "run": (*_WHERE, "seeds", "reward_model", "variants", "sampling", "learner", "nlpo", "supervised", "evaluation"),
    "report": (
        "profile", *_SIZE, "seeds", "bring", "task", "sampling", "learner", "nlpo", "supervised", "variants", "tune",
        "evaluation", "claims",
    ),
    "claims": ("profile", *_SIZE, "seeds", "bring", "claims"),
}  # fmt: skip


def picked(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """name -> its value in params.yaml; dots lead into a section. Raises: KeyError naming what is not there."""
    found = {}
    for name in names:
        place: Any = values
        for part in name.split("."):
            if not isinstance(place, Mapping) or part not in place:
                raise KeyError(f"params.yaml has no {name}")
            place = place[part]
        found[name] = place
    return found


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
