"""Truncation samplers as action masks."""

from __future__ import annotations

import math
from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import dots, frontier, lines
from workbook.figures.parts import short
from workbook.results import design
from workbook.results.results import Results

TITLE = "Do other samplers make better masks, and does an older copy's mask steady training?"
QUESTION = """A truncation sampler forbids tokens it finds unlikely, each rule in its own way. A report trained PPO
under each, with the current mask (*synced*) or an older copy's (*delayed*), one run each: ε, η and top-p beat no
truncation, mirostat is worst, delayed masks are steadier. What is left at equal cut?"""
TERMS = """*Kept*: the share of the policy's own probability that its mask lets through, 1 where nothing is cut."""
DETAIL = ("distinct_2", "repetition", "kept_mass", "kept_tokens", "wobble", "rollout_score")
READ = {
    "levels": """Mass kept says how much each rule cuts.""",
    "delayed": """Left of 0 in the last two: delayed masks are steadier.""",
    "mass": """Lines on top of each other: only the amount of truncation matters.""",
    "against_none": """Decoded plainly: what training under the mask leaves in the bare policy.""",
    "against_none_own": """Decoded through the mask that it trained with: the mask decodes as well as trains.""",
    "values": """To the right less is cut; none: PPO without a mask.""",
}
COUNTED = (("score", "no truncation", 1), ("wobble", "synced", -1))
LIMITS = ("The usual values are a larger model's; equal cuts lie on lines between tried ones, if far apart a guess.",)
PAPER = {"top_p": 0.95, "typical": 0.2, "epsilon": 1e-7, "eta": 3e-4, "mirostat": 4.0, "min_p": 0.05, "top_k": 50.0}
METRICS = ("score", "generation_log_perplexity", "distinct_2")


def rules(results: Results, world: str, decoding: str = "plain") -> list[design.Series]:
    """A series per rule along its values, synced, from what cuts most to what cuts least; last PPO without a mask."""
    found, base = [], design.plainest(results, "ppo", world)
    for s in design.lines(results, "mask_value", lambda r: r.mask_rule.replace("_", "-"), world, mask_delay=0):
        kept = {c: design.measure(results, c, "kept").mean() for c in s.conditions}
        points = sorted(zip(s.conditions, s.x), key=lambda p, kept=kept: kept[p[0]]) + [(base, math.inf)] * bool(base)
        found.append(design.Series(s.label, *map(tuple, zip(*points)), decoding))
    return found


def chosen(results: Results, world: str) -> dict[str, str]:
    """Rule -> its synced run at the paper's value (where that was not run: at the nearest)."""
    table = design.trained(results, world, mask_delay=0)
    near = [(abs(math.log(r.mask_value / PAPER[r.mask_rule])), c, r.mask_rule) for c, r in table.iterrows()]
    best = {rule: c for _, c, rule in sorted(near, reverse=True)}  # the nearest last, so it stays
    return {rule.replace("_", "-"): best[rule] for rule in dict.fromkeys(table.get("mask_rule", ()))}


def delayed(results: Results, world: str) -> list[design.Pair]:
    """Delayed minus synced, alike in everything else."""
    found = design.sweeps(results, "mask_delay", lambda r: r.mask_rule.replace("_", "-"), world=world)
    return [design.Pair(f"{s.label}, delayed − synced", s.conditions[-1], s.conditions[0]) for s in found if not s.x[0]]


def against(results: Results, world: str, decoding: str = "plain") -> list[design.Pair]:
    base = design.plainest(results, "ppo", world) or ""
    return [design.Pair(f"{n} − no truncation", c, base, decoding, "plain") for n, c in chosen(results, world).items()]


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    for world in design.worlds(results):
        end, on = (f"_{world}", f", on {world}") if world else ("", "")
        title, looks = f"Every sampler at its usual value{on}", {"decodings": dots.DECODED}
        yield f"levels{end}", title, dots.arms(results, texts(results, world), (*METRICS, "kept_mass"), title, **looks)
        for decoding, name in dots.DECODED.items():
            title, pairs = f"Against no truncation, {name}{on}", against(results, world, decoding)
            yield f"against_none_{decoding}{end}", title, dots.differences(results, pairs, METRICS, title)
        title, metrics = f"An older copy's mask, delayed − synced{on}", ("score", "wobble", "drop")
        yield f"delayed{end}", title, dots.differences(results, delayed(results, world), metrics, title)
        for metric in ("score", "generation_log_perplexity"):
            title = f"Along each sampler's own number: {short(metric)}{on}"
            yield f"values_{metric}{end}", title, lines.each(results, rules(results, world), metric, dots.DECODED)
        groups = {name: rules(results, world, d) for d, name in dots.DECODED.items()}
        axes = [("kept", m) for m in ("score", "generation_log_perplexity", "repetition")]
        yield f"mass{end}", f"At equal cut{on}", frontier.frontier(results, groups, axes)


def headline(results: Results) -> list[design.Compared]:
    steadier = design.compare(results, delayed(results, ""), ("score", "wobble"))
    return design.compare(results, against(results, ""), METRICS) + steadier


def texts(results: Results, world: str) -> list[str | None]:
    start = [design.untrained(results, world=world), design.plainest(results, "ppo", world)]
    return [*start, *chosen(results, world).values()]
