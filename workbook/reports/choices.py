"""How the settings were chosen that every other run has, by rules stated before, on draws that nothing is counted on.

python -m workbook.reports.choices profiles/pilot/params.yaml    # what the rules choose from the committed table
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import lines
from workbook.results.design import Compared, Pair, Series, compare, trained, untrained, usual
from workbook.results.results import Results, load
from workbook.runs import checks
from workbook.runs.algorithms import label

TITLE = "Which settings do the runs have, and who chose them?"
QUESTION = """Whoever tunes until a claim holds has shown nothing. The length of responses is the papers' (all as long as
allowed). The learning rates and the strength β of the KL penalty were chosen here, by two rules stated beforehand, on draws
that no claim is judged on."""
TERMS = """*Rate*: of those tried at one β, the one with the highest score that leaves both its own text and that of people at
most 0.1 nats per token less likely than the untrained model does (the paper's runs with a penalty: 0.04); it must not be the
smallest or largest that was tried. *Strength*: the β at which PPO keeps the share
of its gain without a penalty that the paper's runs keep: 0.36, the mean of PPO's (0.605 − 0.489) / (0.847 − 0.489) and NLPO's
(0.637 − 0.489) / (0.859 − 0.489)."""
DETAIL = ("judge", "kl_deployed", "distinct_2")
READ = {
    "rates": """Further right is faster. What lies more than 0.1 above a dashed line in the second or third panel may not be
chosen.""",
    "strength": """Further right the penalty is stronger; at 0 there is none.""",
    "length": """The discount's effect on human text when responses may end, and when they may not.""",
}
LIMITS = (
    "Three draws: enough to find the order of magnitude of a rate, not its second digit.",
    "That human text counts too was added when PPO's runs had been seen: its fastest rates score more and forget it.",
)
SHARE = ((0.605 - 0.489) / (0.847 - 0.489) + (0.637 - 0.489) / (0.859 - 0.489)) / 2  # arXiv:2210.01241v2, Table 5
WORSE = 0.1  # nats per token
GUARDED = ("generation_log_perplexity", "human_log_perplexity")
METRICS = ("score", *GUARDED)


def _runs(results: Results, **fixed: float) -> dict[str, dict[float, str]]:
    """Algorithm -> learning rate -> condition, of fixed length and the usual discount."""
    usually = {"gamma": usual(results, "gamma"), "min_new_tokens": usual(results, "min_new_tokens")}
    found: dict[str, dict[float, str]] = {}
    for condition, row in trained(results, "", **usually, **fixed).iterrows():
        rate = results.configs[condition]["learner"]["learning_rate"]
        found.setdefault(row.algorithm, {})[rate] = condition
    return {name: dict(sorted(rates.items())) for name, rates in found.items()}


def _mean(results: Results, condition: str, metric: str) -> float:
    return float(results.values(condition, metric).mean())


def rates(results: Results) -> dict[str, float]:
    """Algorithm -> the learning rate that the rule chooses. Raises ValueError where none is allowed, or it is the grid's
    first or last."""
    limits, found = {m: _mean(results, untrained(results), m) + WORSE for m in GUARDED}, {}
    for algorithm, tried in _runs(results, kl_coef=usual(results, "kl_coef")).items():
        allowed = {r: c for r, c in tried.items() if all(_mean(results, c, m) <= most for m, most in limits.items())}
        best = max(allowed, key=lambda r, own=allowed: _mean(results, own[r], "score"), default=None)
        if best in (None, min(tried), max(tried)):
            said = ", ".join(f"{r:g}" for r in tried)
            raise ValueError(f"{algorithm}: expected a choice within the rates tried, {said}; found {best}")
        found[algorithm] = best
    return found


def strengths(results: Results) -> dict[float, float]:
    """beta -> share of the gain of PPO without a penalty that is left with it, at PPO's rate."""
    rate, score = rates(results)["ppo"], lambda c: _mean(results, c, "score")
    tried = {b: _runs(results, kl_coef=b).get("ppo", {}).get(rate) for b in sorted(set(trained(results, "").kl_coef))}
    tried = {b: score(c) for b, c in tried.items() if c}
    start = score(untrained(results))
    return {b: (s - start) / (tried[0.0] - start) for b, s in tried.items() if b}


def strength(results: Results) -> float:
    """The beta that the rule chooses."""
    shares = strengths(results)
    return min(shares, key=lambda b: abs(shares[b] - SHARE))


def _series(results: Results) -> list[Series]:
    tried = _runs(results, kl_coef=usual(results, "kl_coef"))
    return [Series(label(name), tuple(found.values()), tuple(found)) for name, found in tried.items()]


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    yield "rates", "Learning rates", lines.sweep(results, _series(results), METRICS, "learning rate")
    rate, every = rates(results)["ppo"], sorted(set(trained(results, "").kl_coef))
    found = {b: c for b in every if (c := _runs(results, kl_coef=b).get("ppo", {}).get(rate))}
    series = [Series("PPO", tuple(found.values()), tuple(found))]
    yield "strength", "Strength of the KL penalty", lines.sweep(results, series, (*METRICS, "kl_deployed"), "β")
    series = [Series(name, tuple(g.values()), tuple(g)) for name, g in _lengths(results).items()]
    yield (
        "length",
        "The length",
        lines.sweep(results, series, ("human_log_perplexity", "length"), "γ (discount per token)"),
    )


def _lengths(results: Results) -> dict[str, dict[float, str]]:
    """May end, or not -> discount -> PPO, of the runs that vary it."""
    found: dict[str, dict[float, str]] = {}
    for condition, row in trained(results, "", algorithm="ppo").iterrows():
        if row.gamma != usual(results, "gamma"):
            how = "may end" if row.min_new_tokens < row.max_new_tokens else "fixed length"
            found.setdefault(how, {})[float(row.gamma)] = condition
    return {how: dict(sorted(group.items())) for how, group in found.items()}


def headline(results: Results) -> list[Compared]:
    pairs = [
        Pair(f"{how}: γ = 1 against γ = {x:g}", group[1.0], c)
        for how, group in _lengths(results).items()
        for x, c in group.items()
        if x < 1
    ]
    return compare(results, pairs, ("human_log_perplexity", "length"))


def texts(results: Results, world: str) -> list[str | None]:
    return [untrained(results), *(c for group in _lengths(results).values() for c in group.values())]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m workbook.reports.choices profiles/pilot/params.yaml", file=sys.stderr)
        return 2
    params = checks.load(arguments[0])
    results = load(params, list(params.all_runs))
    for name, rate in rates(results).items():
        print(f"learning rate of {name}: {rate:g}")
    for beta, share in strengths(results).items():
        print(f"beta {beta:g}: {share:.2f} of the gain without a penalty is left")
    print(f"beta: {strength(results):g}, the closest to {SHARE:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
