"""How the settings were chosen that other runs have, by two rules, on draws that nothing is counted on."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import lines
from workbook.figures.names import digits
from workbook.results.choosing import GUARDED, at_ppos_rate, rates, strength, strengths, tried
from workbook.results.design import Compared, Pair, Series, compare, trained, untrained, usual
from workbook.results.results import Results
from workbook.results.tables import join
from workbook.runs.algorithms import label

TITLE = "Which settings do the runs have, and who chose them?"
QUESTION = """Whoever tunes until a claim holds has shown nothing. The length of responses is the papers' (all as
long as allowed). The learning rates and the strength β of the KL penalty were chosen here, by two rules, on
draws that no claim is judged on; they were fixed before the first draw that counts."""
TERMS = """*Rate*: of those tried at one β, the one with the highest score that leaves both its own text and that of
people at most 0.1 nats per token less likely than the untrained model does (the paper's runs with a penalty: 0.04);
it must not be the smallest or largest that was tried. *Strength*: the β at which PPO keeps the share of its gain
without a penalty that the paper's runs keep: 0.36, the mean of PPO's (0.605 − 0.489) / (0.847 − 0.489) and NLPO's
(0.637 − 0.489) / (0.859 − 0.489)."""
DETAIL = ("distinct_2", "length")
READ = {
    "rates": """Further right is faster. What lies more than 0.1 above a dashed line in the second or third panel
may not be chosen.""",
    "strength": """Further right the penalty is stronger; at 0 there is none.""",
    "length": """The discount's effect on human text when responses may end, and when they may not.""",
}
LIMITS = (
    "A few draws: enough to find the order of magnitude of a rate, not its second digit.",
    "β was tried at one rate of PPO's, the one that the rule chose when this ran first; were another chosen, it would "
    "say so.",
)
METRICS = ("score", *GUARDED)


def lengths(results: Results) -> dict[str, dict[float, str]]:
    """May end, or not -> discount -> PPO, of the runs that vary it."""
    found: dict[str, dict[float, str]] = {}
    for condition, row in trained(results, "", algorithm="ppo").iterrows():
        if row.gamma != usual(results, "gamma"):
            how = "may end" if row.min_new_tokens < row.max_new_tokens else "fixed length"
            found.setdefault(how, {})[float(row.gamma)] = condition
    return {how: dict(sorted(group.items())) for how, group in found.items()}


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    found = tried(results).items()
    series = [Series(label(name), tuple(runs.values()), tuple(round(r * 1e4, 6) for r in runs)) for name, runs in found]
    said = ", ".join(f"{label(name)} {digits(rate)}" for name, rate in rates(results).items())
    yield "rates", f"Learning rates chosen: {said}", lines.sweep(results, series, METRICS, "learning rate, 10⁻⁴")
    runs, shares = at_ppos_rate(results), strengths(results)
    said = ", ".join(f"β = {b:g} leaves {share:.2f}" for b, share in shares.items())
    figure = lines.sweep(results, [Series("PPO", tuple(runs.values()), tuple(runs))], (*METRICS, "kl_deployed"), "β")
    yield "strength", f"Strength chosen: β = {strength(results):g} ({said})", figure
    if groups := lengths(results).items():
        series = [Series(name, tuple(group.values()), tuple(group)) for name, group in groups]
        figure = lines.sweep(results, series, ("human_log_perplexity", "length"), "γ (discount per token)")
        yield "length", "What the length turns round", figure


def alone(results: Results) -> str:
    """The answer where the length was not varied, so that the headline is empty."""
    said = join([f"{digits(rate)} for {label(name)}" for name, rate in rates(results).items()])
    return f"The two rules below chose the learning rates {said}, and β = {strength(results):g}."


def headline(results: Results) -> list[Compared]:
    groups = lengths(results).items()
    pairs = [Pair(f"{h}, γ = 1 − γ = {x:g}", g[1.0], c) for h, g in groups for x, c in g.items() if x < 1]
    return compare(results, pairs, ("human_log_perplexity", "length"))


def texts(results: Results, world: str) -> list[str | None]:
    return [untrained(results), *(c for group in lengths(results).values() for c in group.values())]
