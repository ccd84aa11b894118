"""What the runs of a report are: the settings in which they differ, what they break, what was searched for."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd

from workbook.figures.names import digits, names
from workbook.results import design
from workbook.results.results import Results
from workbook.results.tables import number

FINITE = "finite"  # the invariant that a run breaks which may diverge


def settings(results: Results) -> tuple[pd.DataFrame, str]:
    """(each run's id and the settings that differ, a row per run; those that all of them share, in a line)."""
    rows = {c: {**f["run"], **f["learner"]} for c, f in results.configs.items()}
    keys = [k for k in dict.fromkeys(k for row in rows.values() for k in row) if k != "decodings"]
    values = {k: {c: json.dumps(design.plain(row.get(k))) for c, row in rows.items()} for k in keys}
    same = [k for k in keys if len(set(values[k].values())) == 1]
    called = names(results)
    columns = {k: [_said(rows[c].get(k)) for c in rows] for k in keys if k not in same}
    table = pd.DataFrame({"run": [f"`{c}`" for c in rows], **columns}, index=[called[c] for c in rows])
    shared = ", ".join(f"{k} {_said(next(iter(rows.values()))[k]) or '(none)'}" for k in sorted(same))
    return table, f"The same in all of them: {shared}." if rows else ""


def _said(value: Any) -> str:
    """A setting in words, no number with a power of ten."""
    return digits(value) if isinstance(value, float) and math.isfinite(value) else design.said(value)


def broken(results: Results) -> str:
    """Which invariant each run breaks on purpose; a Markdown list, empty if none does. That a run may diverge, as
    most may, is said once."""
    found = {c: [*(f["learner"].get("breaks") or ())] for c, f in results.configs.items()}
    called, may = names(results), [c for c, breaks in found.items() if FINITE in breaks]
    never = [c for c in found if c not in may]
    which = f"; this holds for {'; '.join(called[c] for c in may)}" if never else ""
    if never and len(never) < len(may):
        which = f", but for {'; '.join(called[c] for c in never)}"
    lines = [f"- A run that diverges counts as a result (`breaks: [{FINITE}]`){which}."] * bool(may)
    rest = {c: [b for b in breaks if b != FINITE] for c, breaks in found.items()}
    return "\n".join([*lines, *(f"- {called[c]} breaks on purpose: {', '.join(b)}" for c, b in rest.items() if b)])


def search(results: Results) -> pd.DataFrame:
    """What was searched for on validation prompts, of the learners whose runs are shown: every candidate, and the
    chosen."""
    shown = {f["run"]["algorithm"] for f in results.configs.values()}
    rows = [
        {
            "algorithm": algorithm,
            **{k: number(v) if isinstance(v, float) else v for k, v in c.items()},
            "chosen": "chosen" if all(c[k] == found[k] for k in ("learning_rate", "kl_coef")) else "",
        }
        for algorithm, found in results.tune.items()
        if algorithm in shown
        for c in found["candidates"]
    ]
    return pd.DataFrame(rows, index=[""] * len(rows))
