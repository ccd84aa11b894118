"""The size of the action space."""

from __future__ import annotations

import math
from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import lines
from workbook.results.design import Compared, Pair, Series, compare, design, is_untrained, untrained, usual
from workbook.results.design import lines as alike
from workbook.results.results import Results
from workbook.runs.algorithms import label

TITLE = "Is it the size of the vocabulary that makes reinforcement learning of text unstable?"
QUESTION = """At every step a language model chooses among all the tokens there are: hundreds here, tens of thousands
in large models. The paper takes this size of the *action space* for a core cause of instability and did not test it.
Here only the n most frequent tokens exist, in training and in use, and everything else stays. Is training steadier
with fewer?"""
TERMS = """With fewer tokens the untrained model already scores differently, so gains are compared, not levels: each
over the untrained model with the same tokens. *Wobble*: how unsteady the training score is; *fall*: how far it ends
below its peak."""
DETAIL = ("gain:score", "gradient_norm", "wobble", "drop")
READ = {
    "vocabulary": """The last value is the whole vocabulary. If the claim holds, spread, wobble, gradient norm and
fall rise to the right while the gain does not.""",
}
LIMITS = (
    "The largest vocabulary here is small beside those of published models; nothing is shown beyond it.",
    "With few tokens the reviews themselves cannot be written, so the task changes with the size as well.",
)


def sizes(results: Results) -> list[Series]:
    """Learners along the number of tokens that exist (all: their number, mean over draws), and the untrained model of
    each."""
    known = [m["policy"]["vocabulary"] for m in results.models.values() if "vocabulary" in m.get("policy", {})]
    everything = float(round(sum(known) / len(known))) if known else math.inf
    found = []
    for s in alike(
        results, "vocabulary", lambda r: label(r.algorithm), kl_coef=usual(results, "kl_coef"), kl_target=0.0
    ):
        points = sorted((n or everything, c, untrained(results, int(n)) or "") for n, c in zip(s.x, s.conditions))
        x, conditions, base = zip(*points)
        found.append(Series(s.label, conditions, x, base=base))
    table = design(results)[is_untrained(results)]
    if starts := sorted((float(table.vocabulary[c] or everything), c) for c in table.index):
        found.append(Series("untrained, same tokens", tuple(c for _, c in starts), tuple(n for n, _ in starts)))
    return found


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    metrics = ("score", "gain:score", "spread:score", "wobble", "gradient_norm", "drop")
    figure = lines.sweep(results, sizes(results), metrics, "tokens that exist")
    yield "vocabulary", "Along the number of tokens", figure


def headline(results: Results) -> list[Compared]:
    swept = [s for s in sizes(results) if s.base]
    pairs = [
        Pair(f"{s.label}, all tokens − {x:g}", s.conditions[-1], c)
        for s in swept
        for x, c in list(zip(s.x, s.conditions))[:-1]
    ]
    return compare(results, pairs, ("wobble", "gradient_norm", "drop"))


def texts(results: Results, world: str) -> list[str | None]:
    return list(dict.fromkeys(c for s in sizes(results)[::-1] for c in (s.conditions[0], s.conditions[-1])))
