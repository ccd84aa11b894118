"""The study's report: tables and texts into a folder, the two checks of the tests (made-up studies, published
p-values)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from workbook.results.tables import markdown, number, safe, short, side_by_side
from workbook.store.files import atomic_json, atomic_write
from workbook.study import agreement, anova, results
from workbook.study.protocol import BASE, BOTH, TASK, TWICE, Config

COLUMNS = (BASE, TASK, TWICE, BOTH)
LIKERT = {"items": 30, "raters": 10, "each": 3, "rater_spread": 0.7, "item_spread": 0.5}  # of each of two systems
CHOICES = {"items": 200, "raters": 12, "each": 3, "rater_spread": 0.5, "item_spread": 0.7}  # as many as in the study
SIZES = {"Likert ratings": LIKERT, "choices": CHOICES}
TESTS = {"naive": "every judgement for itself", "clustered": "whole raters and texts", "mixed": "mixed model"}


def settings_table(settings: dict) -> pd.DataFrame:
    """Each setting, its value and what it is."""
    fields = Config.model_fields
    return pd.DataFrame({"value": settings, "what it is": {name: fields[name].description for name in settings}})


# --------------------------------------------------------------------------------------------- how honest is each test?
def calibrate(studies: int, mixed: int) -> dict:
    """How often each test finds a difference (p < .05) in made-up studies that have none.

    studies: of each kind; mixed: those of the Likert studies that the slow mixed model sees too.
    Returns kind -> test -> {found, of}. 5 % is honest.
    """
    out = {}
    for kind, make, ask in (("Likert ratings", _likert, _ask_likert), ("choices", _choices, _ask_choices)):
        found = pd.DataFrame(
            [ask(make(seed), seed, kind == "Likert ratings" and seed < mixed) for seed in range(studies)]
        )
        out[kind] = {
            name: {"found": int((p.dropna() < 0.05).sum()), "of": int(p.notna().sum())} for name, p in found.items()
        }
    return out


def _likert(seed: int) -> pd.DataFrame:
    return agreement.planted({"old": 0.0, "new": 0.0}, seed=seed, **LIKERT)


def _choices(seed: int) -> pd.DataFrame:
    """+1 or -1 of each judgement: the sign of a rater's leaning, a pair's and noise."""
    return agreement.planted({"only": 0.0}, seed=seed, **CHOICES).assign(value=lambda t: np.sign(t["value"]))


def _ask_likert(table: pd.DataFrame, seed: int, mixed: bool) -> dict[str, float]:
    found = {
        "naive": anova.anova(table).p,
        "clustered": agreement.clustered(table, "old", "new", resamples=300, seed=seed).p,
    }
    return found | {"mixed": float(agreement.mixed_model(table)["p"].iloc[0]) if mixed else math.nan}


def _ask_choices(table: pd.DataFrame, seed: int, mixed: bool) -> dict[str, float]:
    found = agreement.compare(table, seed=seed)
    return {"naive": found.p_naive, "clustered": found.p}


def calibration_table(found: dict) -> pd.DataFrame:
    """False positives of each test with their 95 % interval (Wilson)."""
    rows = {}
    for kind, tests in found.items():
        rows[kind] = {"sizes": ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in SIZES[kind].items())}
        for test, title in TESTS.items():
            if test in tests and tests[test]["of"]:
                k, n = tests[test]["found"], tests[test]["of"]
                edges = scipy_stats.binomtest(k, n).proportion_ci(method="wilson")
                rows[kind][title] = f"{k / n:.1%} [{edges.low:.1%}, {edges.high:.1%}], n = {n}"
    return pd.DataFrame(rows).T.fillna("not run")


# ------------------------------------------------------------------------------------------------- the paper's p-values
def paper_comparison(wins: int = 682, losses: int = 587, raters: int = 3, correlation: float = 0.28) -> pd.DataFrame:
    """The paper's own second comparison (682 to 587 judgements): p as if independent, and with three correlated raters
    a pair."""
    z = (wins - losses) / math.sqrt(wins + losses)
    rows = {"every judgement for itself (binomial)": float(scipy_stats.binomtest(wins, wins + losses).pvalue)}
    rows |= {f"{raters} raters of a pair, correlation {correlation}": agreement.discounted_p(z, raters, correlation)}
    return pd.DataFrame({"p": {name: number(p) for name, p in rows.items()}})


def published(question: str) -> pd.DataFrame:
    """Table 15 from the smallest difference on, p as printed, and ``implied``: p on the one curve through the cells
    printed between .1 and .9. Smaller ones may have been printed with a zero too many; .001 and .900 are where the
    software's table ends.
    """
    rows, (error, freedom) = anova.published(question), _one_test(question)
    again = [anova.tukey_p(d, error, anova.PUBLISHED_GROUPS, freedom) for d in rows["difference"]]
    return rows.assign(implied=again).sort_values("difference", key=abs).reset_index(drop=True)


def _one_test(question: str) -> tuple[float, int]:
    """(error of a mean, degrees of freedom) of the test through the cells that ``published`` names."""
    rows, freedom = anova.published(question), anova.PUBLISHED_GROUPS * (anova.PUBLISHED_RATINGS - 1)
    inner = rows[(rows["p"] > 0.1) & (rows["p"] < 0.9)]
    errors = [
        anova.implied_error(d, p, anova.PUBLISHED_GROUPS, freedom) for d, p in zip(inner["difference"], inner["p"])
    ]
    return float(np.median(errors)), freedom


def impossible():
    """Printed p of Table 15 against |difference|, and the one curve they would lie on; the label is the figure's alt
    text."""
    from matplotlib.figure import Figure

    from workbook.figures.parts import alt_text, caption
    from workbook.figures.style import styled

    with styled():
        figure, said = Figure(figsize=(8, 3.6), layout="constrained"), []
        axes = figure.subplots(1, 2, sharey=True)
        for axis, question, colour in zip(axes, ("coherence", "commonsense"), ("#0072B2", "#D55E00")):
            rows = published(question)
            rows = rows.assign(size=rows["difference"].abs())
            near, grid, (error, freedom) = rows[rows["size"] < 0.3], np.linspace(0.001, 0.3, 60), _one_test(question)
            curve = [anova.tukey_p(d, error, anova.PUBLISHED_GROUPS, freedom) for d in grid]
            axis.plot(grid, curve, "--", color="black", label="one test, equal n")
            axis.plot(near["size"], near["p"], "o", color=colour, label="printed")
            worst = rows.loc[(rows["implied"] - rows["p"]).idxmax()]  # printed too small
            axis.annotate(
                f"{worst['first']}\nagainst {worst['second']}",
                (worst["size"], worst["p"]),
                (0.005, 0.13),
                fontsize=8,
                arrowprops={"arrowstyle": "-", "color": "#444444"},
            )
            axis.set(title=question, xlabel="|difference| in Likert points", xlim=(0, 0.3), ylim=(-0.05, 1.05))
            axis.legend()
            said.append(
                f"{question}: {worst['first']} against {worst['second']}, difference {worst['size']:.3f}, "
                f"printed p {worst['p']:.3f}, on the curve {worst['implied']:.2f}"
            )
        axes[0].set_ylabel("p")
        caption(
            figure,
            "The paper's Table 15. In one Tukey HSD with equal n, p falls as the difference grows: a point far "
            "below the curve cannot be. "
            "The curve goes through the cells printed between .1 and .9.",
        )
    return alt_text(
        figure, f"Printed p-values against the size of the difference, with the curve of one test. {'; '.join(said)}."
    )


# ------------------------------------------------------------------------------------------------------------ the files
def samples(folder: str | Path, count: int = 20) -> list[dict[str, str]]:
    """The first ``count`` prompts of the second round with what each policy wrote: [{"prompt", policy: text}],
    unselected."""
    found = json.loads((Path(folder) / "texts.json").read_text(encoding="utf-8"))
    return [
        {"prompt": short(prompt), **{name: texts[i] for name, texts in found["texts"].items()}}
        for i, prompt in enumerate(found["prompts"][:count])
    ]


def samples_html(folder: str | Path, count: int = 6) -> str:
    return side_by_side(samples(folder, count), ["prompt", *COLUMNS])


def samples_markdown(folder: str | Path, seed: int, count: int = 20) -> str:
    rows = samples(folder, count)
    lines = [
        "# Samples",
        "",
        f"Seed {seed}, the first {len(rows)} prompts of the second round, sampled as in training; nothing was "
        f"selected.",
        "",
    ]
    for name in (name for name in COLUMNS if name in rows[0]):
        lines += [
            f"## {name}",
            "",
            *(f"{i}. *{safe(r['prompt'])}* → {safe(r[name])}" for i, r in enumerate(rows, 1)),
            "",
        ]
    return "\n".join(lines)


def write(rows: pd.DataFrame, folders: Sequence[str | Path], real: dict, out: str | Path) -> str:
    """Put per_seed.csv, verdict.json, verdict.md and samples.md into a folder; returns the answer as Markdown."""
    out = Path(out)
    text, facts = results.verdict(rows)
    atomic_write(out / "per_seed.csv", rows.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    atomic_json(out / "verdict.json", facts | {"real preferences": real})
    shares = markdown(results.shares_table(rows))
    atomic_write(out / "verdict.md", f"# Verdict\n\n{text}\n{results.rejected(rows)}\n\n{shares}\n")
    atomic_write(out / "samples.md", samples_markdown(folders[0], rows["seed"].iloc[0]))
    return text
