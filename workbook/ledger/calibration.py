"""How often a profile's claims would get each kind of word where the answer is known: two tables and a page.

python -m workbook.ledger calibrate profiles/settle/params.yaml   # reports/<profile>/calibration.csv and calibration.md

The worlds are those of `sensitivity`: normal noise with the covariance over seeds of the claim's own numbers in the
profile's table, n seeds, each world judged by the rule's own t and sign-flip tests of these n. Of a registered design
they are judged once more as it judges: at each of its looks, by the level of that look, until the claim leaves; a
claim's own numbers are there those of the draws that gave it its word. yardsticks.csv: see `yardsticks`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from ruamel.yaml import YAML

from workbook.ledger import beside, checks, judge, listed, looks, sensitivity, yardsticks
from workbook.ledger.claim import Claim, ClaimError
from workbook.ledger.contrast import measure
from workbook.ledger.made import Made
from workbook.ledger.page import write_csv
from workbook.ledger.sensitivity import MIDWAY, NOTHING, REVERSED, SEED, STATED
from workbook.results import results as tables
from workbook.results.files import DRAWS
from workbook.results.results import read_per_seed
from workbook.results.tables import join, markdown
from workbook.statistics.paired import ALPHA
from workbook.statistics.power import fewest_seeds
from workbook.statistics.rule import AGAINST, FOR, HOLDS_SMALLER, TOO_SMALL
from workbook.statistics.sequential import levels
from workbook.store.files import atomic_write

SEEDS, WORLDS = (8, 16, 32), 2000
LOOKS = "looks"  # in the place of n: the last word of a claim that is looked at again and again
SHARES = {  # name: the truth of every part, in effects stated; the words that are counted
    "holds_stated": (STATED, FOR),
    "smaller_stated": (STATED, (HOLDS_SMALLER,)),
    "refuted_stated": (STATED, AGAINST),
    "holds_nothing": (NOTHING, FOR),
    "refuted_nothing": (NOTHING, AGAINST),
    "wrong_reversed": (REVERSED, (*FOR, TOO_SMALL)),
}
PART = "holds_barely_false"  # all parts as stated but one, of which there is just too little for it to be true
ERRORS = ("smaller_stated", "refuted_stated", "holds_nothing", PART, "wrong_reversed")  # words that are false there
TITLES = {
    "holds_stated": "holds, as stated",
    "smaller_stated": "smaller, as stated",
    "refuted_stated": "refuted, as stated",
    "holds_nothing": "holds, nothing there",
    PART: "holds, one part just false",
    "refuted_nothing": "refuted, nothing there",
    "wrong_reversed": "wrong, reversed",
}
READ = (
    "*How to read this.* A row is a claim, a cell the share of simulated worlds in which it gets such a word, at "
    "{seeds} seeds. *As stated*: every part of the claim has the effect stated beforehand (an equality: no "
    "difference; a threshold: passed by that much). *Nothing there*: no part has any (an equality: twice its "
    "margin; a threshold: missed by as much). *One part just false*: nothing of one part (an equality: its margin; "
    "a threshold: just reached), all others as stated; the largest share, whichever part it is, which chance makes "
    "rather too large. *Reversed*: every part has the stated effect the other way (an equality: four times its "
    "margin; a threshold: missed by three times as much). *Holds* counts both words that hold, *smaller* only the "
    "second, *refuted* too small and opposite, *wrong* of a reversed claim holds and too small. Good is near 1 in "
    "the first and sixth column: the claim's tests can say yes where the paper is right, and no where nothing is "
    "there (a single test in one direction says no in .975 at most). The other five are errors and should be at "
    "most {alpha:g}.\n\n"
    "The noise is normal, with the covariance over the {own} seeds of the claim's own numbers, all its tests "
    "together; each world is judged by the tests of its own n, which know nothing of that covariance. {looked}It is "
    "itself an estimate from {own} seeds: the shares of a claim are those of noise like that. The yardstick is "
    "taken as exact, which understates errors where it is known to little. A share p of {worlds:,} worlds has the "
    "standard error sqrt(p (1 - p) / {worlds}), at most {most:.3f}; 0.000 says less than {rare:.4f} with 95 % "
    "confidence. Seed {seed}; in `calibration.csv` each share stands with its standard error."
)


def rows_of(
    claims: Mapping[str, Claim],
    results: Mapping[str, Any],
    seeds: Sequence[int] = SEEDS,
    worlds: int = WORLDS,
    at: Sequence[int] = (),
    alpha: float = ALPHA,
) -> list[dict[str, Any]]:
    """A row per claim and number of seeds: id, n, own (seeds of which the noise is), worlds, seed, each of `TITLES`
    (`PART`: the largest, whichever part is gone), and its `_se`; with `at`, the numbers of seeds at which a design
    looks, one more, of `sensitivity.sequence` by this alpha. Claims of which a test has no sample (`made.Made`) have
    none.

    results: claim -> those of its conditions. se: sqrt(p (1 - p) / worlds).
    Raises: ClaimError for results of fewer seeds than a verdict takes, as no covariance of so few says anything.
    """
    few = {name: len(found.seeds) for name, found in results.items() if len(found.seeds) < fewest_seeds()}
    if few:
        (name, many), others = next(iter(few.items())), len(few) - 1
        more = f" and of {others} others" * bool(others)
        raise ClaimError(
            f"expected at least {fewest_seeds()} seeds to take a claim's noise from, found {many} of {name}{more}"
        )
    rows = []
    for name in results:
        claim = claims[name]
        made = [measure(test, claim, results[name], "test") for test in claim.deciding]
        if any(one.sample is None for one in made):
            continue
        for n in [*seeds, *([LOOKS] if at else [])]:
            said = functools.cache(functools.partial(_words, claim, made, at if n == LOOKS else n, worlds, alpha))
            shares = {key: sensitivity.share(said(truth), wanted) for key, (truth, wanted) in SHARES.items()}
            shares[PART] = max(sensitivity.share(said(truth), FOR) for truth in _barely_false(claim))
            row = {"id": name, "n": n, "own": len(results[name].seeds), "worlds": worlds, "seed": SEED}
            for key in TITLES:
                row[key] = shares[key]
                row[f"{key}_se"] = math.sqrt(shares[key] * (1 - shares[key]) / worlds)
            rows.append(row)
    return rows


def _words(claim: Claim, made: Sequence[Made], at: int | Sequence[int], worlds: int, alpha: float, truth) -> list[str]:
    """Of each world: by one look at so many seeds, or at a design's looks, whose levels keep alpha together."""
    if isinstance(at, int):
        return sensitivity.words(claim, made, at, truth, worlds)
    return [word for word, _ in sensitivity.sequence(claim, made, at, truth, worlds, alpha)]


def _barely_false(claim: Claim) -> list[tuple[float, ...]]:
    """Truths of a claim's parts of which as many are as stated as can be while the claim is false by the least: of a
    difference nothing is there, of an equality its margin, of a threshold what just reaches it."""
    least = [MIDWAY if test.threshold or test.direction == "equal" else NOTHING for test in claim.deciding]
    if claim.decided_by == "any":
        return [tuple(least)]
    return [tuple(each if part == k else STATED for k, each in enumerate(least)) for part in range(len(least))]


def page(rows: Sequence[Mapping[str, Any]], profile: str, left: Sequence[str]) -> str:
    """Markdown: the errors in a sentence, a row per claim with its shares at each n, how to read it. left: of the list,
    the claims without a simulation."""
    if not rows:
        return f"# Calibration, profile {profile}\n\nNo claim of this profile can be simulated.\n"
    ids, seeds = dict.fromkeys(row["id"] for row in rows), list(dict.fromkeys(row["n"] for row in rows))
    at = {(row["id"], row["n"]): row for row in rows}
    shown = [
        {"claim": name} | {said: " / ".join(f"{at[name, n][key]:.3f}" for n in seeds) for key, said in TITLES.items()}
        for name in ids
    ]
    worlds = rows[0]["worlds"]
    bound = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / worlds)
    over = [f"{r['id']} at {_at(r['n'])} ({TITLES[k]}: {r[k]:.3f})" for r in rows for k in ERRORS if r[k] > bound]
    largest = max(r[key] for r in rows for key in ERRORS)
    said = f"Errors above {ALPHA:g} by more than three standard errors: {join(over) if over else 'none'}; "
    said += f"the largest share of a false word is {largest:.3f}."
    gone = f" Not simulated, as a test compares spreads, counts runs or was not made: {join(left)}." if left else ""
    many = join([str(n) for n in seeds if n != LOOKS])
    own = join([str(n) for n in sorted({row["own"] for row in rows})], " or ")
    numbers = {"seeds": many, "alpha": ALPHA, "own": own, "worlds": worlds, "seed": rows[0]["seed"]}
    looked = "The last number of a cell is of its last word at the design's looks, by their levels. "
    looked = looked if LOOKS in seeds else ""
    read = READ.format(**numbers, looked=looked, most=math.sqrt(0.25 / worlds), rare=3 / worlds)
    where = f"At {many} seeds{', and as the design judges, at its looks' if LOOKS in seeds else ''}:"
    parts = [f"# Calibration, profile {profile}", said + gone, where, markdown(pd.DataFrame(shown)), read]
    return "\n\n".join(parts) + "\n"


def _registered(path: Path) -> looks.Design:
    return looks.Design.model_validate(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))


def _at(n: int | str) -> str:
    return "its looks" if n == LOOKS else str(n)


def write(params, worlds: int = WORLDS) -> Path:
    """Calibrate the profile's claims on its table of seeds, or of a registered design's draws; the page's path.

    Raises: ReportError where no table is, ClaimError where a listed claim cannot be decided or seeds are too few.
    """
    known = checks.load(params.folder / params.root / "claims.yaml")
    listed.check(known, params.claims, params.all_runs, params.profile)
    at: Sequence[int] = ()
    alpha, level = ALPHA, dict.fromkeys(params.claims, ALPHA)
    if (params.reports_folder / DRAWS).is_file():
        design = _registered(params.folder / "registered.yaml")
        results, at, alpha = judged(design, params), design.looks, design.alpha
        of = dict(zip(at, levels(at, alpha)))
        level = {name: of.get(len(found.seeds), of[at[-1]]) for name, found in results.items()}
    else:
        results = dict.fromkeys(params.claims, tables.load(params, judge.runs_of(known, params)))
    rows = rows_of(known, results, worlds=worlds, at=at, alpha=alpha)
    simulated = {row["id"] for row in rows}
    left = [name for name in params.claims if name not in simulated]
    names = ["id", "n", "own", "worlds", "seed", *(f"{key}{more}" for key in TITLES for more in ("", "_se"))]
    write_csv(params.reports_folder / "calibration.csv", names, [[row[name] for name in names] for row in rows])
    estimated = yardsticks.rows_of(known, results, level)
    lines = [[float(f"{v:.4g}") if isinstance(v, float) else v for v in row.values()] for row in estimated]
    write_csv(params.reports_folder / "yardsticks.csv", list(estimated[0]) if estimated else [], lines)
    path = params.reports_folder / "calibration.md"
    atomic_write(path, page(rows, params.profile, left) + f"\n{yardsticks.text(estimated)}\n" * bool(estimated))
    return path


def judged(design: looks.Design, params) -> dict[str, Any]:
    """Claim -> the results of the draws that gave it its word, as the ledger's own shares are of; of one that no look
    has judged, of all draws that are there."""
    table, words = (
        read_per_seed(params.reports_folder / DRAWS),
        beside.words_of(params.profile, params.reports_folder.parent),
    )
    there = [draw for draw in (*design.draws, *design.replacements) if draw in {*table.seed}]  # none of a lost draw
    many = {name: words.get(name, {}).get("look", len(there)) for name in params.claims}
    return {name: looks.results_of(table, there[:n], params) for name, n in many.items()}
