"""Anybody's table, judged by the same rule as ours: a row per condition and seed, as in reports/mini/per_seed.csv.

results = read("mine.csv", params)          # params: the profile whose names of conditions the table uses
rows = judged(claims, results)              # the ledger's rows: of the claims that the table can decide

Columns: `condition` (a run of the profile: zero_shot, ppo_kl_0, ...), `seed` (a whole number: an independent
repetition; below five of them no claim gets a word), and metrics by their names in docs/reference/metrics.md. `split`
(test) and `decoding` (plain) may be left out. A metric is there for every seed of a condition, or for none (but of a
seed with `diverged` 1, which has nothing to measure); no two seeds have the same numbers.
Whoever made the numbers, with whatever library, models and data: what they are of is theirs to say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlnlp.settings import nearest
from workbook.ledger.checks import files, runs_of, shared_yardstick, world_of
from workbook.ledger.claim import DECODINGS, METRICS, Claim, ClaimError
from workbook.ledger.judge import judge, lacks, ledger
from workbook.ledger.listed import told, unrepeated
from workbook.results.results import Results
from workbook.results.tables import join

KEYS = ("condition", "seed", "split", "decoding")
ABOUT = ("algorithm", "kl_coef", "kl_target", "learning_rate", "updates", "decoding_record", "prompts")  # not compared


def read(path: str | Path, params) -> Results:
    """The table as results of its own conditions and seeds, under the file's name as profile.

    Raises: ClaimError naming file, column, condition or row, what was expected and the nearest valid name.
    """
    path = Path(path)
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise ClaimError(f"{path}: no such file; expected a CSV file") from None
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ClaimError(f"{path}: expected a CSV file, found {error}") from None
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes the first cell for the row's name then
        raise ClaimError(f"{path}: rows have more cells than the header has columns; expected as many in each")
    if len(table.columns) == 1 and {";", "\t"} & {*str(table.columns[0])}:
        raise ClaimError(f"{path}: one column, {table.columns[0]!r}; expected commas between columns")
    table = table.assign(**{k: v for k, v in (("split", "test"), ("decoding", "plain")) if k not in table})
    known = params.all_runs
    problems = [f"no column {name!r}" for name in ("condition", "seed") if name not in table]
    problems += _unknown(table.columns, (*KEYS, *METRICS, *ABOUT), "column")
    if not problems and not len(table):
        problems = ["no rows; expected one for each condition and seed"]
    if not problems:
        problems = _empty(table)
    if not problems:
        problems += _unknown_conditions(table.condition.unique(), params)
        problems += _unknown(table.decoding.unique(), DECODINGS, "decoding")
        problems += _unknown(table.split.unique(), ("test", "half"), "split")
        problems += _numbers(table)
    if not problems:
        problems += _seeds(table) or [*_blank(table), *_copied(table)]
    if problems:
        raise ClaimError("\n  ".join([f"{path}:", *problems]))
    runs = {name: known[name] for name in table.condition.unique()}
    seeds = tuple(sorted(int(s) for s in table.seed.unique()))
    update = {"profile": path.stem, "seeds": seeds, "runs": runs, "continued": {}, "claims": ()}
    whole = table.assign(seed=table.seed.astype(int))
    return Results(params.model_copy(update=update), whole, pd.DataFrame(), {}, {}, {}, {}, {}, {})


def judged(claims: Mapping[str, Claim], results: Results) -> list[dict[str, Any]]:
    """`judge.ledger` of every claim whose deciding tests the table has conditions and metrics for; the others say what
    they lack; all are marked as `submitted`. Raises: ClaimError where the table decides no claim at all."""
    runs, listed, said, lacking = results.params.all_runs, [], [], {}
    worlds = {name: world_of(entry) for name, entry in runs.items()}
    for name, claim in claims.items():
        if not claim.tests or lacks(claim, runs) or any(shared_yardstick(test, worlds) for test in claim.tests):
            continue
        if few := unrepeated(claim, runs):
            lacking[name] = few
            continue
        try:
            judge(claim, results)
        except ClaimError as error:  # a metric that the table does not have
            said.append(str(error))
            lacking[name] = [f"what its tests read ({said[-1].removeprefix(f'{name}: ')})"]
        else:
            listed.append(name)
    if not listed:
        near = f" Nearest to it: {said[0]}" if said else ""
        raise ClaimError(f"{results.params.profile}: decides no claim: see the tests of claims.yaml.{near}")
    return [{**_theirs(row), "submitted": True} for row in told(ledger(claims, results, listed), lacking)]


def _theirs(value: Any) -> Any:
    """A row without advice about stages, which are ours."""
    if isinstance(value, dict):
        return {name: _theirs(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_theirs(part) for part in value]
    return re.sub(r"; run the stage \S+ again", "", value) if isinstance(value, str) else value


def _unknown(found: Iterable[Any], known: Iterable[str], what: str) -> list[str]:
    return [f"no {what} is called {name!r}{nearest(str(name), known)}" for name in found if name not in set(known)]


def _unknown_conditions(found: Sequence[str], params) -> list[str]:
    """Each with the settings that have it: of a profile that has them all, if one does, else of the first."""
    if not (said := _unknown(found, params.all_runs, "condition")):
        return []
    known = {path: runs_of(values) for path, values in files((params.folder / params.root).resolve()).items()}
    known = dict(sorted(known.items(), key=lambda entry: -len({*found} & {*entry[1]})))  # the order of equals stays
    there = [next((p for p, runs in known.items() if c in runs), None) for c in found if c not in params.all_runs]
    return [s + (f" (--params {os.path.relpath(path)} has it)" if path else "") for s, path in zip(said, there)]


def _empty(table: pd.DataFrame) -> list[str]:
    """Cells that say which row it is, and are empty."""
    rows = {name: np.flatnonzero(table[name].isna()) for name in KEYS}
    return [f"{name}: empty in row {found[0] + 2}" for name, found in rows.items() if len(found)]


def _numbers(table: pd.DataFrame) -> list[str]:
    said, seeds = [], pd.to_numeric(table.seed, errors="coerce")
    if len(wrong := np.flatnonzero(seeds.isna() | (seeds % 1 != 0))):
        said = [f"seed: expected whole numbers, found {table.seed.iloc[wrong[0]]} in row {wrong[0] + 2}"]
    for name in (c for c in table if c in METRICS):
        values = pd.to_numeric(table[name], errors="coerce")
        wrong = table[name].notna() & ~np.isfinite(values)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            said.append(f"{name}: expected finite numbers, found {table[name].iloc[row]} in row {row + 2}")
    return said


def _seeds(table: pd.DataFrame) -> list[str]:
    said = []
    if (twice := table.duplicated(list(KEYS))).any():
        first = table[twice].iloc[0]
        said.append(f"two rows of {first.condition}, seed {first.seed} ({first.split}, {first.decoding})")
    seeds = set(table.seed)  # of the whole table: a row of one split or decoding does not stand for one of another
    for (condition, split, decoding), rows in table.groupby(["condition", "split", "decoding"], sort=False):
        if gone := sorted(seeds - set(rows.seed)):
            which = join([str(s) for s in gone])
            said.append(f"{condition} ({split}, {decoding}): no row of seed {which}; arms are compared seed by seed")
    return said


def _blank(table: pd.DataFrame) -> list[str]:
    """Numbers that some seeds of a condition have and others have not."""
    said = []
    ran = pd.to_numeric(table.get("diverged", pd.Series(0, table.index)), errors="coerce").fillna(0) == 0
    for _, rows in table[ran].groupby(["condition", "split", "decoding"], sort=False):
        for name in (c for c in rows if c in METRICS):
            if 0 < (empty := rows[name].isna()).sum() < len(rows):
                first = rows[empty].iloc[0]
                where = f"row {rows.index[empty][0] + 2} ({first.condition}, seed {first.seed})"
                said.append(f"{name}: empty in {where}; expected a number for every seed of a condition, or for none")
    return said


def _copied(table: pd.DataFrame) -> list[str]:
    """Two seeds with the same numbers: in every condition, or in one that has several (one may be met by chance)."""
    numbers = table.set_index(list(KEYS)).filter(items=METRICS).apply(pd.to_numeric)
    cells = {f"{c} ({s}, {d})": rows for (c, s, d), rows in numbers.groupby(["condition", "split", "decoding"])}
    several = {name: rows for name, rows in cells.items() if rows.notna().all().sum() > 1}
    for where, rows in {"every condition": numbers.unstack(["condition", "split", "decoding"]), **several}.items():
        rows = rows.dropna(axis=1)
        if rows.shape[1] and (same := rows.duplicated(keep=False)).any():
            first = rows[same].iloc[0]
            seeds = rows.index[(rows == first).all(axis=1)].get_level_values("seed")
            which = join([f"{seed}" for seed in seeds])
            return [
                f"{where}: the numbers of seeds {which} are the same; expected runs and an evaluation of its own for "
                "each seed, as a copy would count as another one"
            ]
    return []
