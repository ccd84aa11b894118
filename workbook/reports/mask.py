"""NLPO's mask, part by part."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import dots, frontier, lines
from workbook.figures.names import names
from workbook.results import design
from workbook.results.results import Results
from workbook.runs.algorithms import label

TITLE = "Does NLPO's mask help, and what in it?"
QUESTION = """NLPO is PPO that may only choose among tokens that an older copy of itself finds likely: a *mask* of
those making up a share p of the probability, refreshed every μ updates. The paper claims that it scores higher than
PPO, that p and μ have a best value, and that the gain is what the mask has learnt. It also *decodes* through it."""
TERMS = """*Plainly*: sampled from the bare policy, the same for all. *As trained*: what the method itself would do. p
= 1 keeps every token and is PPO, μ = 1 is PPO in its own nucleus, both to the bit; μ = ∞ never refreshes, as the
paper's released code does. Dip: the training score's change after a refresh."""
DETAIL = ("distinct_2", "last_cycle", "dip", "wobble")
READ = {
    "training": """A triangle: the first rollout after a refresh. Dips that follow them are its.""",
    "parts": "Each control lacks a part: refreshing, knowledge (random mask), memory (PPO's own top-p), a right ratio.",
    "controls": "The same runs, decoded in the two ways.",
    "frontiers": "Better is higher at the same KL.",
    "p": "Between the lines lies what decoding through the mask does; the *plain* line is what training under it does.",
    "refresh": "As along p; at ∞ never refreshed; the longest other μ still refreshes three times.",
}
LIMITS = ("The best p is chosen afterwards; only the ledger's tests allow for that (the design's from p = 0.3 on).",)
METRICS = ("score", "generation_log_perplexity", "judge")


def usual_mask(results: Results, but: str) -> dict[str, object]:
    """What NLPO's runs have in common while one setting of the mask varies."""
    values = {k: design.usual(results, k) for k in ("kl_coef", "mask_top_p", "mask_min_tokens")}
    values |= {"kl_target": 0.0, "mask": "policy", "algorithm": "nlpo", "refresh": design.usual(results, "sync_every")}
    return {k: v for k, v in values.items() if k != but}


def parts(results: Results) -> list[design.Pair]:
    """NLPO minus each of its controls, and minus and beside PPO whatever else cuts tokens away."""
    nlpo, ppo, said = design.plainest(results, "nlpo"), design.plainest(results, "ppo"), names(results)
    if not nlpo or not ppo:
        return []
    found = [design.Pair(f"{said[nlpo]} − {said[ppo]}, {name}", nlpo, ppo, d) for d, name in dots.DECODED.items()]
    found += [design.Pair(f"{said[c]}, decoded as trained − plainly", c, c, "own", "plain") for c in (nlpo, ppo)]
    table = design.trained(results, "", kl_coef=design.usual(results, "kl_coef"), kl_target=0.0)
    controls = [c for c in table.index if table["mask"][c] == "random" or table.refresh[c] == float("inf")]
    cut = table.index[(table.top_p < 1).astype(bool)]
    versus = [(nlpo, c) for c in controls] + [(c, ppo) for c in cut] + [(nlpo, c) for c in cut]
    return found + [design.Pair(f"{said[a]} − {said[b]}", a, b) for a, b in versus]


def along(results: Results, field: str) -> list[design.Series]:
    """NLPO along one setting of its mask; at 1 stands the run of PPO that is NLPO there, to the bit."""
    cut = {"mask_top_p": 1.0, "refresh": design.usual(results, "mask_top_p")}[field]
    at = {"kl_coef": design.usual(results, "kl_coef"), "kl_target": 0.0, "algorithm": "ppo", "top_p": cut}
    same = {1.0: c for c in design.trained(results, "", **at).index[:1]}  # noqa: B035 (none or one)
    found = design.lines(results, field, lambda r: "NLPO", **usual_mask(results, field))
    points = [dict(sorted({**dict(zip(s.x, s.conditions)), **same}.items())) for s in found]
    return [design.Series("NLPO", tuple(p.values()), tuple(p)) for p in points]


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    yield "parts", "What each part does", dots.differences(results, pairs := parts(results), METRICS, "Part by part")
    series = design.with_decoding(along(results, "mask_top_p"), **dots.DECODED)
    yield "p", "Along p", lines.sweep(results, series, METRICS[:2], "p (mass kept)")
    series = design.with_decoding(swept := along(results, "refresh"), **dots.DECODED)
    yield "refresh", "Along μ", lines.sweep(results, series, (*METRICS[:2], "last_cycle", "dip"), "μ (updates)")
    every = {f"refreshed every {design.said(x)}": {"NLPO": c} for s in swept for c, x in zip(s.conditions, s.x)}
    yield "training", "In training", lines.training(results, every, ("objective/score",))
    runs, looks = [c for p in pairs for c in (p.second, p.first)], {"decodings": dots.DECODED}
    yield "controls", "Levels", dots.arms(results, runs, METRICS, "The levels", **looks)
    cut = lambda r: f"{label(r.algorithm)}, top-p {r.mask_top_p or r.top_p:g}"
    curves = design.sweeps(results, "kl_coef", cut, kl_target=0.0)
    groups = {n: design.with_decoding(curves, **{d: n}) for d, n in dots.DECODED.items() if curves}
    figure = frontier.frontier(results, groups, [("kl_deployed", m) for m in METRICS[:2]], named="β")
    yield "frontiers", "At equal distance from the base model", figure


def headline(results: Results) -> list[design.Compared]:
    return design.compare(results, parts(results), METRICS)


def texts(results: Results, world: str) -> list[str | None]:
    return [design.untrained(results), *(p.first for p in parts(results))]
