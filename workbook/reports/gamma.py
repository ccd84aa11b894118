"""The discount γ, and the whole response as one action."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import frontier, lines
from workbook.results.design import Compared, Pair, Series, compare, measure, untrained, usual
from workbook.results.design import lines as alike
from workbook.results.results import Results
from workbook.runs.algorithms import label

TITLE = "Does a language model need to see a response as many steps, or is one enough?"
QUESTION = """Each token can be a step, with the score, which comes only at the end, counting less for tokens further
from it: a discount γ below 1. With γ = 1 all tokens share the score alike, and a *bandit* goes all the way: the whole
response is one action. The paper (arXiv:2210.01241) claims that γ = 1 makes the language worse and γ = 0.5 the
score."""
TERMS = """With γ < 1 the score reaches token t of T multiplied by γ^(T−t), while the KL penalty is paid where it
arises: a smaller γ also shifts the effective ratio of reward to KL. Only equal measured KL tells the two apart. Where a
response may end, a smaller γ [shortens the texts](../../mini/length/verdict.md) as well."""
DETAIL = ("distinct_2", "length", "wobble", "drop")
READ = {
    "gamma": """From left to right the model looks further ahead, at the same β.""",
    "frontiers": """Each line is one γ with several β. If lines lie on each other above one point of the axis, γ did
nothing that another β would not have done.""",
}
LIMITS = (
    "A comparison at equal KL needs a sweep of four β for both γ; where one β was run there are only points.",
    "λ stays at its value where γ varies, so tokens are not treated quite alike at γ = 1; only the bandit does that.",
)
METRICS = ("score", "generation_log_perplexity", "human_log_perplexity", "kl_deployed")


def along(results: Results) -> list[Series]:
    """Each learner along γ at the usual β; one that has a single γ is a point."""
    at = {"kl_coef": usual(results, "kl_coef"), "kl_target": 0.0}
    found = alike(results, "gamma", lambda r: label(r.algorithm), **at)
    return [Series(s.label, s.conditions, s.x, joined=len(s.x) > 1) for s in found]


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    lengths = [measure(results, c, "length") for s in along(results) for c in s.conditions]
    free = len({v for values in lengths if values is not None for v in values}) > 1
    note = "" if free else "All responses are of one length. "
    note += "".join(f"The lone point is the {s.label}." for s in along(results) if not s.joined)
    metrics = (*METRICS[:3], *["length"] * free)
    figure = lines.sweep(results, along(results), metrics, "γ (discount per token)", note)
    yield "gamma", "Along γ", figure
    groups: dict[str, list[Series]] = {}
    for s in along(results):
        name = s.label if s.joined else next(iter(groups), s.label)
        algorithm = results.configs[s.conditions[0]]["run"]["algorithm"]
        of = (lambda r: f"γ = {r.gamma:g}") if s.joined else (lambda r: label(r.algorithm))
        own = alike(results, "kl_coef", of, kl_target=0.0, algorithm=algorithm)
        groups.setdefault(name, []).extend(Series(o.label, o.conditions, o.x, joined=len(o.x) > 1) for o in own)
    figure = frontier.frontier(results, groups, [("kl_deployed", m) for m in METRICS[:3]], named="β")
    yield "frontiers", "At equal distance from the base model", figure


def headline(results: Results) -> list[Compared]:
    whole = {s.label: dict(zip(s.x, s.conditions)).get(1.0) for s in along(results)}
    alone = [s for s in along(results) if not s.joined]  # one action: the title's question
    pairs = [Pair(f"{s.label} − PPO, both γ = 1", s.conditions[0], whole["PPO"]) for s in alone if whole.get("PPO")]
    for s in along(results):
        known = dict(zip(s.x, s.conditions))
        if s.joined and 1.0 in known:
            pairs += [Pair(f"{s.label}, γ = 1 − γ = {x:g}", known[1.0], c) for x, c in known.items() if x < 1]
    return compare(results, pairs, METRICS)


def texts(results: Results, world: str) -> list[str | None]:
    ends = [c for s in along(results) if s.joined for c in (s.conditions[0], s.conditions[-1])]
    return [c for c in (untrained(results), *ends) if c]
