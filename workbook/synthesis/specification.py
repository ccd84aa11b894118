"""Every way in which the committed tables can ask a claim's question: specifications.yaml, and what each comes to.

wanted = load(root / "specifications.yaml")
rows = curve(wanted["P20"], sources(root))      # a Specification each, also of cells that no profile has run
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
from pydantic import Field
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from rlnlp.settings import Settings
from workbook.ledger.claim import DECODINGS, METRICS, YARDSTICK, ClaimError, repetitions
from workbook.ledger.contrast import yardstick
from workbook.results.design import plain
from workbook.results.measures import MEASURES, yardstick_of
from workbook.results.results import ReportError, Results
from workbook.statistics import paired
from workbook.synthesis.sources import Source

LEVELS = ("none", "weaker", "default", "stronger", "adaptive")  # of the KL penalty, beside the profile's own
TOGETHER = " + "  # between profiles that hold the same numbers
CELL = ("task", "length", "algorithm", "beta", "change")  # the choices whose empty cells are listed


class Question(Settings):
    """An entry of specifications.yaml, which says what each field is."""

    question: str = Field(min_length=10)
    vary: str = Field(min_length=1)
    pairs: tuple[tuple[float | str, float | str], ...] = Field(min_length=1)
    among: dict[str, list[Any]] = {}
    metrics: tuple[str, ...] = Field(min_length=1)
    decodings: tuple[str, ...] = Field(min_length=1)
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Specification:
    """One of them: the choices, the two conditions, and the mean difference over n seeds (n 0: an empty cell). A
    condition that is repeated on the same seeds counts as the mean of its repetitions, as in the ledger; runs: of both
    conditions together, on one seed.

    length: of texts, "free" or "fixed"; beta: level of the KL penalty, kl_coef its value; decoding: "" where the
    metric is not of generated text; also: further settings that are shown; profile: "a + b" where both hold the same
    numbers, where one of them has but a part of the repetitions too; difference: raw; effect, low, high: in
    yardsticks of the profile, with the 95 % interval (t, over seeds), None where the metric has no yardstick there.
    """

    task: str
    length: str
    algorithm: str
    beta: str
    change: str
    profile: str = ""
    kl_coef: float | None = None
    also: str = ""
    metric: str = ""
    decoding: str = ""
    first: str = ""
    second: str = ""
    n: int = 0
    runs: int = 0
    difference: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def cell(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in CELL)


def load(path: Path) -> dict[str, Question]:
    """claim id -> its question. Raises: ClaimError naming each entry that cannot be used, and why."""
    try:
        raw = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, YAMLError) as error:
        raise ClaimError(f"{path}: {error}") from None
    found, problems = {}, []
    for name, entry in raw.items():
        try:
            pairs = {"pairs": tuple(map(tuple, entry["pairs"]))} if "pairs" in entry else {}
            found[name] = Question.model_validate({**entry, **pairs})
        except pydantic.ValidationError as error:
            problems += [f"{name}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            continue
        problems += [f"{name}: {said}" for said in _problems(found[name])]
    if problems:
        raise ClaimError("\n  ".join([f"{path}:", *problems]))
    return found


def _problems(question: Question) -> Iterator[str]:
    yield from (f"no metric is called {m!r}" for m in question.metrics if m not in METRICS)
    yield from (f"no decoding is called {d!r}" for d in question.decodings if d not in DECODINGS)
    for name in (m for m in question.metrics if m in METRICS):
        if yardstick_of(name) not in METRICS:
            yield f"{name} has no yardstick: {MEASURES[name].compared}"


@dataclass(frozen=True)
class Numbers:
    """What a specification is made of. made: its draws and the settings of its two conditions; arms: seed -> what each
    of the two has, its repetitions aside, which not every profile runs."""

    made: str
    arms: dict[int, tuple[float, float]]

    def hold(self, others: Numbers) -> bool:
        """Whether all that the others are of is here too, to the seventh digit."""
        if self.made != others.made or not others.arms.keys() <= self.arms.keys():
            return False
        return np.allclose([self.arms[s] for s in others.arms], [*others.arms.values()], rtol=1e-6, atol=0)


def curve(question: Question, sources: Sequence[Source]) -> list[Specification]:
    """Every specification that the profiles hold, by effect, and then every empty cell of the choices that occur."""
    found = once([each for source in sources for each in _of(question, source)])
    found.sort(key=lambda s: math.inf if s.effect is None else s.effect)
    return [*found, *empty(found)]


def once(found: Sequence[tuple[Specification, Numbers]]) -> list[Specification]:
    """Each number once: what several profiles hold of the same settings and draws is one specification, of the profile
    with the most draws, then the most repetitions, and has all their names."""
    kept: list[tuple[Specification, Numbers]] = []
    for row, numbers in sorted(found, key=lambda each: (-each[0].n, -each[0].runs)):
        for i, (other, theirs) in enumerate(kept):
            if (row.cell, row.metric, row.decoding) == (other.cell, other.metric, other.decoding):
                if theirs.hold(numbers):
                    names = sorted({*other.profile.split(TOGETHER), row.profile})
                    kept[i] = replace(other, profile=TOGETHER.join(names)), theirs
                    break
        else:
            kept.append((row, numbers))
    return [row for row, _ in kept]


def empty(found: Sequence[Specification]) -> list[Specification]:
    """The cells of `CELL` that none of them fills, of all combinations of choices that occur."""
    choices = [list(dict.fromkeys(getattr(s, name) for s in found)) for name in CELL]
    filled = {s.cell for s in found}
    return [Specification(*cell) for cell in product(*choices) if cell not in filled]


def table(rows: Iterable[Specification]) -> list[dict[str, Any]]:
    """As rows of a CSV; an empty cell has nothing after its choices."""
    return [{k: v if v or isinstance(v, float) else None for k, v in asdict(row).items()} for row in rows]


def level(source: Source, condition: str, setting: str) -> Any:
    """The value of a setting, as `pairs` names it."""
    return beta(source, condition) if setting == "kl_coef" else source.settings[condition].get(setting)


def beta(source: Source, condition: str) -> str:
    """The KL penalty of a condition beside that of its profile: a name of LEVELS."""
    own, usual = source.settings[condition], plain(source.params.learner["kl_coef"])
    if own.get("kl_target"):
        return LEVELS[4]
    value = own.get("kl_coef", usual)
    return LEVELS[0] if not value else LEVELS[2] if value == usual else LEVELS[1 if value < usual else 3]


def length(settings: Mapping[str, Any]) -> str:
    """Whether a policy may end its text early in training."""
    return "fixed" if settings.get("min_new_tokens", 0) >= settings["max_new_tokens"] else "free"


def _of(question: Question, source: Source) -> Iterator[tuple[Specification, Numbers]]:
    """Those of one profile."""
    groups: dict[str, dict[Any, str]] = {}
    for condition, own in source.settings.items():
        if own.get("replicate"):
            continue  # other random numbers: the same specification, of whose conditions it is a part
        if question.vary in own and own.get("updates") and _is_among(own, question.among):
            rest = json.dumps({k: v for k, v in own.items() if k != question.vary}, sort_keys=True)
            groups.setdefault(rest, {}).setdefault(level(source, condition, question.vary), condition)
    for group, (start, end) in product(groups.values(), question.pairs):
        if start in group and end in group:
            for metric in question.metrics:
                yield from _measured(question, source, metric, (start, end), (group[start], group[end]))


def _is_among(own: Mapping[str, Any], among: Mapping[str, Sequence[Any]]) -> bool:
    return all(own.get(name, plain(values[0])) in [plain(v) for v in values] for name, values in among.items())


def _measured(
    question: Question, source: Source, metric: str, change: tuple[Any, Any], conditions: tuple[str, str]
) -> Iterator[tuple[Specification, Numbers]]:
    """One of each decoding in which both conditions have the metric."""
    start, end = conditions
    made = json.dumps([source.draw(), *(source.settings[c] for c in (end, start))], sort_keys=True, default=str)
    of_text = MEASURES[metric].measured == "texts"
    own, seen, results = source.settings[end], [], source.of({start, end, *YARDSTICK})
    names = {"none": "0"}
    said = " → ".join(names.get(v, v) if isinstance(v, str) else f"{v:g}" for v in change)
    for decoding in question.decodings if of_text else question.decodings[:1]:
        repeated = [_repeated(results, c, metric, decoding) for c in (end, start)]
        if not all(map(len, repeated)):
            continue
        arms = [runs.mean(axis=0) for runs in repeated]
        if any((arms[0] == a).all() and (arms[1] == b).all() for a, b in seen):
            continue
        seen.append(arms)
        span, unit = paired.mean_interval(arms[0] - arms[1]), _whole(yardstick, results, metric)
        usable = unit is not None and unit.excludes(0)
        scaled = [v / abs(unit.estimate) if usable and v is not None else None for v in (*_ends(span),)]
        row = Specification(
            task=source.task,
            length=length(own),
            algorithm=own["algorithm"],
            beta="varied" if question.vary == "kl_coef" else beta(source, end),
            change=f"{'β' if question.vary == 'kl_coef' else _symbol(question.vary)} {said}",
            profile=source.profile,
            kl_coef=None if question.vary == "kl_coef" else own.get("kl_coef"),
            also=", ".join(f"{_symbol(name)} {own[name]:g}" for name in question.also if name in own),
            metric=metric,
            decoding=decoding if of_text else "",
            first=end,
            second=start,
            n=span.n,
            runs=sum(map(len, repeated)),
            difference=span.estimate,
            effect=scaled[0],
            low=scaled[1],
            high=scaled[2],
        )
        yield row, Numbers(made, dict(zip(results.seeds, zip(*(runs[0].tolist() for runs in repeated)))))


def _repeated(results: Results, condition: str, metric: str, decoding: str) -> np.ndarray:
    """[runs, seeds]: the condition, and its repetitions that have the metric in every seed; empty without the
    condition's own."""
    there = [c for c in repetitions(results.params.all_runs, condition) if c in set(results.conditions)]
    found = {c: v for c in there if (v := _whole(results.values, c, metric, decoding)) is not None}
    return np.array([*found.values()] if condition in found else [])


def _whole(read: Callable[..., Any], *given: Any) -> Any:
    """What is read of the table; None too where a run broke down in some seeds, which the ledger leaves open."""
    try:
        return read(*given)
    except ReportError:
        return None


def _ends(span: paired.Interval) -> tuple[float, float | None, float | None]:
    return span.estimate, span.low, span.high


def _symbol(setting: str) -> str:
    return {"gamma": "γ", "lam": "λ", "mask_top_p": "p"}.get(setting, setting)
