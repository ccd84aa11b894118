"""claims.yaml, read and checked: every problem named at once, with claim, key, what was expected and the nearest name.

claims = load("claims.yaml")             # {"P01": Claim, ...}
check(claims, profiles("."))             # every condition that a test names is a run of some profile
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from rlnlp.settings import nearest
from workbook.ledger.claim import DECODINGS, METRICS, PARTIAL, SHAPE, YARDSTICK, Claim, ClaimError, Kind, Source, Test
from workbook.ledger.published import YARDSTICKS, published
from workbook.results.measure import OWN_UNIT
from workbook.results.measures import MEASURES

CLAIM_ID = re.compile(r"[A-Z]\d{2,3}")
NO_REPORT = "none"  # the report of a claim without runs


def load(path: str | Path = "claims.yaml") -> dict[str, Claim]:
    """Every claim of the file, in its order.

    Raises: ClaimError listing every problem. Whether there are such conditions is `check`'s question.
    """
    path = Path(path)
    raw = _read(path)
    claims, problems = {}, []
    for name, entry in raw.items():
        if not isinstance(name, str) or not CLAIM_ID.fullmatch(name):
            problems.append(f"{name}: expected a letter and two or three digits (P01, C18) as the id of a claim")
        elif not isinstance(entry, dict):
            problems.append(f"{name}: expected the entry of a claim, found {entry!r}")
        else:
            try:
                claims[name] = Claim.model_validate({"id": name, **entry})
            except pydantic.ValidationError as error:
                problems += [f"{name}: {_explained(e)}" for e in error.errors()]
    for claim in claims.values():
        problems += [f"{claim.id}: {said}" for said in _problems(claim)]
    _refuse(f"{path}", problems)
    return claims


def profiles(root: str | Path = ".") -> dict[str, dict[str, Any]]:
    """Profile -> its settings, of params.yaml and profiles/*/params.yaml; read, not checked."""
    return {values["profile"]: values for values in files(root).values()}


def files(root: str | Path = ".") -> dict[Path, dict[str, Any]]:
    """The settings of each profile, by the file that has them."""
    paths = [Path(root) / "params.yaml", *sorted(Path(root).glob("profiles/*/params.yaml"))]
    return {path: YAML(typ="safe").load(path.read_text(encoding="utf-8")) for path in paths if path.is_file()}


def runs_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Condition -> its entry in a profile's settings."""
    return {**values["runs"], **(values.get("continued") or {})}


def check(claims: Mapping[str, Claim], settings: Iterable[Mapping[str, Any]]) -> None:
    """Raises ClaimError for a condition that no profile runs, a report that none has, and a yardstick of another world.

    settings: params.yaml of each profile that claims may be about (`profiles`, and one's own).
    """
    worlds: dict[str, str] = {}
    reports: dict[str, None] = {NO_REPORT: None}
    for values in settings:
        worlds |= {name: world_of(entry) for name, entry in runs_of(values).items()}
        reports |= dict.fromkeys(values["reports"])
    problems = []
    for claim in claims.values():
        if claim.report not in reports:
            problems.append(f"{claim.id}: report: no report is called {claim.report}{nearest(claim.report, reports)}")
        for test in claim.tests:
            problems += [f"{claim.id}: tests.{test.name}.{said}" for said in _unknown(test, worlds)]
    _refuse("claims.yaml", problems)


def shared_yardstick(test: Test, worlds: Mapping[str, str]) -> str:
    """What is wrong where the conditions of a test and of its yardstick are not of one world; "" if nothing.

    worlds: condition -> its world, of those that are known ("": reviews).
    """
    if test.unit != "yardsticks":
        return ""
    spanned = sorted({worlds[name] or "reviews" for name in (*test.conditions, *test.yardstick) if name in worlds})
    many = len(spanned) > 1
    return f"yardstick: {' and '.join(spanned)} have a yardstick each; a rank compares them" if many else ""


def world_of(entry: Mapping[str, Any] | None) -> str:
    """The world of a run, by its entry in params.yaml."""
    return (entry or {}).get("world") or ""


# parts ---------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> dict[Any, Any]:
    try:
        raw = YAML(typ="safe").load(path.read_text(encoding="utf-8"))  # libyaml: five times as fast
    except (OSError, UnicodeDecodeError) as error:
        raise ClaimError(f"{path}: cannot be read as text: {error}") from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise ClaimError(f"{path}:{where} not valid YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(raw, dict):
        raise ClaimError(f"{path}: expected entries `P01: ...`, found {type(raw).__name__}")
    return raw


def _refuse(where: str, problems: list[str]) -> None:
    if problems:
        raise ClaimError("\n  ".join([f"{where}: {len(problems)} problem{'s' * (len(problems) > 1)}", *problems]))


def _unknown(test: Test, worlds: Mapping[str, str]) -> list[str]:
    """Conditions that nobody runs; conditions that its yardstick is not of."""
    named = dict.fromkeys([*test.conditions, *(test.yardstick if test.unit == "yardsticks" else ())])
    found = [f"{name}: no profile runs such a condition{nearest(name, worlds)}" for name in named if name not in worlds]
    found += [said] if (said := shared_yardstick(test, worlds)) else []
    return found


def _problems(claim: Claim) -> list[str]:
    found = []
    given = [name for name in ("tests", "awaiting", "needs") if getattr(claim, name)]
    if len(given) != 1:
        found.append(f"expected exactly one of tests, awaiting, needs; found {' and '.join(given) or 'none'}")
    if (claim.decided_by is not None) != bool(claim.tests):
        found.append("decided_by: expected all or any beside tests, and nothing beside awaiting or needs")
    if claim.tests and not claim.deciding:
        found.append("tests: expected at least one that decides; all have the role beside")
    if len({t.name for t in claim.tests}) < len(claim.tests):
        found.append("tests: expected different names")
    for row, cells in claim.published.items():
        for column, cell in cells.items():
            if isinstance(cell, list) and not (len(cell) == 2 and cell[1] >= 0):
                found.append(f"published.{row}.{column}: expected a mean or [mean, sd], found {cell}")
    for test in claim.tests:
        found += [f"tests.{test.name}.{said}" for said in _test_problems(test, claim)]
    return found


def _test_problems(test: Test, claim: Claim) -> list[str]:
    found = []
    for field in ("terms", "points", "first", "second"):
        if bool(getattr(test, field)) != (field in SHAPE[test.kind]):
            found.append(f"{field}: a {test.kind} has {' and '.join(SHAPE[test.kind])}, nothing else")
    for condition, decoding in (test.split(term) for arm in test.arms for terms in arm for term in terms):
        if decoding not in DECODINGS:
            found.append(
                f"{condition}@{decoding}: expected a decoding of {', '.join(DECODINGS)}{nearest(decoding, DECODINGS)}"
            )
    return found + _size_problems(test) + _kind_problems(test) + _published_problems(test, claim)


def _size_problems(test: Test) -> list[str]:
    """Of the effect or margin that is stated, and of how many conditions a profile must run."""
    found, equal = [], test.direction == "equal"
    if (test.margin is not None) != equal or (test.effect is not None) == equal:
        found.append("effect: expected `margin` with direction equal, else `effect`")
    if isinstance(test.effect, float | int) and test.effect <= 0:
        found.append(f"effect: expected a number above 0 (the direction has its own name), found {test.effect:g}")
    if test.kind not in PARTIAL and test.at_least:
        found.append(f"at_least: a {test.kind} takes all its conditions")
    if test.kind in PARTIAL:
        fewest, least, most = test.fewest, min(map(len, test.arms)), max(map(len, test.arms))
        if not fewest <= (test.at_least or least) <= most:
            found.append(
                f"at_least: a {test.kind} takes {fewest} conditions or more of each list, and no more than it names"
            )
    return found


def _kind_problems(test: Test) -> list[str]:
    """Of what only some kinds of test have."""
    found = []
    if test.direction == "equal" and test.kind in ("peak", "spread", "fraction"):
        found.append(f"direction: a {test.kind} is greater or less")
    if test.kind == "peak" and test.direction == "less":
        found.append("direction: a peak is greater; for a dip compare another metric")
    if test.threshold and (test.kind != "contrast" or test.direction == "equal"):
        found.append("threshold: of a contrast that is greater or less")
    if test.along == "kept_mass" and (test.kind != "matched" or test.decoding == "plain"):
        found.append(
            "along: kept_mass is for a matched test, in a decoding that masks (own): a plain one keeps everything"
        )
    if test.kind == "spread" and (len(test.first), len(test.second)) != (1, 1):
        found.append("first: a spread is over the repetitions of one condition, against that of one other")
    if test.kind == "rank" and len(test.first) != len(test.second):
        found.append(
            f"second: a rank compares pairs; first names {len(test.first)} conditions, second {len(test.second)}"
        )
    if test.second_metric and test.kind != "rank":
        found.append(f"second_metric: a {test.kind} has one metric")
    if test.kind == "rank" and test.first == test.second and len(set(test.metrics)) == 1:
        found.append("second_metric: an order is compared with itself; give another metric, or other conditions")
    return found


def _published_problems(test: Test, claim: Claim) -> list[str]:
    found, column = [], MEASURES[test.metric].published_as or test.metric
    for row in test.published:
        if row not in claim.published:
            found.append(
                f"published.{row}: no row of the claim's published is called so{nearest(row, claim.published)}"
            )
        elif column not in claim.published[row]:
            found.append(f"published.{row}: has no {column}{nearest(column, claim.published[row])}")
        elif test.kind == "spread" and not isinstance(claim.published[row][column], list):
            found.append(f"published.{row}.{column}: a spread needs [mean, sd]")
    if test.published and test.kind in ("matched", "frontier", "fraction", "rank"):
        found.append(f"published: nothing was published as a {test.kind}")
    if test.published and test.unit == "yardsticks" and test.yardstick != YARDSTICK:
        found.append(f"published: no yardstick from {test.yardstick[1]} to {test.yardstick[0]} was published")
    if test.published and test.unit in ("yardsticks", OWN_UNIT) and test.metric not in YARDSTICKS:
        found.append(f"published: {test.metric} has no published yardstick (those of {', '.join(YARDSTICKS)} have)")
    if test.effect == "published" and not found:
        there = published(test, claim)
        if there is None:
            found.append("effect: which one was published? Give its rows in `published`, or a number")
        elif (there.effect > 0) != (test.direction == "greater"):
            found.append(f"effect: the published effect ({there.effect:+.3f}) goes the other way; give a number")
    return found


def _explained(error: Mapping[str, Any]) -> str:
    """One pydantic error in our words."""
    place = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        model = Test if "tests" in error["loc"] else Source if "source" in error["loc"] else Claim
        return f"{place}: unknown name{nearest(str(error['loc'][-1]), model.model_fields)}"
    if error["type"] == "missing":
        return f"{place}: expected a value, found nothing"
    hint = ""
    if error["type"] == "literal_error":
        field = error["loc"][-1]
        known = {
            "metric": METRICS,
            "second_metric": METRICS,
            "kind": get_args(Kind),
            "decoding": DECODINGS,
        }
        known = known.get(field, ())
        hint = nearest(str(error["input"]), known)
    return f"{place}: {error['msg'].replace('Input should be', 'expected')}, found {error['input']!r}{hint}"
