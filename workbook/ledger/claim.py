"""An entry of claims.yaml: what is claimed, what was published, which conditions and numbers decide it.

`checks.load` reads the file; `published` has what the papers found for a test, in the test's unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from rlnlp.settings import Settings
from workbook.results import measures
from workbook.results.measure import LOG_RATIO, OWN_UNIT
from workbook.results.measures import MEASURES
from workbook.statistics.ordered import MIN_MASKS, MIN_SWEEP

DECODINGS = ("plain", "top_p", "own", "greedy", "beam", "top_k", "temperature")
METRICS = measures.columns()
YARDSTICK = (
    "ppo_kl_0",
    "zero_shot",
)  # one is how far PPO without the KL penalty moves a metric from the untrained model
Kind = Literal["contrast", "trend", "peak", "matched", "frontier", "spread", "fraction", "rank"]
SHAPE = {  # kind: the fields that say what is compared
    "contrast": ("terms",),
    "trend": ("points",),
    "peak": ("points",),
    "matched": ("first", "second"),
    "frontier": ("first", "second"),
    "spread": ("first", "second"),
    "fraction": ("first", "second"),
    "rank": ("first", "second"),
}
PARTIAL = ("trend", "peak", "matched", "frontier", "fraction", "rank")  # kinds of which a profile may run a part
FEWEST = {"trend": 2, "peak": 3, "matched": MIN_SWEEP, "frontier": MIN_SWEEP, "fraction": 1, "rank": 4}
FEWEST_REPETITIONS = 2  # of a condition, for its spread within a draw
Terms = dict[str, float]


class ClaimError(ValueError):
    """An entry that cannot be used, or a claim without its runs; named are file, claim, key, expected, found."""


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
    effect: float | Literal["published"] | None = Field(
        None, description="the effect that the claim states, > 0: a number, in yardsticks, or the published one"
    )
    margin: float | None = Field(None, gt=0, description="of `equal`: yardsticks")
    threshold: bool = Field(
        False, description="of contrast: against a point between two conditions, which is passed or missed by any size"
    )
    terms: Terms = Field({}, description="condition or condition@decoding: weight")
    points: dict[float, str | Terms] = Field({}, description="x: condition, or terms")
    first: tuple[str, ...] = Field((), description="conditions of the first arm")
    second: tuple[str, ...] = Field((), description="conditions of the second arm")
    along: Literal["kl_deployed", "kept_mass"] = Field(
        "kl_deployed", description="of matched: what is equal in both arms"
    )
    second_metric: Literal[METRICS] | None = Field(None, description="of rank: what orders `second`; None = `metric`")
    at_least: int = Field(0, ge=0, description="conditions (of each list) that a profile must run; 0 = all")
    yardstick: tuple[str, str] = Field(
        YARDSTICK, description="the conditions between which one yardstick lies: from the second to the first"
    )
    published: dict[str, float] = Field(
        {}, description="row of the claim's `published`: weight, or x of trend and peak"
    )

    @property
    def unit(self) -> str:
        """What effect and margin count: yardsticks, or what needs none."""
        if self.kind == "spread":
            return "log ratio of spreads"
        if self.kind == "fraction":
            return "share of runs"
        if self.kind == "rank":
            return "tau"
        compared = MEASURES[self.metric].compared
        return compared if compared in (LOG_RATIO, OWN_UNIT) else "yardsticks"

    @property
    def logged(self) -> bool:
        """Whether its metric is compared on the logarithm."""
        return MEASURES[self.metric].compared == LOG_RATIO

    @property
    def arms(self) -> list[list[Terms]]:
        """The lists of terms of which `at_least` must be there (kinds that need all: one list)."""
        if self.kind in ("trend", "peak"):
            return [[{p: 1.0} if isinstance(p, str) else p for p in self.points.values()]]
        if self.kind == "contrast":
            return [[self.terms]]
        if self.kind == "spread":
            return [[{c: sign for side, sign in ((self.first, 1.0), (self.second, -1.0)) for c in side}]]
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
    def conditions(self) -> list[str]:
        """Those that it compares, in their order."""
        return [self.split(term)[0] for arm in self.arms for terms in arm for term in terms]

    @property
    def cells(self) -> set[tuple[str, str]]:
        """The conditions that it compares, each with its decoding; of the yardstick's, plain."""
        terms = {term for arm in self.arms for terms in arm for term in terms}
        return {self.split(term) for term in terms} | {(c, "plain") for c in self.yardstick}

    def split(self, term: str) -> tuple[str, str]:
        """ "condition@decoding" -> (condition, decoding)."""
        condition, _, decoding = term.partition("@")
        return condition, decoding or self.decoding


class Claim(Settings):
    """One entry of claims.yaml, with its id."""

    id: str = Field(description="letter and number")
    claim: str = Field(min_length=10, description="one plain sentence")
    source: Source
    report: str = Field(description="the report that shows its runs")
    published: dict[str, dict[str, float | list[float]]] = Field({}, description="row: {column: mean or [mean, sd]}")
    traps: str = Field(min_length=1, description="what makes the published evidence ambiguous")
    tests: tuple[Test, ...] = ()
    awaiting: tuple[str, ...] = Field((), description="learners, samplers or tasks that are not built yet")
    needs: tuple[str, ...] = Field((), description="what it would take")
    decided_by: Literal["all", "any"] | None = None

    @property
    def deciding(self) -> tuple[Test, ...]:
        return tuple(t for t in self.tests if t.role == "decides")


def conditions_of(claim: Claim, beside: bool = True) -> set[str]:
    """Every condition its tests name (beside: also those that do not decide), and the two that make the yardstick."""
    tests = claim.tests if beside else claim.deciding
    scales = {c for t in tests if t.unit == "yardsticks" for c in t.yardstick}
    return {c for t in tests for c in t.conditions} | scales


def repetitions(runs: Mapping[str, Mapping[str, Any]], condition: str) -> list[str]:
    """The condition, and those of `runs` (a profile's entries) that say the same with other random numbers
    (`replicate`); of one that is itself a repetition, itself alone. How a run is measured may differ."""
    if condition not in runs or runs[condition].get("replicate"):
        return [condition]

    def said(name: str) -> dict[str, Any]:
        return {k: v for k, v in runs[name].items() if k not in ("replicate", "decodings", "test_prompts")}

    return [condition, *(c for c, run in runs.items() if run.get("replicate") and said(c) == said(condition))]
