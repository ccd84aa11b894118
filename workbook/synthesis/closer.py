"""A closer look: what the registered design's committed draws say beside the words of a few claims.

Comparisons that no registered test makes, chosen when the words were known, so they decide nothing: at the same
distance from the untrained model in place of the same β, in the other decoding, over all draws in place of those of a
look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbook.results.files import DRAWS, table_of
from workbook.results.measures import MEASURES
from workbook.results.results import read_per_seed
from workbook.results.tables import markdown, minus, signed
from workbook.statistics.components import components, without_each_draw
from workbook.statistics.paired import mean_interval
from workbook.store.files import atomic_write
from workbook.synthesis import files

FREE, UNTRAINED = "ppo_kl_0", "zero_shot"
SWEEP = ("ppo_kl_0", "ppo_kl_0005", "ppo_kl_002", "ppo_kl_small", "ppo_kl_default", "ppo_kl_large", UNTRAINED)
DISCOUNTED = ("ppo_gamma_095_kl_0", "ppo_gamma_095_kl_small", "ppo_gamma_095", "ppo_gamma_095_kl_large", UNTRAINED)
TEXTS, HUMAN = "generation_log_perplexity", "human_log_perplexity"
SHARE = "share of the gain"
NAMES = {  # shorter than on figures
    "kl_deployed": "KL from the untrained model, nats/token",
    TEXTS: "log-perplexity of the texts, nats/token",
    HUMAN: "log-perplexity on human text, nats/token",
    "ppo_kl_default": "PPO",
    "nlpo_kl_default": "NLPO",
    "ppo_gamma_095": "PPO, γ = 0.95",
    "ppo_gamma_100": "PPO, γ = 1",
}
TIMES = {"ppo_kl_default": 6, "nlpo_kl_default": 4, "ppo_gamma_095": 4, "ppo_gamma_100": 4}
CHANGED = ("ppo_gamma_100", "ppo_gamma_095")  # whose difference is looked at like a condition
SPREAD = ("score", "judge", HUMAN, TEXTS)  # the metrics whose spread within a draw is shown
REPEATED = {c: [c, *(f"{c}_{i}" for i in range(2, n + 1))] for c, n in TIMES.items()}
HEAD = """# A closer look at some words of the registered design

Comparisons that the committed draws of `settle` allow and its registered tests do not make (for P18 and, at equal KL,
for P20 of runs that `full` made on eight of these draws). They were chosen when the words of the
[ledger](../settle/claims/claims.md) were known, so they change no word, carry no correction for how many they are, and
say where a word rests on a choice. Mean difference over draws with its 95 % t interval; *draws*: those that have all
that is compared; a condition that is repeated is the mean of its repetitions. *At equal ...*: the second side is PPO
without a penalty, with penalties of five weights (for P20 of three, and with its γ), and the untrained model, read
where the first side's own value of that measure lies on that draw, linearly between neighbours. *Share of the gain*, of
scores and judges: how far PPO without the penalty moves the score from the untrained model on the same draws is 1. Made
by `python -m workbook.synthesis`."""
WITHIN = """## How much of the spread over draws is there on one draw already

The design repeats four conditions with other random numbers on the same models. Of the variance of one run's number
over draws, the part that is there between repetitions on one draw, sampling and evaluation included [least, most:
leaving out one draw after the other]; last, the same for the difference of two conditions."""


@dataclass(frozen=True)
class Look:
    """first minus second, by metric. at: a metric; then second is `sweep`, read where that metric is first's."""

    claim: str
    said: str
    first: str
    second: str
    metrics: tuple[str, ...]
    decoding: str = "plain"
    at: str = ""
    sweep: tuple[str, ...] = SWEEP


def _masks(claim: str, said: str, conditions: dict[str, str], metric: str, decoding: str) -> list[Look]:
    return [
        Look(claim, f"{name} − top-p, {said}", c, "mask_top_p", (metric,), decoding) for name, c in conditions.items()
    ]


RULES = {"typical": "mask_typical", "ε": "mask_epsilon", "η": "mask_eta", "mirostat": "mask_mirostat"}
NUCLEI = ("nlpo_p_010", "nlpo_p_050", "nlpo_p_100")  # p = 0.1, 0.5 and 1, which only `full` has
GAMMAS = "PPO, γ = 1 − γ = 0.95"
LOOKS = (
    *(Look("P01", f"no penalty − β = {b}", FREE, c, ("score",)) for b, c in zip(("0.08", "0.2", "0.8"), SWEEP[3:6])),
    Look("P18", "p = 0.5 − p = 0.1, decoded as trained", NUCLEI[1], NUCLEI[0], ("score",), "own"),
    Look("P18", "p = 0.5 − p = 1, decoded as trained", NUCLEI[1], NUCLEI[2], ("score",), "own"),
    Look("P18", "p = 0.5 − p = 0.1, plainly decoded", NUCLEI[1], NUCLEI[0], ("score",)),
    Look("P18", "p = 1 − p = 0.5, plainly decoded", NUCLEI[2], NUCLEI[1], ("score",)),
    Look("P20", f"{GAMMAS}, same β", "ppo_gamma_100", "ppo_gamma_095", ("kl_deployed", "score", HUMAN)),
    Look("P20", f"{GAMMAS}, at equal KL", "ppo_gamma_100", "", ("score", HUMAN), at="kl_deployed", sweep=DISCOUNTED),
    Look("P26", "a tenth of the labels − supervised", "labels_10", "supervised", ("score", "judge", "judge_2")),
    Look("P26", "all labels − supervised", "ppo_kl_default", "supervised", ("score", "judge", "judge_2")),
    Look("P27", "supervised on all reviews − on a tenth", "supervised", "supervised_10", ("score", "judge", "judge_2")),
    Look("P40", "supervised, then PPO − PPO, same β", "sup_ppo", "ppo_kl_default", ("score", "judge", HUMAN)),
    Look("P40", "supervised, then PPO − PPO, at equal human text", "sup_ppo", "", ("score", "judge"), at=HUMAN),
    Look("P41", "REINFORCE − PPO, same β", "reinforce", "ppo_kl_default", ("kl_deployed", "score", "judge", TEXTS)),
    Look("P41", "REINFORCE − PPO, at equal KL", "reinforce", "", ("score", "judge", TEXTS), at="kl_deployed"),
    *_masks("C02", "plainly decoded", {"ε": "mask_epsilon"}, "score", "plain"),
    *_masks("C03, C15", "plainly decoded", {**RULES, "no mask": "ppo_kl_default"}, TEXTS, "plain"),
    *_masks("C03, C15", "each decoded as trained", {**RULES, "no mask": "ppo_kl_default"}, TEXTS, "own"),
    *_masks("C03, C15", "the policy on human text", RULES, HUMAN, "plain"),
)


def write(reports: Path, out: Path) -> str:
    """closer.csv and closer.md in `out`, of the draws below `reports`; the sentence that leads there, "" without
    draws."""
    if not (reports / "settle" / DRAWS).is_file():
        return ""
    table = of_draws(reports).query("split == 'test'")
    rows = [row for look in LOOKS for row in looked(table, look)]
    files.write(out / "closer.csv", rows)
    rows = pd.read_csv(out / "closer.csv").to_dict("records")  # rounded as the pages of claims read them
    parts = [HEAD]
    for claim in dict.fromkeys(row["claim"] for row in rows):
        parts += [f"## {claim}", shown([row for row in rows if row["claim"] == claim])]
    parts += [WITHIN, markdown(pd.DataFrame(within(table)))]
    atomic_write(out / "closer.md", "\n\n".join(parts) + "\n")
    return (
        "[A closer look at some words](closer.md): at the same distance in place of the same β, in the other decoding."
    )


def of_draws(reports: Path) -> pd.DataFrame:
    """The design's table of draws, and from `full`, where it is, the runs for P18 and P20 that the design lacks."""
    table, more = read_per_seed(reports / "settle" / DRAWS), table_of(reports / "full")
    if more is None:
        return table
    rows = read_per_seed(more)
    return pd.concat([table, rows[rows.condition.isin({*NUCLEI, *DISCOUNTED} - {*table.condition})]], ignore_index=True)


def of_claim(root: Path, claim: str) -> str:
    """The committed rows of a claim as a table, with how to read it; "" where there are none."""
    path = root / "reports/synthesis/closer.csv"
    rows = pd.read_csv(path).to_dict("records") if path.is_file() else []
    own = [row for row in rows if claim in row["claim"].split(", ")]
    said = (
        "What the draws of `settle` say beside its word, by its runs and by those of `full` on the same draws, "
        "compared when the word was known, so that it decides nothing "
        "([how to read it](/reports/synthesis/closer.md))."
    )
    return f"{said}\n\n{shown(own)}" if own else ""


def looked(table: pd.DataFrame, look: Look) -> list[dict[str, Any]]:
    """A row a metric. table: test rows of draws."""
    rows = []
    for metric in look.metrics:
        first = _wide(table, metric, look.decoding)[look.first]
        if look.at:
            places, values = (_wide(table, m, look.decoding) for m in (look.at, metric))
            second = read_at(places, values, look.first, look.sweep)
        else:
            second = _wide(table, metric, look.decoding)[look.second]
        apart = (first - second).dropna()
        span = mean_interval(apart.to_numpy())
        row = {"claim": look.claim, "compared": look.said, "metric": metric, "draws": span.n}
        row |= {"difference": span.estimate, "low": span.low, "high": span.high, "share": None}
        if metric in ("score", "judge", "judge_2"):
            plain = _wide(table, "score", "plain").loc[apart.index]
            row["share"] = span.estimate / float((plain[FREE] - plain[UNTRAINED]).mean())
        rows.append(row)
    return rows


def read_at(places: pd.DataFrame, values: pd.DataFrame, condition: str, sweep: Sequence[str]) -> pd.Series:
    """Draw -> the sweep's value where its place is that of `condition`; NaN where the sweep does not reach there, or
    lacks a run. Both tables: draws x conditions."""
    found = {}
    for draw, x in places[condition].items():
        known = places.loc[draw, [*sweep]].to_numpy(float)
        order = np.argsort(known)
        inside = np.isfinite(known).all() and known.min() <= x <= known.max()
        found[draw] = (
            np.interp(x, known[order], values.loc[draw, [*sweep]].to_numpy(float)[order]) if inside else np.nan
        )
    return pd.Series(found)


def within(table: pd.DataFrame) -> list[dict[str, Any]]:
    """For each metric the share of a run's variance over draws that is there within a draw, by condition."""
    rows = []
    for metric in SPREAD:
        line = {"metric": named(metric)}
        for name, whole in repeated(table, metric).items():
            ends = [1 - part.share for part in without_each_draw(whole)]
            line[f"{name} ({whole.shape[1]} × {len(whole)})"] = (
                f"{1 - components(whole).share:.0%} [{min(ends):.0%}, {max(ends):.0%}]"
            )
        rows.append(line)
    return rows


def repeated(table: pd.DataFrame, metric: str) -> dict[str, np.ndarray]:
    """Each repeated condition and the difference of two, by its name -> [runs, draws], of draws that have all of them.
    table: test rows of draws."""
    wide = _pivot(table, metric, "plain")
    found = stacked({name: wide[name].to_numpy(float) for names in REPEATED.values() for name in names}, REPEATED)
    return {name: d[:, np.isfinite(d).all(axis=0)] for name, d in found.items()}


def stacked(numbers: Mapping[str, np.ndarray], of: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
    """Name of a condition -> the numbers of its repetitions, [runs, ...], and so the difference of two of them. of:
    condition -> its repetitions."""
    runs = {condition: np.array([numbers[name] for name in names]) for condition, names in of.items()}
    change = runs[CHANGED[0]] - runs[CHANGED[1]]
    return {**{NAMES[c]: d for c, d in runs.items()}, "γ = 1 minus 0.95": change}


def _wide(table: pd.DataFrame, metric: str, decoding: str) -> pd.DataFrame:
    """Draws x conditions; one that is repeated is the mean of its repetitions, as in the ledger."""
    wide = _pivot(table, metric, decoding)
    for condition, names in REPEATED.items():
        if {*names} <= {*wide}:
            wide[condition] = wide[names].mean(axis=1, skipna=False)
    return wide


def _pivot(table: pd.DataFrame, metric: str, decoding: str) -> pd.DataFrame:
    return table[table.decoding == decoding].pivot(index="seed", columns="condition", values=metric)


def named(metric: str) -> str:
    """A metric as the page's tables have it."""
    return NAMES.get(metric) or " ".join((MEASURES[metric].label or metric).split())


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of `looked`, or of closer.csv, as a table."""
    lines = pd.DataFrame([_line(row) for row in rows])
    return markdown(lines if lines[SHARE].any() else lines.drop(columns=SHARE))


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "compared": row["compared"],
        "metric": named(row["metric"]),
        "draws": row["draws"],
        "difference [95 %]": signed(row["difference"], row["low"], row["high"]),
        SHARE: "" if pd.isna(row["share"]) else minus(f"{row['share']:+.2f}"),
    }
