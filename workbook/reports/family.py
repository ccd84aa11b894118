"""The on-policy learners side by side."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import dots, frontier, lines
from workbook.figures.names import names
from workbook.results.design import Compared, Pair, Series, compare, plainest, trained, untrained, worlds
from workbook.results.results import Results
from workbook.runs.algorithms import label

TITLE = "Is there anything special about PPO?"
QUESTION = """*A2C* makes one plain step where PPO makes several clipped ones; *TRPO* bounds exactly how far a step may
move the policy; *NLPO* is PPO under a mask; *REINFORCE* has no value network, only a mean; *RLOO* and *GRPO* compare
the responses to one prompt with each other. Here they train the same models on the same prompts, for as many episodes
on reviews, and on a task whose answer is known: write growing numbers."""
TERMS = """A learner that moves further from the base model (the KL) buys its score with it, so a lead in score alone
says little. On numbers the median over seeds counts, because a seed that does not learn should not hide four that
do."""
DETAIL = ("distinct_2", "repetition", "wobble", "drop", "rollout_score")
READ = {
    "frontier": """Further up at the same KL would be better; further up *and* further right may only be more of the
same.""",
    "levels": """Means over seeds.""",
    "wobble": """How far the training score jumps from update to update, how far it falls from its best level, how far
the seeds end apart.""",
    "against_ppo": """The differences behind the levels.""",
    "numbers": """Dotted: counted as learnt. Paid at the end instead of at each token, the value network has to find
out which token earned it.""",
    "finals": """Whatever a run was paid for, it is measured by the usual reward of its world. Further right is
better.""",
}
COUNTED = (("score", "PPO", 1), ("score", "PPO", -1))
LIMITS = (
    "A learning rate that was searched for was so on reviews, on one draw; on numbers settings were found by trial.",
    "On reviews episodes are equal, but not the computing; on numbers each learner has its own budget.",
    "Groups (RLOO, GRPO) see fewer different prompts for the same number of responses.",
    "GRPO divides by its group's standard deviation, a bias (`tests/test_policy_gradients.py`) that no run isolates.",
)
GOAL = 0.9  # median score over seeds from which a learner counts as having learnt a synthetic task
METRICS = ("score", "generation_log_perplexity", "human_log_perplexity")


def members(results: Results, world: str = "", payment: str = "reward") -> dict[str, str]:
    """Learner -> its plainest run in a world, paid by that reward."""
    table = trained(results, world)
    paid = table[[not world or p == payment for p in table.payment]]
    found = {a: plainest(results, a, world) for a in dict.fromkeys(paid.algorithm)}
    return {label(a): c if c in paid.index else paid.index[paid.algorithm == a][0] for a, c in found.items()}


def against(results: Results, world: str = "") -> list[Pair]:
    """Each learner minus PPO in the same world."""
    own = members(results, world)
    ppo = own.pop(label("ppo"), "")
    return [Pair(f"{name} − PPO", c, ppo) for name, c in own.items() if ppo]


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    points = {"": [Series(name, (c,), (0.0,), joined=False) for name, c in members(results).items()]}
    figure = frontier.frontier(results, points, [("kl_deployed", m) for m in METRICS[:2]])
    yield "frontier", "On reviews: what the score costs", figure
    rows = [c for c in (untrained(results), *members(results).values()) if c]
    yield "levels", "On reviews: levels", dots.arms(results, rows, METRICS, "On-policy learners on reviews")
    figure = dots.arms(results, rows, ("wobble", "drop", "spread:score"), "How steady training is")
    yield "wobble", "On reviews: steadiness", figure
    figure = dots.differences(
        results, against(results), ("score", "generation_log_perplexity", "wobble"), "Against PPO"
    )
    yield "against_ppo", "On reviews: against PPO", figure
    for world in (w for w in worlds(results) if w):
        table = trained(results, world)
        groups = {f"paid by: {p}": members(results, world, p) for p in dict.fromkeys(table.payment)}
        figure = lines.training(results, groups, ("objective/score",), (GOAL,))
        yield world, f"On {world}: training", figure
        runs = {names(results)[c]: c for c in table.index}
        figure = dots.finals(results, runs, GOAL, f"Scores on {world}")
        yield f"finals_{world}", f"On {world}: where they end", figure


def headline(results: Results) -> list[Compared]:
    return compare(results, against(results), ("score", "generation_log_perplexity", "kl_deployed"))


def texts(results: Results, world: str) -> list[str | None]:
    return [c for c in (untrained(results, world=world), *list(members(results, world).values())[:3]) if c]
