"""Texts of one length, and texts that may end."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import lines
from workbook.results.design import Compared, Pair, Series, compare, trained, untrained, usual
from workbook.results.design import lines as alike
from workbook.results.results import Results

TITLE = "What does it change when a response may end early?"
QUESTION = """In the paper's experiments every response has the same number of tokens: ending is forbidden before. An
earlier edition of this workbook let responses end, and found the reverse of what the paper says of discounting. Same
draws, same models, same learner: only whether a response may end differs."""
TERMS = """With a discount γ below 1 the score reaches early tokens only in part, unless the response is short: so a
smaller γ pays for ending. A shorter response also has fewer tokens that pull at the model."""
DETAIL = ("distinct_2", "kl_deployed_per_response", "wobble")
READ = {
    "length": """From left to right the model looks further ahead. If the two lines cross or run in opposite ways, a
finding about γ is a finding about the length.""",
}
LIMITS = (
    "The responses that may end do so within the same number of tokens; much longer texts are not tried.",
    "Only PPO, at one β; the learning rate was chosen at fixed length.",
)
METRICS = ("score", "human_log_perplexity", "generation_log_perplexity", "length")
HOW = {True: "may end", False: "fixed length"}


def along(results: Results) -> list[Series]:
    """PPO along γ, free to end and not, at the usual β."""
    at = {"kl_coef": usual(results, "kl_coef"), "kl_target": 0.0, "algorithm": "ppo"}
    return alike(results, "gamma", lambda r: HOW[r.min_new_tokens < r.max_new_tokens], **at)


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    yield "length", "Along γ", lines.sweep(results, along(results), METRICS, "γ (discount per token)")


def headline(results: Results) -> list[Compared]:
    pairs = []
    for s in along(results):
        known = dict(zip(s.x, s.conditions))
        if 1.0 in known:
            pairs += [Pair(f"{s.label}, γ = 1 − γ = {x:g}", known[1.0], c) for x, c in known.items() if x < 1]
    return compare(results, pairs, METRICS)


def texts(results: Results, world: str) -> list[str | None]:
    ends = [c for s in along(results) for c in (s.conditions[0], s.conditions[-1])] if len(trained(results)) else []
    return [untrained(results), *ends]
