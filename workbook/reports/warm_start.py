"""Supervised training before reinforcement learning."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import dots
from workbook.figures.names import names
from workbook.results.design import Compared, Pair, compare, design, plainest, trained, untrained
from workbook.results.results import Results

TITLE = "Should reinforcement learning start from a model that has seen good examples?"
QUESTION = """Before reinforcement learning, a model can be trained to imitate good examples: a *warm start*. The paper
claims that the two together beat either alone, that reinforcement learning alone beats imitation alone on movie
reviews, and that a better start gives a better end. Is the gain the start's, or only that of training longer?"""
TERMS = """Runs that continue another start from its trained policy (same seed). The KL penalty, and the KL that is
reported, is to the model that the run itself started from. *Longer*: the same learner with more updates, in one
stage."""
DETAIL = ("distinct_2", "length", "wobble")
READ = {
    "scores": """Right is better. Dashed: the untrained model.""",
    "language": """To the left: texts easier to foresee, human reviews less forgotten, word pairs less varied.""",
    "pairs": """Rows marked equal compute: whether a warm start adds more than the same number of further steps
would.""",
}
LIMITS = (
    "One start is compared with none; how the end depends on the quality of the start needs several.",
    "Equal compute counts gradient steps; one of imitation and one of reinforcement learning cost different time.",
    "Texts of supervised policies may end, those of all others have as many tokens as are allowed "
    "([what that changes](../../synthesis/supervised_length.md)).",
)
METRICS = ("score", "judge", "generation_log_perplexity")


def pairs(results: Results) -> list[Pair]:
    """Every run that continues another: against the same learner from scratch, against its start, and against longer
    runs."""
    table, said = trained(results, ""), names(results)
    continued = [c for c in table.index if table.start[c]]
    found = []
    for c in continued:
        alone = [d for d in table.index if not table.start[d] and table.algorithm[d] == table.algorithm[c]]
        found += [Pair(f"{said[c]} − {said[d]}", c, d) for d in [*alone, table.start[c]]]
    starts = dict.fromkeys(table.start[c] for c in continued)
    learners = dict.fromkeys(table.algorithm[c] for c in continued)
    for start in (s for s in starts if s in table.index):
        found += [Pair(f"{said[d]} − {said[start]}", d, start) for a in learners if (d := plainest(results, a))]
        longer = [
            d
            for d in table.index
            if table.algorithm[d] == table.algorithm[start] and table.updates[d] > table.updates[start]
        ]
        found += [Pair(f"{said[c]} − {said[d]}, equal compute", c, d) for c in continued for d in longer]
    return found


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    figure = dots.arms(results, results.conditions, ("score", "judge", "judge_2"), "Reward and judges")
    yield "scores", "The starts", figure
    metrics = ("generation_log_perplexity", "human_log_perplexity", "distinct_2")
    figure = dots.arms(results, results.conditions, metrics, "Language")
    yield "language", "Their language", figure
    figure = dots.differences(results, pairs(results), METRICS, "One start against another")
    yield "pairs", "With and without", figure


def headline(results: Results) -> list[Compared]:
    return compare(results, pairs(results), METRICS)


def texts(results: Results, world: str) -> list[str | None]:
    table = design(results)
    continued = [c for c in results.conditions if table.start[c]][:1]
    shown = [untrained(results), *(table.start[c] for c in continued), plainest(results, "ppo"), *continued]
    return [c for c in shown if c]
