"""Q-learning beside PPO."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import dots, lines
from workbook.figures.names import names
from workbook.results import design, training
from workbook.results.results import Results
from workbook.runs.algorithms import label

TITLE = "Can Q-learning train a language model?"
QUESTION = """DQN learns what each token is worth, from old episodes again and again. A report that followed up on NLPO
found that plain DQN does not learn and writes repetitive or random text, and that a KL penalty in the reward does not
help. Which part is at fault, and is it sparing with samples?"""
TERMS = """*Plainly*: sampled from softmax(Q / scale), which for a head of logits is a language model; *as trained*:
for a DQN its best token. Dotted: what decoding the untrained model greedily does: only a score right of it shows that
training has done something. Low log-perplexity is easy to foresee, high is noise, and both ends are bad."""
DETAIL = ("distinct_2", "repetition", "entropy_2", "length", "wobble", "tokens_per_gradient_step")
READ = {
    "parts": """Right of 0 in the first panel: a higher score.""",
    "penalty": """Too small changes nothing; too large drowns the score.""",
    "levels": """Left panel: right of the dotted line is better than greedy decoding alone makes the untrained model; in
the others right is worse: noise, and human reviews forgotten.""",
    "language": """Text that repeats itself lies right in repetition, left in distinct-2; dashed: as it was.""",
    "against_ppo": """Left of 0: PPO is better; a bar that crosses 0 shows no direction.""",
    "tokens": """Off-policy learning pays if its line climbs sooner by tokens sampled.""",
    "gradient_steps": """DQN's training texts hold its random exploration, which lowers them.""",
}
COUNTED = (("score", "untrained", 1), ("score", "PPO", 1))
LIMITS = (
    "The best variant was put together from trials on one draw; equal gradient steps are not equal computing.",
    "A longer training might help any of them; where a curve still climbs, its end is not its limit.",
)
GOAL = 0.9  # the score on a synthetic task that counts as having learnt it
METRICS = ("score", "generation_log_perplexity", "repetition")


def off_policy(results: Results, world: str = "") -> list[str]:
    """The runs that learn from a replay, in the report's order."""
    return [c for c in design.trained(results, world).index if "buffer" in results.configs[c]["learner"]]


def parts(results: Results) -> list[design.Pair]:
    """Every DQN against the first listed one."""
    first, *others = off_policy(results) or [""]
    same = [c for c in others if design.trained(results).algorithm[c] == design.trained(results).algorithm[first]]
    return [design.Pair(f"{names(results)[c]} − {names(results)[first]}", c, first) for c in same]


def against(results: Results) -> list[design.Pair]:
    ppo = design.plainest(results, "ppo")
    return [design.Pair(f"{names(results)[c]} − {names(results)[ppo]}", c, ppo) for c in off_policy(results) if ppo]


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    rows = [design.untrained(results), *off_policy(results), *design.trained(results, "", algorithm="ppo").index]
    looks = {"decodings": dots.DECODED, "trap": "greedy"}
    metrics = ("score", "generation_log_perplexity", "human_log_perplexity")
    yield "levels", "DQN beside PPO", dots.arms(results, rows, metrics, "DQN beside PPO", **looks)
    yield "language", "The text", dots.arms(results, rows, ("repetition", "distinct_2", "length"), "The text", **looks)
    for name, title, pairs in (("parts", "One part at a time", parts), ("against_ppo", "Against PPO", against)):
        yield name, title, dots.differences(results, pairs(results), METRICS, title)
    groups = {"": {names(results)[c]: c for c in [*off_policy(results)[:6], design.plainest(results, "ppo")] if c}}
    for unit, name in (("tokens", "tokens sampled"), ("gradient_steps", "gradient steps")):
        spent = {c: s for c in groups[""].values() if (s := training.used(results, c, unit)) is not None}
        figure = lines.training(results, groups, ("objective/score",), along=spent, x=name)
        yield unit, f"Score against {name}", figure
    swept = design.sweeps(results, "kl_coef", lambda r: ", ".join(filter(None, (label(r.algorithm), r["head"]))))
    swept = [s for s in swept if s.conditions[0] in off_policy(results)]
    metrics = (*METRICS[:2], "kl_deployed", "repetition")
    figure = lines.sweep(results, swept, metrics, "β (weight of the KL in the reward)", log=True)
    yield "penalty", "A KL penalty in the reward", figure
    for world in filter(None, design.worlds(results)):
        runs = {names(results)[c]: c for c in design.trained(results, world).index}
        yield f"finals_{world}", f"On {world}", dots.finals(results, runs, GOAL, f"Scores on {world}")


def headline(results: Results) -> list[design.Compared]:
    zero = design.untrained(results) or ""
    beside = [design.Pair(f"{names(results)[c]} − untrained", c, zero) for c in off_policy(results)]
    return design.compare(results, [*beside, *against(results)], METRICS)


def texts(results: Results, world: str) -> list[str | None]:
    first, ppo = design.untrained(results, world=world), design.plainest(results, "ppo", world)
    return [first, *off_policy(results, world)[:2], ppo]
