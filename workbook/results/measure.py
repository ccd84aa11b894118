"""What is known of a metric: the record that `measures.TABLE` is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

YARDSTICK, LOG_RATIO, OWN_UNIT = "yardstick", "log ratio", "own unit"


@dataclass(frozen=True)
class Measure:
    """A metric. better: "" where neither way is.

    measured: "texts": on the responses of a decoding; "model": on texts that are not the run's; "run": once a run, from
    its training: these are columns of per_seed.csv; "update": at each update, in curves.csv; "figure": by figures, from
    curves.csv.
    compared: in yardsticks (how far PPO without the KL penalty moves it from the untrained model), in those of the
    metric that is named, as a log ratio, or in its own unit (shares and ratios). yardstick: one of a set size, in the
    metric's unit, where ours would depend on a setting; None: as measured.
    label: on an axis, two lines at most; panel: the same where there is little room; gain, spread: of its difference to
    the untrained model and of its standard deviation over seeds, where figures show them.
    published_as: what the papers print in its place, without the logarithm.
    """

    name: str
    formula: str
    unit: str
    label: str = ""
    panel: str = ""
    better: Literal["more", "less", ""] = ""
    measured: Literal["texts", "model", "run", "update", "figure"] = "texts"
    compared: str = YARDSTICK
    yardstick: float | None = None
    gain: str = ""
    spread: str = ""
    published_as: str = ""


def of_run(name: str, formula: str, unit: str, label: str = "", **more: str) -> Measure:
    return Measure(name, formula, unit, label, measured="run", **more)


def of_figure(name: str, formula: str, unit: str, label: str, better: Literal["more", "less", ""] = "") -> Measure:
    return Measure(name, formula, unit, label, better=better, measured="figure")


def of_update(name: str, formula: str, unit: str, label: str = "") -> Measure:
    return Measure(name, formula, unit, label, measured="update")
