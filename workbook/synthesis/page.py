"""reports/synthesis: tables, figures, and the page that says how to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbook.ledger.claim import Claim
from workbook.results.results import Results
from workbook.results.tables import effect, join, markdown
from workbook.store.files import atomic_write
from workbook.synthesis import across, again, changes, closer, curve, files, forest, machines, specification, spread
from workbook.synthesis.sources import Source

HEAD = """# Synthesis

What the committed tables of all profiles say together. Descriptive: no word of the [ledger](../claims.md) is
taken from this page, and none changes by it. Made by `python -m workbook.synthesis` from the tables alone,
without a run; effects are in yardsticks (how far PPO without the KL penalty moves a metric from the untrained
model, in the same profile), with 95 % intervals over draws. Of the registered design `settle` every difference has
all the draws that have its conditions: 32, 16 or 8, as a claim that is settled takes what only it needs away. A claim
may thus have more draws here than its word, and no interval here is adjusted for looks."""
CURVES = """## Specification curves

A specification is one way in which the tables can ask a claim's question: a profile, free or fixed text length,
a learner, β, the change that is asked about, a decoding and a metric; everything else of its two conditions is
alike. Which there are is read from the profiles' settings; [specifications.yaml](../../specifications.yaml) says
what is asked. Empty boxes and the rows without numbers at the end of each table are what no profile has run.
Data and length go together where a row of boxes is empty: a difference between free and fixed length may then be
one between data. A condition that is repeated on the same draws counts as the mean of its repetitions, as in the
ledger (*runs* in the tables: of both conditions together, on one draw). Supervised policies are in none of these
curves: their texts may end in every profile, and [decoded at full length](supervised_length.md) P10's word may be
another.

**Length is hardly an axis of these curves.** Profiles fix it, as the paper did; texts may end in a few runs of PPO at
the default β alone (`free_ppo_gamma_*` of `settle` and `mini`), which were run to ask what length does (O01). Curves,
and the forests below, are drawn of three claims, P01, P20 and P22; of the others there is [the table](across.csv)."""
FORESTS = """## Across profiles

[across.csv](across.csv) has every deciding test in yardsticks that two profiles or more make, but those of the
planted claims (K01 to K03), which hold or fail by their definition and are no evidence. Profiles of the
same settings on the same draws are runs of *one* study and count once; k is the number of studies. τ²
(Paule-Mandel), its Q-profile interval, I², Cochran's Q, the mean with its Hartung-Knapp interval (factor at
least 1) and the 95 % prediction interval (t, k − 1 degrees of freedom) are of the studies. **With two to four
studies τ² is next to unknown**: its interval commonly spans three orders of magnitude, I² inherits that, and
with k = 2 the intervals use t with one degree of freedom (12.7). They say that a third setting could lie almost
anywhere; a claim's effect elsewhere is not known from these profiles. The studies' variances come from as few as
five draws and are taken as known, and so is the yardstick. *(free)*: texts may end there, where those of the
others are as long as allowed; what discounting does to human text (P20 to P22) changes its sign with that, so that a
mean over both is one of unlike things. P09, P10, P26 and P27 are *(free)* by their supervised policies alone: these
may end their texts, all others there have as many tokens as are allowed, and a quarter of P10's effect in `settle` is
[that difference](supervised_length.md)."""
AGAIN = """## What a second machine said"""
MACHINES = """### Of the edition before (texts of free length, β 0.05)

Complete runs of that edition's conditions on its five draws, each from nothing ({runs}; settings equal, extracted once
into [earlier.csv](earlier.csv) with commit and date). Corpora, seeds and random streams are the same, so only
rounding, and what training makes of it, differs; which processor or library did it was not recorded, and the
code was rearranged between the runs. The same tests were made on each ([machines.csv](machines.csv), by today's
rule)."""
SPREAD = """## Where the spread comes from

One run's number scatters with the *draw* (texts, base model, reward model, prompts), with the *run* on it (what
reinforcement learning draws by chance), and with the *evaluation* (what is sampled on the test prompts at the end).
`{design}` repeats conditions on each of its draws with other random numbers, so that these can be told apart
([spread.csv](spread.csv)). Standard deviations in the metric's own unit, [95 % intervals]; *(draws × runs)*; the last
condition of each metric is a difference of two, as claims ask for it. By one-way random-effects analysis of variance,
normal numbers taken for granted: the interval of runs is chi-square's, that of draws Williams', rather too wide.
*Evaluation* is a part of *between runs*: how far one answer's score is from its prompt's and its run's mean, over the
root of {prompts} prompts, from the five answers a run whose texts are kept (interval: t over draws). It is at most so
much: each run answered a prompt once, so that what one policy does with one prompt is in it. Of other metrics nothing
is kept answer by answer. Which prompts are asked is the same for the runs of a draw and counts in *draws*.
*Real reviews*: the profile `{reviews}`, runs from {seeds} RL seeds on one base model and the same prompts; it has no
draws, and other texts, models and learning rates, so that its sizes are to be set beside the others, no more.

How to read it: n draws with r runs each give a mean with a standard error of √((draws² + runs² / r) / n). Where *runs*
is much the larger, as for every difference here, another run on the same draws is worth nearly as much as one on a new
draw; where *draws* is, as for the human text of a single condition, only new draws help. [A closer look](closer.md)
has the share of runs in the variance."""
COMPONENTS = """### In the edition before (texts of free length, β 0.05)

Variance of one deciding contrast of one run on one draw, in yardsticks², averaged over the contrasts of a metric
([components.csv](components.csv)), of the repeated runs of the edition before. Estimator: one-way random-effects
analysis of variance over {draws} draws × {n} runs (for balanced data the same as REML where that is not below 0; a
component below 0 is shown as it came). *run*: from run to run on one draw, evaluation included; the streams are shared,
so it is a lower bound for fresh RL seeds. *share of the draw*, [least, most]: leaving out one draw after the other.
*evaluation*: variance over responses of the paired difference, over the {tested} prompts of an evaluation, from the 20
responses a run that are kept of the first seed: of the plain score only. It counts the choice of prompts too, which
runs of one draw share, so *run* minus *evaluation* is a lower bound of what RL itself adds."""


def write(root: Path, claims: Mapping[str, Claim], sources: Sequence[Source], only: Sequence[str] = ()) -> Path:
    """All of it into reports/synthesis; the page's path. only: claims that get figures (none: those of
    specifications.yaml)."""
    out = root / "reports/synthesis"
    questions = specification.load(root / "specifications.yaml")
    changes.first_five(claims, sources, out)
    text = [HEAD, changes.write(root, claims, out), closer.write(root / "reports", out), _stale(sources), CURVES]
    for name, question in questions.items():
        rows = specification.curve(question, sources)
        files.write(out / f"{name}_specifications.csv", specification.table(rows))
        figure = files.keep(curve.drawn(name, question.question, question.metrics, rows), out, f"{name}_specifications")
        table = f"[table]({name}_specifications.csv)"
        said = f"{curve.summary(rows)} ({table}) {curve.rarer(rows) or curve.alike(rows)}".strip()
        text += [f"### {name}: {question.question}", _picture(figure), said]
    text += [FORESTS, *_forests(out, claims, across.across(claims, sources), only or list(questions))]
    earlier = machines.runs(out, sources[0].params) if (out / machines.EARLIER).is_file() else {}
    before, parts = _machines(out, claims, earlier)
    designs = [source for source in sources if source.registered]
    text += [AGAIN]
    for design in designs:
        text += [again.said(design, sources), *_by_test(out, claims, design, sources)]
    text += before
    text += [*_spread(out, root, designs), *parts]
    atomic_write(out / "synthesis.md", "\n\n".join(part for part in text if part) + "\n")
    return out / "synthesis.md"


def _stale(sources: Sequence[Source]) -> str:
    said = [f"{s.profile}: {len(s.stale)} ({next(iter(s.stale.values()))})" for s in sources if s.stale]
    return (
        f"Left out, as their rows were made with other settings than the profile has now: {join(said)}." if said else ""
    )


def _picture(path: Path) -> str:
    return f"![{path.stem.replace('_', ' ')}: see the text and the table below]({path.name})"


def _forests(out: Path, claims: Mapping[str, Claim], rows: Sequence[across.Across], shown: Sequence[str]) -> list[str]:
    files.write(out / "across.csv", across.table(rows))
    text = []
    for name in dict.fromkeys(row.claim for row in rows):
        own = [row for row in rows if row.claim == name]
        if name in shown:
            figure = files.keep(forest.drawn(name, claims[name].claim, own), out, f"{name}_across")
            text += [f"### {name}: {claims[name].claim}", _picture(figure)]
    pooled = [row for row in rows if row.pooled]
    table = pd.DataFrame([_line(row) for row in pooled])
    if len(table):
        text += ["### All tests of two studies or more", markdown(table)]
    return text


def _line(row: across.Across) -> dict[str, Any]:
    p = row.pooled
    return {
        "claim": row.claim,
        "test": row.test,
        **{"studies": "; ".join(f"{e.name}{' (free)' * ('free' in e.length)} {e.value:+.2f}" for e in row.studies)},
        "mean": effect(p.mean, p.low, p.high),
        "further study": f"[{p.new_low:+.2f}, {p.new_high:+.2f}]",
        "heterogeneity": forest.spread(row),
    }


def _spread(out: Path, root: Path, designs: Sequence[Source]) -> list[str]:
    """The components of the registered designs' repetitions; nothing without one."""
    text = []
    for design in designs:
        prompts, others = design.params.evaluation.test_prompts, root / "reports" / spread.REVIEWS
        rows = spread.table(design.params.reports_folder, prompts, others)
        files.write(out / "spread.csv", rows)
        seeds = max(row["seeds"] or 0 for row in rows)
        about = {"design": design.profile, "prompts": f"{prompts:,}", "reviews": spread.REVIEWS, "seeds": seeds}
        text += [SPREAD.format(**about), markdown(spread.shown(rows))]
    return text


def _by_test(out: Path, claims: Mapping[str, Claim], design: Source, sources: Sequence[Source]) -> list[str]:
    """The design's deciding tests beside those of the profile that runs its first draws anew; nothing without one."""
    drawn = [s for s in sources if s.profile == again.ANEW and s.draw() == design.draw()]
    rows = [row for other in drawn for row in again.by_test(claims, design, other)]
    if not rows:
        return []
    files.write(out / "by_test.csv.xz", rows)
    return [again.of_tests(rows, design, drawn[0])]


def _machines(out: Path, claims: Mapping[str, Claim], again: Mapping[str, Results]) -> tuple[list[str], list[str]]:
    """What repeated runs of the edition before said, and where their spread came from; nothing without its tables."""
    if not again:
        return [], []
    rows, found = machines.said(claims, again), machines.parts(claims, again, out)
    files.write(out / "machines.csv", machines.table(rows, again))
    files.write(out / "components.csv", found)
    first = next(iter(again.values()))
    about = {"draws": len(first.seeds), "n": len(again), "tested": machines.prompts_of(first)}
    return [
        MACHINES.format(runs=join([f"`{c}` of {machines.COMMITS.get(c, c)}" for c in again])),
        _changed(rows, list(again)),
    ], [
        COMPONENTS.format(**about),
        markdown(pd.DataFrame([_component(part) for part in found])),
    ]


def _changed(rows: Sequence[machines.Said], commits: Sequence[str]) -> str:
    """How many words differ between the runs, and the claims whose word does."""
    words = {row.claim: row.claim_words for row in rows}
    differ = {name: said for name, said in words.items() if len(set(said)) > 1}
    tests = sum(len(set(row.words)) > 1 for row in rows)
    signs = sum(len({e > 0 for e in row.effects if e is not None}) > 1 for row in rows)
    table = pd.DataFrame([{"claim": name, **dict(zip(commits, said))} for name, said in differ.items()])
    head = (
        f"Of {len(rows)} deciding tests of {len(words)} claims, {tests} got another word in some run and {signs} an "
        f"effect of another sign; {len(differ)} claims got another word:"
    )
    return f"{head}\n\n{markdown(table)}" if differ else head.rpartition(";")[0] + "; no claim got another word."


def _component(part: Mapping[str, Any]) -> dict[str, str]:
    ends = "" if part["least"] is None else f" [{part['least']:.0%}, {part['most']:.0%}]"
    shown = part["share of evaluation"]
    return {
        "metric": f"{part['metric']}, {part['decoding']}",
        "contrasts": part["contrasts"],
        "total": f"{part['total']:.2g}",
        "draw": f"{part['draw']:.2g}",
        "run": f"{part['run within a draw']:.2g}",
        "share of the draw": f"{part['share of the draw']:.0%}{ends}",
        "share of evaluation": "not estimable" if shown is None else f"{shown:.0%}",
    }
