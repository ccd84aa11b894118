"""Finished runs with made-up numbers, for tests of what reads them."""

from __future__ import annotations

import json
from pathlib import Path

from workbook.store import files, tables

UNTRAINED = ("zero_shot", "free_zero_shot", "zero_shot_50", "numbers_zero_shot")
ALL_PROMPTS = {"evaluation.test_prompts": 0, **{f"runs.{name}.test_prompts": 0 for name in UNTRAINED}}  # of few


def write_run(folder: Path, name: str, score: float, seeds=(1, 2, 3), updates: int = 3) -> None:
    """A run as the pipeline leaves it, with made-up numbers."""
    work = folder / name
    work.mkdir(parents=True)
    facts = {"condition": name, "algorithm": "ppo", "kl_coef": 0.1, "kl_target": 0.0, "updates": updates}
    rows = [
        {
            **facts,
            "seed": s,
            "split": "test",
            "decoding": d,
            "score": score + s / 100,
            "judge": 0.5,
            "kl_deployed": score / 2,
        }
        for s in seeds
        for d in ("plain", "top_p")
    ]
    tables.write_table(work / "per_seed.csv", rows)
    who = [(s, u) for s in seeds for u in range(1, updates + 1)]
    curve = [
        {"condition": name, "seed": s, "update": u, "objective/score": score * u, "objective/kl": u / 10, "length": 5}
        for s, u in who
    ]
    tables.write_table(work / "curves.csv", curve)
    lines = [
        {
            "condition": name,
            "seed": s,
            "example_id": f"e{i}",
            "prompt": f"opening {i}",
            "response": f"{name} says {i} at {s}",
            "score": 0.25,
        }
        for s in seeds
        for i in range(6)
    ]
    files.atomic_write(work / "samples.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
