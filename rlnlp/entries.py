"""The entries of claims.yaml, checked: what is claimed, what was published, which conditions and numbers decide it.

    claims = load("claims.yaml")             # {"P01": Claim, ...}; every problem of the file in one ClaimError
    conditions_of(claims["P01"])             # the runs that its word needs
    published(claims["P01"].tests[0], claims["P01"])      # what the papers found for this very contrast, in its unit
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pydantic
from pydantic import Field
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from scipy import stats as scipy_stats

from rlnlp.curves import MIN_MASKS, MIN_SWEEP, polynomial_weights
from rlnlp.settings import Settings
from rlnlp.stats import ALPHA

CLAIM_ID = re.compile(r"[A-Z]\d{2,3}")
REPORTS = (
    "kl", "gamma", "dropout", "mask", "budget", "warm_start", "sampling", "vocabulary", "samplers", "dqn", "family", "none",
)  # fmt: skip
DECODINGS = ("plain", "top_p", "own", "greedy", "beam", "top_k", "temperature")
METRICS = (
    "score", "score_response", "training_score", "judge", "judge_2", "generation_log_perplexity", "human_log_perplexity",
    "kl", "kl_deployed", "kl_deployed_per_response", "peak_kl", "approx_kl", "distinct_1", "distinct_2", "msttr",
    "entropy_1", "entropy_2", "repetition", "shared_5gram", "length", "terminated", "words", "wobble", "drop",
    "gradient_norm", "first_ratio_error", "clip_fraction", "diverged", "kept_mass", "kept_tokens", "rollout_score",
    "tokens_per_gradient_step",
)  # fmt: skip
LOGGED = ("wobble", "gradient_norm", "kept_tokens", "tokens_per_gradient_step")  # compared on their logarithm; unit: log ratio
OWN_UNIT = ("first_ratio_error", "clip_fraction", "diverged", "kept_mass", "repetition")  # shares and ratios
MEASURED_BY = {  # whose yardstick they have
    "drop": "score", "training_score": "score", "score_response": "score", "judge": "score", "judge_2": "score",
    "rollout_score": "score", "peak_kl": "kl", "approx_kl": "kl",
}  # fmt: skip
_SWEEP = r"(_kl_(0|small|large))?"
_RULE = r"mask_(top_k|top_p|min_p|typical|epsilon|eta|mirostat)"  # a mask in training; 1e4 is 1e-4
CONDITIONS = tuple(  # how a condition may be called
    re.compile(pattern + r"\Z")
    for pattern in (
        r"zero_shot(_\d+)?", r"(ppo|nlpo)_kl_(0|small|default|large)", r"(ppo|nlpo)_target_(tiny|low|mid|high)",
        rf"(ppo|nlpo)_gamma_\d{{3}}{_SWEEP}", rf"bandit{_SWEEP}", r"(base_)?dropout_(update|independent|same)_\d{3}",
        r"base_dropout_000", rf"nlpo_p_\d{{3}}{_SWEEP}", r"nlpo_sync_\d+", r"nlpo_(initial|random)", r"nlpo_min_\d+",
        rf"ppo_top_p{_SWEEP}", r"mismatch_top_p", r"(nlpo_)?labels_\d+", r"supervised(_\d+|_long)?", r"ppo_long",
        r"(filtered|best_of_n)(_\d+)?", r"sup_(ppo|nlpo)", r"ppo_(top_k|temperature)", r"vocabulary_\d+",
        r"(a2c|reinforce|rloo|grpo|trpo|sac)", rf"{_RULE}(_delayed|_\d+(e\d+)?)?", r"ppo_equal_(tokens|steps)",
        r"dqn_(mlp|mlp_long|logits|linear|frozen|best|best_kl|double|polyak|n_step|truncated|then_trained)", r"dqn_mlp_kl_\d+",
        r"numbers_(zero_shot|ppo|nlpo|a2c|trpo|grpo|reinforce|rloo|dqn|sac|ppo_end|prefix_ppo|prefix_end_ppo)",
        rf"numbers_{_RULE}_\d+(e\d+)?", r"dates_(zero_shot|ppo)",
    )
)  # fmt: skip
YARDSTICKS = {  # world ("": reviews): a yardstick is how far a metric moves from the second condition to the first
    "": ("ppo_kl_0", "zero_shot"), "numbers": ("numbers_ppo", "numbers_zero_shot"), "dates": ("dates_ppo", "dates_zero_shot"),
}  # fmt: skip
COLUMN = {"human_log_perplexity": "perplexity"}  # published under another name, and without the logarithm
PUBLISHED_YARDSTICK = {  # arXiv:2210.01241v2, Table 5: PPO inf - Zero-Shot
    "score": 0.847 - 0.489,
    "human_log_perplexity": math.log(40.650 / 32.171),
    "distinct_1": 0.042 - 0.035,
    "distinct_2": 0.294 - 0.200,
    "msttr": 0.682 - 0.566,
    "entropy_1": 8.656 - 7.715,
    "entropy_2": 13.716 - 11.763,
}
Kind = Literal["contrast", "trend", "peak", "matched", "frontier", "spread", "fraction", "rank"]
SHAPE = {  # kind: the fields that say what is compared
    "contrast": ("terms",), "trend": ("points",), "peak": ("points",), "matched": ("first", "second"),
    "frontier": ("first", "second"), "spread": ("terms", "against"), "fraction": ("first", "second"), "rank": ("first", "second"),
}  # fmt: skip
PARTIAL = ("trend", "peak", "matched", "frontier", "fraction", "rank")  # kinds of which a profile may run a part
FEWEST = {"trend": 2, "peak": 3, "matched": MIN_SWEEP, "frontier": MIN_SWEEP, "fraction": 1, "rank": 4}
Terms = dict[str, float]


class ClaimError(ValueError):
    """An entry that cannot be used, or a claim whose runs are missing; the message names file, claim, key, expected, found."""


class Source(Settings):
    paper: str = Field(min_length=1, description="arXiv id with version, or the report's name")
    section: str = Field(min_length=1, description="section, appendix or footnote")
    table: str = Field("", description="number of the tables")
    figure: str = Field("", description="number of the figures")

    def __str__(self) -> str:
        parts = [f"{word} {value}" for word, value in (("table", self.table), ("figure", self.figure)) if value]
        section = f"section {self.section}" if self.section[0].isdigit() or "." in self.section else self.section
        return ", ".join([self.paper, section, *parts])


class Test(Settings):
    """One comparison over seeds; claims.yaml says what each kind is."""

    __test__ = False  # no test of pytest's

    name: str = Field(min_length=1, description="what is compared, in a few words; unique within the claim")
    role: Literal["decides", "beside"] = Field("decides", description="beside: shown, but not part of the word")
    kind: Kind = Field(description="how one number per seed, or one p, is made")
    metric: Literal[METRICS] = Field(description="a column of per_seed.csv")
    decoding: Literal[DECODINGS] = Field("plain", description="of conditions that do not name their own")
    direction: Literal["greater", "less", "equal"] = Field(description="what is claimed of the difference")
    effect: float | Literal["half"] | None = Field(None, description="smallest effect worth the claim, yardsticks, > 0")
    margin: float | None = Field(None, gt=0, description="of `equal`: yardsticks")
    terms: Terms = Field({}, description="condition or condition@decoding: weight")
    against: Terms = Field({}, description="of spread: the other arm")
    points: dict[float, str | Terms] = Field({}, description="x: condition, or terms")
    first: tuple[str, ...] = Field((), description="conditions of the first arm")
    second: tuple[str, ...] = Field((), description="conditions of the second arm")
    along: Literal["kl_deployed", "kept_mass"] = Field("kl_deployed", description="of matched: what is equal in both arms")
    second_metric: Literal[METRICS] | None = Field(None, description="of rank: what orders `second`; None = `metric`")
    at_least: int = Field(0, ge=0, description="conditions (of each list) that a profile must run; 0 = all")
    published: dict[str, float] = Field({}, description="row of the claim's `published`: weight, or x of trend and peak")

    @property
    def unit(self) -> str:
        """What effect and margin count: yardsticks, or what needs none."""
        if self.kind == "spread":
            return "log ratio of spreads"
        if self.kind == "fraction":
            return "share of runs"
        if self.kind == "rank":
            return "tau"
        return "log ratio" if self.metric in LOGGED else "own unit" if self.metric in OWN_UNIT else "yardsticks"

    @property
    def arms(self) -> list[list[Terms]]:
        """The lists of terms of which `at_least` must be there (kinds that need all: one list)."""
        if self.kind in ("trend", "peak"):
            return [[{p: 1.0} if isinstance(p, str) else p for p in self.points.values()]]
        if self.kind in ("contrast", "spread"):
            return [[{**self.terms, **self.against}]]
        if self.kind == "rank":
            return [[{one: 1.0, other: 1.0} for one, other in zip(self.first, self.second)]]
        return [[{c: 1.0} for c in self.first], [{c: 1.0} for c in self.second]]

    @property
    def metrics(self) -> tuple[str, str]:
        """Of a rank: what orders its first conditions, and what its second; elsewhere the metric twice."""
        return self.metric, self.second_metric or self.metric

    @property
    def fewest(self) -> int:
        """Conditions (of each list) below which no such test is made."""
        return MIN_MASKS if self.along == "kept_mass" else FEWEST.get(self.kind, 0)

    @property
    def worlds(self) -> set[str]:
        """Those that its conditions are of; "" is that of the reviews."""
        return {_world(condition) for condition in _conditions(self)}

    @property
    def yardstick(self) -> tuple[str, str]:
        """The two conditions between which one yardstick lies: those of its world (`_test_problems` refuses two worlds)."""
        return YARDSTICKS[max(self.worlds, default="")]

    def split(self, term: str) -> tuple[str, str]:
        """"condition@decoding" -> (condition, decoding)."""
        condition, _, decoding = term.partition("@")
        return condition, decoding or self.decoding


class Claim(Settings):
    """One entry of claims.yaml, with its id."""

    id: str = Field(description="letter and number")
    claim: str = Field(min_length=10, description="one plain sentence")
    source: Source
    report: Literal[REPORTS] = Field(description="the report that shows its runs")
    published: dict[str, dict[str, float | list[float]]] = Field({}, description="row: {column: mean or [mean, sd]}")
    traps: str = Field(min_length=1, description="what makes the published evidence ambiguous")
    tests: tuple[Test, ...] = ()
    awaiting: tuple[str, ...] = Field((), description="learners, samplers or tasks that are not built yet")
    needs: tuple[str, ...] = Field((), description="what it would take")
    decided_by: Literal["all", "any"] | None = None

    @property
    def deciding(self) -> tuple[Test, ...]:
        return tuple(t for t in self.tests if t.role == "decides")


@dataclass(frozen=True)
class Found:
    """What the papers found, in the unit of a test; low, high: 95 % Welch interval, None without spreads."""

    effect: float
    low: float | None
    high: float | None


def load(path: str | Path = "claims.yaml", also: Collection[str] = ()) -> dict[str, Claim]:
    """Every claim of the file, in its order.

    also: condition names that are allowed besides `CONDITIONS` (those of a params.yaml, say).
    Raises: ClaimError listing every problem, each with claim, key, what was expected and the nearest valid name.
    """
    path = Path(path)
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
    known = {c for claim in claims.values() for t in claim.tests for c in _conditions(t) if _canonical(c)} | set(also)
    for claim in claims.values():
        problems += [f"{claim.id}: {said}" for said in _problems(claim, known)]
    if problems:
        raise ClaimError("\n  ".join([f"{path}: {len(problems)} problem{'s' * (len(problems) > 1)}", *problems]))
    return claims


def conditions_of(claim: Claim, beside: bool = True) -> set[str]:
    """Every condition its tests name (beside: also those that do not decide), and the two that make the yardstick."""
    tests = claim.tests if beside else claim.deciding
    scales = {c for t in tests if t.unit == "yardsticks" for c in t.yardstick}
    return {c for t in tests for c in _conditions(t)} | scales


def yardstick_of(metric: str) -> str:
    """The metric whose yardstick measures this one."""
    return MEASURED_BY.get(metric, metric)


def stated(test: Test, claim: Claim) -> float:
    """The effect or margin that the test states beforehand, > 0, in its unit; `half` is half the published effect."""
    if test.direction == "equal":
        return float(test.margin)
    return abs(published(test, claim).effect) / 2 if test.effect == "half" else float(test.effect)


def weights(kind: str, levels: list[float]) -> np.ndarray:
    """Weights of a straight line's change from the lowest to the highest level (trend), or of how far a parabola's middle
    lies above its ends (peak). levels [k], all different -> [k]."""
    reach = max(levels) - min(levels)
    return polynomial_weights(levels, 1) * reach if kind == "trend" else polynomial_weights(levels, 2) * -(reach**2) / 4


def published(test: Test, claim: Claim) -> Found | None:
    """The published effect for this contrast, in the test's unit; None where none was published.

    Perplexity and what is in `LOGGED` are compared on their log (sd: first order). Interval: Welch-Satterthwaite over the
    rows' means, spreads and numbers of seeds; the published yardstick counts as exact.
    """
    if not test.published:
        return None
    column = COLUMN.get(test.metric, test.metric)
    rows = [claim.published[row] for row in test.published]
    cells = [row[column] if isinstance(row[column], list) else [row[column]] for row in rows]
    if test.kind == "spread":
        return Found(math.log(cells[0][1] / cells[1][1]), None, None)
    numbers = list(test.published.values())
    w = weights(test.kind, numbers) if test.kind in ("trend", "peak") else np.array(numbers)
    if test.metric in COLUMN or test.metric in LOGGED:
        cells = [[math.log(c[0]), *(sd / c[0] for sd in c[1:])] for c in cells]
    scale = 1.0 if test.unit == "log ratio" else PUBLISHED_YARDSTICK[test.metric]
    effect = float(w @ [c[0] for c in cells]) / scale
    if not all(len(c) == 2 and row.get("n", 0) >= 2 for c, row in zip(cells, rows)):
        return Found(effect, None, None)
    n = np.array([row["n"] for row in rows])
    parts = w**2 * np.array([c[1] for c in cells]) ** 2 / n
    freedom = parts.sum() ** 2 / (parts**2 / (n - 1)).sum()
    half = float(scipy_stats.t.ppf(1 - ALPHA / 2, freedom) * math.sqrt(parts.sum())) / scale
    return Found(effect, effect - half, effect + half)


# checks --------------------------------------------------------------------------------------------------------------


def nearest(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(str(name), sorted(map(str, names)), 1, 0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _conditions(test: Test) -> list[str]:
    return [test.split(term)[0] for arm in test.arms for terms in arm for term in terms]


def _world(condition: str) -> str:
    return next((w for w in YARDSTICKS if w and condition.startswith(f"{w}_")), "")


def _canonical(name: str) -> bool:
    return any(pattern.match(name) for pattern in CONDITIONS)


def _problems(claim: Claim, known: Collection[str]) -> list[str]:
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
        found += [f"tests.{test.name}.{said}" for said in _test_problems(test, claim, known)]
    return found


def _test_problems(test: Test, claim: Claim, known: Collection[str]) -> list[str]:
    found = []
    for field in ("terms", "against", "points", "first", "second"):
        if bool(getattr(test, field)) != (field in SHAPE[test.kind]):
            found.append(f"{field}: a {test.kind} has {' and '.join(SHAPE[test.kind])}, nothing else")
    for condition, decoding in (test.split(term) for arm in test.arms for terms in arm for term in terms):
        if not _canonical(condition) and condition not in known:
            found.append(f"{condition}: no condition is called so{nearest(condition, known)}")
        if decoding not in DECODINGS:
            found.append(f"{condition}@{decoding}: expected a decoding of {', '.join(DECODINGS)}{nearest(decoding, DECODINGS)}")
    if (test.margin is not None) != (test.direction == "equal") or (test.effect is not None) == (test.direction == "equal"):
        found.append("effect: expected `margin` with direction equal, else `effect`")
    if isinstance(test.effect, float | int) and test.effect <= 0:
        found.append(f"effect: expected a number above 0 (the direction has its own name), found {test.effect:g}")
    if test.unit == "yardsticks" and len(test.worlds) > 1:
        found.append(f"{' and '.join(w or 'reviews' for w in sorted(test.worlds))}: have a yardstick each; a rank compares them")
    if test.direction == "equal" and test.kind in ("peak", "spread", "fraction"):
        found.append(f"direction: a {test.kind} is greater or less")
    if test.kind == "peak" and test.direction == "less":
        found.append("direction: a peak is greater; for a dip compare another metric")
    if test.kind in PARTIAL:
        fewest, most = test.fewest, min(map(len, test.arms))
        if not fewest <= (test.at_least or most) <= max(map(len, test.arms)):
            found.append(f"at_least: a {test.kind} takes {fewest} conditions or more of each list, and no more than it names")
    elif test.at_least:
        found.append(f"at_least: a {test.kind} takes all its conditions")
    if test.along == "kept_mass" and (test.kind != "matched" or test.decoding == "plain"):
        found.append("along: kept_mass is for a matched test, in a decoding that masks (own): a plain one keeps everything")
    if test.kind == "rank" and len(test.first) != len(test.second):
        found.append(f"second: a rank compares pairs; first names {len(test.first)} conditions, second {len(test.second)}")
    if test.second_metric and test.kind != "rank":
        found.append(f"second_metric: a {test.kind} has one metric")
    if test.kind == "rank" and test.first == test.second and len(set(test.metrics)) == 1:
        found.append("second_metric: an order is compared with itself; give another metric, or other conditions")
    return found + _published_problems(test, claim)


def _published_problems(test: Test, claim: Claim) -> list[str]:
    found, column = [], COLUMN.get(test.metric, test.metric)
    for row in test.published:
        if row not in claim.published:
            found.append(f"published.{row}: no row of the claim's published is called so{nearest(row, claim.published)}")
        elif column not in claim.published[row]:
            found.append(f"published.{row}: has no {column}{nearest(column, claim.published[row])}")
        elif test.kind == "spread" and not isinstance(claim.published[row][column], list):
            found.append(f"published.{row}.{column}: a spread needs [mean, sd]")
    if test.published and test.kind in ("matched", "frontier", "fraction", "rank"):
        found.append(f"published: nothing was published as a {test.kind}")
    if test.published and test.unit == "yardsticks" and test.worlds - {""}:
        found.append(f"published: no yardstick of {', '.join(test.worlds)} was published")
    if test.published and test.unit in ("yardsticks", "own unit") and test.metric not in PUBLISHED_YARDSTICK:
        found.append(f"published: {test.metric} has no published yardstick (those of {', '.join(PUBLISHED_YARDSTICK)} have)")
    if test.effect == "half" and not found:
        there = published(test, claim)
        if there is None:
            found.append("effect: half of what? Give `published`, or a number")
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
        known = {"metric": METRICS, "second_metric": METRICS, "kind": get_args(Kind), "report": REPORTS, "decoding": DECODINGS}
        known = known.get(field, ())
        hint = nearest(str(error["input"]), known)
    return f"{place}: {error['msg'].replace('Input should be', 'expected')}, found {error['input']!r}{hint}"
