"""The same conditions on the same draws, run from nothing more than once: what a second machine said, and where the
spread of a contrast comes from.

`python -m workbook.synthesis.machines` extracts three complete runs of the profile mini from the history of its table
(COMMITS) into earlier.csv, once; everything else reads that file. Settings of the runs are equal (checked); their first
digits differ from the first update on, as where processors or libraries round differently.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbook.ledger.claim import YARDSTICK, Claim, ClaimError, Test, conditions_of
from workbook.ledger.contrast import yardstick
from workbook.ledger.judge import Verdict, judge, lacks
from workbook.results.files import SAMPLES
from workbook.results.measures import yardstick_of
from workbook.results.results import Results
from workbook.results.tables import join
from workbook.statistics.components import components, without_each_draw
from workbook.synthesis.history import asked, git

COMMITS = {  # of reports/mini/per_seed.csv: complete runs, each from nothing, and when they were committed
    "52f83cb": "2026-11-22",
    "9ed9b3d": "2026-11-22",
    "837f3ed": "2026-11-23",
}
PLACE, TEXTS = "reports/mini/per_seed.csv", f"reports/mini/{SAMPLES}"
EARLIER, PROMPTS = "earlier.csv", "earlier_prompts.csv"
KEYS = ["condition", "seed", "decoding"]
ABOUT = [*KEYS, "prompts"]
SINGLE = ("score", "plain")  # what samples.jsonl has of each response
SWEEPS = ("matched", "frontier")
SETTINGS = ["kl_coef", "kl_target", "learning_rate", "updates"]


def extract(root: Path, claims: Mapping[str, Claim], out: Path, commits: Mapping[str, str] = COMMITS) -> None:
    """Write earlier.csv (the cells of the commits that deciding tests read, four digits) and earlier_prompts.csv
    (scores of the first seed's responses, prompt by prompt, of samples.jsonl at the last commit: those before have
    none).
    Raises: ValueError where settings differ."""
    tables = {commit: _table(root, commit) for commit in commits}
    for commit, day in commits.items():
        if (found := git(root, "log", "-1", "--format=%ad", "--date=short", commit).strip()) != day:
            raise ValueError(f"{commit}: expected a commit of {day}, found one of {found}")
    shared = set.intersection(*(set(t.condition) for t in tables.values()))
    wanted: dict[tuple[str, str], set[str]] = {}
    for claim in claims.values():
        for test in claim.deciding:
            if set(test.conditions) <= shared:
                for condition, decoding, metric in cells(test):
                    wanted.setdefault((condition, decoding), set()).add(metric)
    first, kept = tables[next(iter(commits))].set_index(KEYS), []
    metrics = sorted(set().union(*wanted.values()))
    for commit, table in tables.items():
        same = table.set_index(KEYS).reindex(first.index)
        if off := [c for c in SETTINGS if ((same[c] - first[c]).abs() > 0).any()]:  # of what both have
            raise ValueError(f"{commit}: other settings than {next(iter(commits))}: {join(off)}")
        for (condition, decoding), names in sorted(wanted.items()):
            rows = table[(table.condition == condition) & (table.decoding == decoding)].sort_values("seed")
            for _, row in rows.iterrows():
                cell = {m: float(f"{row[m]:.4g}") if m in names and pd.notna(row.get(m)) else None for m in metrics}
                kept.append({"commit": commit, **{k: row[k] for k in ABOUT}, **cell})
    out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(kept).to_csv(out / EARLIER, index=False, lineterminator="\n")
    prompts = _prompts(git(root, "show", f"{[*commits][-1]}:{TEXTS}"))  # the working tree's are of another edition
    prompts[prompts.index.isin({condition for condition, _ in wanted})].to_csv(
        out / PROMPTS, lineterminator="\n", float_format="%.4g"
    )


def cells(test: Test) -> Iterator[tuple[str, str, str]]:
    """(condition, decoding, metric) that a test reads."""
    for arm in test.arms:
        for term in (term for terms in arm for term in terms):
            yield from ((*test.split(term), m) for m in {*test.metrics, *([test.along] * (test.kind in SWEEPS))})
    if test.unit == "yardsticks":
        yield from ((c, "plain", yardstick_of(test.metric)) for c in test.yardstick)


def runs(out: Path, params) -> dict[str, Results]:
    """commit -> the run as results that claims can be judged on."""
    table = pd.read_csv(out / EARLIER, dtype={"commit": str})
    found = {}
    for commit, rows in table.groupby("commit", sort=False):
        conditions = {c: {"decodings": sorted(own.decoding.unique())} for c, own in rows.groupby("condition")}
        update = {"profile": commit, "runs": conditions, "continued": {}, "claims": ()}
        update["seeds"] = tuple(sorted(int(s) for s in rows.seed.unique()))
        whole = rows.drop(columns="commit").assign(split="test")
        found[commit] = Results(params.model_copy(update=update), whole, pd.DataFrame(), {}, {}, {}, {}, {}, {})
    return found


def prompts_of(results: Results) -> int:
    """On how many prompts a run was evaluated."""
    return int(results.per_seed.prompts.max())


@dataclass(frozen=True)
class Said:
    """A deciding test on every run. effects, words: in the order of the runs; claim_words: of the whole claim."""

    claim: str
    test: str
    unit: str
    effects: tuple[float | None, ...]
    words: tuple[str, ...]
    claim_words: tuple[str, ...]


def said(claims: Mapping[str, Claim], again: Mapping[str, Results]) -> list[Said]:
    """Every deciding test that all runs can make."""
    found = []
    for claim in claims.values():
        verdicts = [v for results in again.values() if (v := _judged(claim, results)) is not None]
        if len(verdicts) == len(again) and verdicts:
            words = tuple(v.word for v in verdicts)
            for parts in zip(*(v.deciding for v in verdicts)):
                found.append(
                    Said(claim.id, parts[0].name, parts[0].unit, tuple(c.effect for c in parts),
                         tuple(c.word for c in parts), words)
                )  # fmt: skip
    return found


def table(rows: Sequence[Said], again: Mapping[str, Results]) -> list[dict[str, Any]]:
    """A row per test: effect and word of each run, the largest difference between two, whether a word differs."""
    found = []
    for row in rows:
        known = [e for e in row.effects if e is not None]
        cells = {"claim": row.claim, "test": row.test, "unit": row.unit}
        for commit, effect, word in zip(again, row.effects, row.words):
            cells |= {f"effect {commit}": effect, f"word {commit}": word}
        cells["largest difference"] = max(known) - min(known) if known else None
        cells["words differ"] = len(set(row.words)) > 1
        cells["claim words differ"] = len(set(row.claim_words)) > 1
        found.append(cells)
    return found


def parts(claims: Mapping[str, Claim], again: Mapping[str, Results], out: Path) -> list[dict[str, Any]]:
    """Variance components of the deciding contrasts, in yardsticks², a row per metric and decoding, over its contrasts.

    draw, run: `components` of the runs; evaluation: of the score, from the paired differences of one seed's responses
    prompt by prompt, over as many prompts as an evaluation has (None for what is not of single responses); least and
    most: share of the draw, leaving out one draw after the other.
    """
    stacks: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    evaluation: dict[tuple[str, str], list[float]] = {}
    prompts, units = pd.read_csv(out / PROMPTS, index_col="condition"), _units(again)
    for test in (t for claim in claims.values() for t in claim.deciding):
        key, name = (test.metric, test.decoding), json.dumps(test.terms, sort_keys=True)
        unit = units.get(yardstick_of(test.metric)) if test.unit == "yardsticks" else None
        plain = test.kind == "contrast" and test.yardstick == YARDSTICK and not any("@" in term for term in test.terms)
        if not (plain and unit) or name in stacks.get(key, {}):
            continue
        arms = [_difference(test, results) for results in again.values()]
        if any(arm is None for arm in arms):
            continue
        stacks.setdefault(key, {})[name] = np.array(arms) / unit
        if key == SINGLE and set(test.terms) <= set(prompts.index):
            d = sum(w * prompts.loc[c].to_numpy() for c, w in test.terms.items())
            evaluation.setdefault(key, []).append(float(d.var(ddof=1)) / unit**2)
    tested = prompts_of(next(iter(again.values())))
    return [
        _row(key, np.array([*found.values()]), evaluation.get(key), tested) for key, found in sorted(stacks.items())
    ]


def _row(key: tuple[str, str], d: np.ndarray, evaluation: list[float] | None, tested: int) -> dict[str, Any]:
    """d [contrasts, runs, draws]"""
    found, left = components(d), [c.share for c in without_each_draw(d)]
    e = None if evaluation is None else float(np.mean(evaluation)) / tested
    return {
        "metric": key[0],
        "decoding": key[1],
        "contrasts": len(d),
        "runs": d.shape[1],
        "draws": d.shape[2],
        "total": found.total,
        "draw": found.draw,
        "run within a draw": found.run,
        "share of the draw": found.share,
        "least": min(left, default=None),
        "most": max(left, default=None),
        "evaluation": e,
        "share of evaluation": None if e is None else e / found.total,
    }


def _units(again: Mapping[str, Results]) -> dict[str, float]:
    """Metric -> size of its yardstick, mean of the runs; of metrics whose yardstick can be told from 0 in each."""
    found = {}
    metrics = next(iter(again.values())).per_seed.columns.difference([*ABOUT, "split"])
    for metric in metrics:
        spans = [yardstick(results, metric) for results in again.values()]
        if all(s is not None and s.excludes(0) for s in spans):
            found[metric] = float(np.mean([abs(s.estimate) for s in spans]))
    return found


def _difference(test: Test, results: Results) -> np.ndarray | None:
    """[n draws]; None where a term was not measured."""
    found = [(weight, *test.split(term)) for term, weight in test.terms.items()]
    values = [(weight, results.values(c, test.metric, decoding)) for weight, c, decoding in found]
    return None if any(v is None for _, v in values) else sum(weight * v for weight, v in values)


def _judged(claim: Claim, results: Results) -> Verdict | None:
    """None where the run cannot decide the claim."""
    if not claim.tests or lacks(claim, results.params.all_runs):
        return None
    if not conditions_of(claim, beside=False) <= set(results.conditions):
        return None
    try:
        return judge(claim, results)
    except ClaimError:
        return None


def _table(root: Path, commit: str) -> pd.DataFrame:
    text = git(root, "show", f"{commit}:{PLACE}")
    table = pd.read_csv(io.StringIO(text), low_memory=False)
    return table[table.split == "test"].reset_index(drop=True)


def _prompts(text: str) -> pd.DataFrame:
    """condition x prompt: scores of the first seed's responses, of conditions with the same prompts as most. text: of a
    samples.jsonl."""
    rows = pd.DataFrame([json.loads(line) for line in text.split("\n") if line])
    rows = rows[rows.seed == rows.seed.iloc[0]]
    wide = rows.assign(prompt=rows.groupby("condition").cumcount()).pivot(
        index="condition", columns="prompt", values="score"
    )
    same = rows.groupby("condition").example_id.agg(tuple)
    return wide[same == same.mode()[0]].dropna()


def main(argv: Sequence[str] | None = None) -> int:
    from workbook.ledger.checks import load

    root = asked("workbook.synthesis.machines", __doc__, argv)
    extract(root, load(root / "claims.yaml"), root / "reports/synthesis")
    print(f"{root / 'reports/synthesis' / EARLIER}: {', '.join(COMMITS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
