"""Runs whose outcome is known beforehand: whether the chain from training to the ledger's word can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import dots
from workbook.figures.names import names
from workbook.results.design import Compared, Pair, compare, trained, untrained
from workbook.results.results import Results

TITLE = "Does the ledger find what was planted?"
QUESTION = """A ledger that judges others should be tried on what is known. Three claims are planted: one that is
true, one where there is nothing to find, and one that is the wrong way round. The ledger has to say *holds*, *too
small* and *opposite*, by the same rule, from runs of the same pipeline."""
TERMS = """True: PPO without a KL penalty scores more than the untrained model. Nothing there: a repetition of PPO,
the same setting with other random numbers, against another. Reversed: PPO that is paid 1 minus the score is said to
score more."""
DETAIL = ("distinct_2", "length")
READ = {
    "levels": """A repetition lies as far from another as chance alone moves a run on one draw; the reversed run
lies on the other side of the dashed line.""",
}
LIMITS = ("Large planted effects are easy to find; how small an effect is found stands beside each claim.",)
METRICS = ("score", "judge", "human_log_perplexity")


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    yield "levels", "Levels", dots.arms(results, list(trained(results).index), METRICS, "Runs with a known outcome")


def headline(results: Results) -> list[Compared]:
    base = untrained(results)
    pairs = [Pair(f"{names(results)[c]} − {names(results)[base]}", c, base) for c in trained(results).index if base]
    return compare(results, pairs, METRICS[:2])


def texts(results: Results, world: str) -> list[str | None]:
    return [untrained(results), *trained(results).index]
