"""Dropout in the policy."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import lines
from workbook.results.design import Compared, Pair, Series, compare, plainest, trained, untrained
from workbook.results.design import lines as alike
from workbook.results.results import Results

TITLE = "Does dropout in the policy break reinforcement learning?"
QUESTION = """Dropout switches off random parts of a network while it learns. PPO compares the probability of a token
now with the one it had when it was written: the *ratio*, exactly 1 before the first step. If other parts are switched
off at the two moments, it is wrong from the start. The paper says that dropout often makes training diverge and gives
no numbers."""
TERMS = """*In the update only*: responses are written without dropout, learnt from with it. *Drawn anew*: both with
dropout, other parts. *The same parts*: the update switches off what was off when the response was written, so that the
ratio stays right. *Diverged*: training ended early, or its score fell clearly below where it began."""
DETAIL = ("first_ratio_error", "clip_fraction", "approx_kl", "diverged")
READ = {
    "ratio": """Each mode at its largest rate. A line above the dotted limit at every update is a fault of the method,
not of one unlucky batch; one that climbs feeds on itself.""",
    "dropout": """Top left: above the dotted line the invariant is broken. Clipped tokens taught nothing in that step.
A share of few runs is known poorly.""",
}
LIMITS = (
    "Only PPO was run with dropout, at one learning rate and one β.",
    "With few seeds a share of diverged runs can be told from none only if most diverge.",
)
RATIO_LIMIT = 1e-3  # the invariant: how far the first minibatch's ratio may be from 1
MODES = {"update_only": "in the update only", "independent": "drawn anew", "same": "the same parts"}
BASES = {"policy": "without", "policy_dropout": "with"}


def rates(results: Results, base: str) -> list[Series]:
    """A series per mode over the rate, on one base model; rate 0 is the same PPO without dropout."""
    table = trained(results, "", base=base)
    zero = list(table.index[[m is None for m in table["mode"]]])[:1] if "mode" in table else []
    modes = [s for s in alike(results, "rate", lambda r: MODES.get(r["mode"], ""), base=base) if s.x[-1] > 0]
    return [Series(s.label, (*zero, *s.conditions), (*[0.0] * len(zero), *s.x)) for s in modes]


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    metrics = ("first_ratio_error", "clip_fraction", "approx_kl", "diverged", "score", "generation_log_perplexity")
    groups = {}
    for base, how in BASES.items():
        if not (series := rates(results, base)) and base != "policy":
            continue
        figure = lines.sweep(results, series, metrics, "dropout rate", levels={"first_ratio_error": RATIO_LIMIT})
        yield f"dropout_{base}", f"Along the rate, base model pretrained {how} dropout", figure
        groups[f"pretrained {how} dropout"] = {s.label: s.conditions[-1] for s in series}
        if series and series[0].x[0] == 0:
            groups[f"pretrained {how} dropout"]["none"] = series[0].conditions[0]
    figure = lines.training(results, groups, ("policy/first_ratio_error",), (RATIO_LIMIT,))
    yield "ratio", "The ratio, update by update", figure


def headline(results: Results) -> list[Compared]:
    zero = plainest(results, "ppo")
    asked = lambda s: s.label != MODES["independent"]  # the mode that the question is of comes first
    series = [
        (s, ", pretrained with it" * (b != "policy")) for b in BASES for s in sorted(rates(results, b), key=asked)
    ]
    pairs = [
        Pair(f"Dropout {s.label}, rate {s.x[-1]:g} − none{how}", s.conditions[-1], s.conditions[0])
        for s, how in series
        if zero
    ]
    return compare(results, pairs, ("score", "generation_log_perplexity", "clip_fraction"))


def texts(results: Results, world: str) -> list[str | None]:
    series = rates(results, "policy")
    return [
        c
        for c in (untrained(results), *(s.conditions[0] for s in series[:1]), *(s.conditions[-1] for s in series))
        if c
    ]
