"""The answer of each ablation report: two sentences whose every number is computed from the tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlnlp import results as run_results
from rlnlp import second_paper, stats, tables
from rlnlp.ablations import (
    ALGORITHM,
    LONGER,
    RATIO_LIMIT,
    START,
    WITHOUT,
    Series,
    at_equal_kl,
    budget_lines,
    contrast,
    dropout_lines,
    estimate,
    gamma_lines,
    mask_lines,
    matched_contrast,
    measure,
    sampling_grid,
    sampling_rows,
    trained,
    untrained,
    usual,
    vocabulary_lines,
)
from rlnlp.results import Results
from rlnlp.tables import join, signed

SAID = {
    "score": "the score", "judge": "the judge's opinion", "judge_2": "the second judge's opinion",
    "generation_log_perplexity": "the log-perplexity of the texts",
    "human_log_perplexity": "the log-perplexity on human reviews",
    "wobble": "the wobble of training", "gradient_norm": "the gradient norm", "drop": "the fall from the peak",
    "clip_fraction": "the clipped share", "gain:score": "the gain in score", "repetition": "the repetition", "kl_deployed": "the KL",
}  # fmt: skip


Pair = tuple[str, str, str, str, str]  # who, first, second, and the decoding of each


def answer(results: Results, name: str) -> str:
    """The report's answer: two sentences of numbers computed from the tables; before them, in bold, runs that are missing.

    n: seeds; brackets: 95 % t intervals, of differences paired by seed. "rises", "falls": the interval excludes 0.
    """
    sentences = [s for s in _ANSWERS[name](results) if s]
    n = len(results.seeds)
    counted = f"n = {n} seed{'s' if n > 1 else ''}" + (
        "; in brackets: 95 % intervals" if n > 1 else ", so no intervals"
    )
    if sentences:
        sentences[-1] = f"{sentences[-1]} ({counted})"
    else:
        sentences = [
            f"The conditions that would answer it were not run in profile `{results.params.profile}` ({counted})"
        ]
    said = ". ".join(s[0].upper() + s[1:] for s in sentences)
    return f"{missing(results)}**Answer.** {said}."


def missing(results: Results) -> str:
    """The listed runs that are not there, in bold and first; empty if none."""
    if not results.missing:
        return ""
    some = "; ".join(f"`{c}` (stage {run_results.stage_of(results.params, c)})" for c in results.missing)
    one = len(results.missing) == 1
    count = f"{len(results.missing)} of {len(results.missing) + len(results.conditions)} runs of this report"
    verb, them = ("is", "it") if one else ("are", "them")
    return f"**MISSING: {count} {verb} not there: {some}. Nothing below includes {them}.**\n\n"


def told(results: Results, metric: str, pairs: Sequence[Pair]) -> str:
    """ "the score rises for PPO (+0.10 [0.05, 0.15]) and is not told apart for NLPO (...)"; empty if no pair was run."""
    groups: dict[str, list[str]] = {}
    for who, first, second, decoding, other in pairs:
        found = contrast(results, first, second, metric, decoding, other)
        if found is None:
            continue
        numbers = f"{who + ' ' if who else ''}{signed(found.difference, found.low, found.high)}"
        groups.setdefault(_verb(found), []).append(numbers)
    parts = [f"{verb} ({'; '.join(numbers)})" for verb, numbers in groups.items()]
    return f"{SAID[metric]} {join(parts)}" if parts else ""


def _verb(found: stats.Paired) -> str:
    if found.low is None or found.n < 3:
        return "cannot be judged from so few seeds"
    return "rises" if found.low > 0 else "falls" if found.high < 0 else "shows no clear difference"


def _told(results: Results, lead: str, metrics: Sequence[str], pairs: Sequence[Pair]) -> str:
    parts = [t for t in (told(results, m, pairs) for m in metrics) if t]
    return f"{lead} {'; '.join(parts)}" if parts else ""


def _at(series: Series | None, x: float) -> str:
    return series.conditions[series.x.index(x)] if series is not None and x in series.x else ""


def _gamma(results: Results) -> list[str]:
    swept = [s for s in gamma_lines(results) if s.joined]
    values = sorted({x for s in swept for x in s.x})
    below = [x for x in values if x < 1]
    if not below:
        return []
    usual_value = min(below, key=lambda x: (abs(x - 0.95), x))  # the paper's text
    metrics = ("score", "generation_log_perplexity")
    published = (*metrics, "human_log_perplexity")

    def against(x: float) -> list[Pair]:
        return [(s.label, _at(s, x), _at(s, usual_value), "plain", "plain") for s in swept if x != usual_value]

    equal = [
        f"{SAID[m]} {_verb(r)} ({signed(r.difference, r.low, r.high)})"
        for m in metrics
        if (r := at_equal_kl(results, m)) is not None
    ]
    bandit = next((s.conditions[0] for s in gamma_lines(results) if not s.joined), "")
    full = next((_at(s, 1.0) for s in swept if s.label == "PPO"), "")
    arm = _told(
        results,
        "one return per response instead of one per token, both at γ = 1:",
        metrics,
        [("", bandit, full, "plain", "plain")],
    )
    short = _told(results, f"with γ = {below[0]:g} instead of {usual_value:g},", metrics, against(below[0]))
    full_text = _told(results, f"with γ = 1 instead of {usual_value:g},", published, against(1.0))
    at_equal = (
        f"compared at equal measured KL along β (PPO, γ = 1 against {usual(results, 'gamma'):g}), {join(equal)}"
        if equal
        else ""
    )
    return ["; ".join(p for p in (full_text, at_equal) if p), "; ".join(p for p in (short, arm) if p)]


def _dropout(results: Results) -> list[str]:
    errors, changes = [], []
    for base, swept in dropout_lines(results).items():
        off, score, rates = [], [], []
        for s in swept:
            if len(s.x) < 2 or s.x[0] != 0:
                continue
            worst, rates = s.conditions[-1], [*rates, s.x[-1]]
            error, lost = measure(results, worst, "first_ratio_error"), results.values(worst, "diverged")
            if error is not None:
                off.append(f"{tables.number(estimate(error, 'first_ratio_error').estimate)} ({s.label})")
            if (change := contrast(results, worst, s.conditions[0], "score")) is not None:
                ended = f"; {int(lost.sum())} of {len(lost)} runs diverged" if lost is not None else ""
                score.append(f"{signed(change.difference, change.low, change.high)} ({s.label}{ended})")
        at = f"at dropout {max(rates):g} on a base model {base}" if rates else ""
        errors += [f"{at}: {join(off)}"] if off else []
        changes += [f"{at}: {join(score)}"] if score else []
    lead = f"the first minibatch's ratio should be 1 within {RATIO_LIMIT:g} and is off by"
    return [
        f"{lead}, {'; '.join(errors)}" if errors else "",
        f"the score changes by, {'; '.join(changes)}" if changes else "",
    ]


def _mask(results: Results) -> list[str]:
    parts = []
    for s in mask_lines(results):
        found = {x: results.values(c, "score", s.decoding) for x, c in zip(s.x, s.conditions)} if s.joined else {}
        found = {x: v for x, v in found.items() if v is not None}
        if len(found) > 1:
            best = max(found, key=lambda x: found[x].mean())
            parts.append(
                f"at p = {best:g} {s.label.split(', ')[-1]} ({found[best].mean():.3f}" + _no_mask(found, best) + ")"
            )
    first = f"of the p that were run, NLPO's mean score is highest {join(parts)}" if parts else ""
    controls = {
        "PPO": "ppo_kl_default", "NLPO with a mask never refreshed": "nlpo_initial", "a random mask": "nlpo_random",
        "PPO sampling by top-p": "ppo_top_p",
    }  # fmt: skip
    plain = [(f"against {said}", "nlpo_kl_default", c, "plain", "plain") for said, c in controls.items()]
    own = _told(results, "and decoding the same NLPO through its mask instead of plainly,", ("score",),
                [("", "nlpo_kl_default", "nlpo_kl_default", "own", "plain")])  # fmt: skip
    mask = _told(results, "with NLPO, all decoded plainly,", ("score",), plain)
    return [first, ", ".join(p for p in (mask, own) if p)]


def _no_mask(found: dict[float, np.ndarray], best: float) -> str:
    if best == 1 or 1.0 not in found:
        return ""
    gap = stats.paired(found[best], found[1.0])
    return f"; {signed(gap.difference, gap.low, gap.high)} against p = 1"


def _budget(results: Results) -> list[str]:
    swept = {trained(results).algorithm[s.conditions[0]]: s for s in budget_lines(results)}
    learnt, shown = {ALGORITHM[a]: swept[a] for a in ("ppo", "nlpo") if a in swept}, swept.get("supervised")
    metrics, first, second = ("score", "judge", "judge_2"), "", ""
    small = sorted({x for s in learnt.values() for x in s.x if 0 < x < 1})
    if small and shown is not None:
        many = max(shown.x)
        pairs = [(name, _at(s, small[0]), _at(shown, many), "plain", "plain") for name, s in learnt.items()]
        labels = f"reinforcement learning from {small[0]:.0%} of the labels"
        lead = f"{labels}, instead of supervised training on {many:.0%} of the positive reviews:"
        first = _told(results, lead, metrics, pairs)
    full = []
    for algorithm, s in swept.items():
        some = [x for x in s.x if x > 0]
        if len(some) > 1:
            full.append((ALGORITHM[algorithm], _at(s, max(some)), _at(s, min(some)), s.decoding, s.decoding))
    if full:
        second = _told(
            results, "with all of the labelled reviews instead of the smallest share above none,", metrics, full
        )
    return [first, second]


def _warm_start(results: Results) -> list[str]:
    metrics = ("score", "judge", "generation_log_perplexity")
    without = [(ALGORITHM[s.removeprefix("sup_")], s, WITHOUT[s], "plain", "plain") for s in START]
    longer = [
        (f"{ALGORITHM[s.removeprefix('sup_')]} against {o}", s, o, "plain", "plain")
        for s, others in LONGER.items()
        for o in others
    ]
    return [_told(results, "started from a supervised model instead of the base model,", metrics, without),
            _told(results, "against as much computing spent on one stage alone,", metrics[:2], longer)]  # fmt: skip


def _sampling(results: Results) -> list[str]:
    parts = []
    for metric, name in (
        ("gain:score", "the gain in score over the untrained model"),
        ("generation_log_perplexity", SAID["generation_log_perplexity"]),
    ):
        found = matched_contrast(results, metric)
        if found is not None:
            parts.append(f"{name} {_verb(found)} ({signed(found.difference, found.low, found.high)})")
    first = f"decoding as in training instead of by another of the samplers, {join(parts, ', and ')}" if parts else ""
    said = []
    for decoding in ("greedy", "beam"):
        gaps = []
        for row in sampling_rows(results):
            cells = sampling_grid(results, "gain:score")
            if (row, decoding) in cells and (row, row) in cells:
                gaps.append(cells[row, decoding] - cells[row, row])
        if gaps:
            found = stats.one_sample(np.mean(gaps, axis=0))
            said.append(f"{decoding} {signed(found.difference, found.low, found.high)}")
    return [first, f"instead of decoding as in training, that gain changes with {join(said)}" if said else ""]


def _vocabulary(results: Results) -> list[str]:
    swept = next((s for s in vocabulary_lines(results) if s.base), None)
    if swept is None or len(swept.x) < 2:
        return []
    few, many = swept.conditions[0], swept.conditions[-1]
    lead = f"with the {swept.x[0]:g} most frequent tokens instead of all"
    pair = [("", few, many, "plain", "plain")]
    return [_told(results, f"{lead},", ("gain:score", "generation_log_perplexity"), pair),
            _told(results, "as to stability,", ("wobble", "gradient_norm", "drop"), pair)]  # fmt: skip


def _samplers(results: Results) -> list[str]:
    masks = second_paper.mask_pairs(results)
    plain = _told(
        results,
        "under a mask in training instead of none, decoded plainly,",
        ("score", "generation_log_perplexity"),
        [(said.removesuffix(" − no truncation"), *rest) for said, *rest in masks],
    )
    own = _told(
        results,
        "decoded through the mask,",
        ("score",),
        [(said.removesuffix(" − no truncation"), *rest) for said, *rest in second_paper.mask_pairs(results, decoding="own")],
    )
    late = _told(
        results,
        "with the mask of an older copy instead of the policy's own,",
        ("wobble", "score"),
        [(said.partition(":")[0], *rest) for said, *rest in second_paper.delay_pairs(results)],
    )
    mass = [
        f"{name} {signed(found.difference, found.low, found.high)}"
        for name, found in second_paper.at_equal_mass(results, "score").items()
    ]
    along = f"at equal kept mass the score differs from top-p's by {'; '.join(mass)}" if mass else (
        "" if second_paper.sweeps(results) else "no sampler's values were swept on reviews in this profile, so nothing is compared at equal kept mass"
    )
    return ["; ".join(p for p in (plain, own) if p), "; ".join(p for p in (late, along, _best_on_numbers(results)) if p) if masks else ""]


def _best_on_numbers(results: Results) -> str:
    """Where along each sampler's values the score on numbers is highest."""
    found = second_paper.best_values(results, world="numbers")
    said = [f"{n} {'none' if x == second_paper.NONE else f'{x:g}'} ({v.mean():.3f})" for n, (x, v) in found.items()]
    return f"on numbers the highest mean score of a sampler's values is at {join(said)}" if said else ""


def _dqn(results: Results) -> list[str]:
    shown, zero = [], untrained(results)
    for decoding, said in (("plain", "decoded plainly"), ("own", "by its best token")):
        found = second_paper.better(results, decoding)
        if found:
            shown.append(f"{said}, {_beating(found)}")
    first = f"a score above the untrained model's at less than twice its perplexity is reached, {'; '.join(shown)}" if shown else ""
    greedy = results.values(zero, "score", "greedy") if zero else None
    if shown and greedy is not None:
        first += (
            f" (greedy decoding of the untrained model, without any training, scores {greedy.mean():.3f} where plain decoding "
            f"scores {results.values(zero, 'score').mean():.3f})"
        )
    text = [(f"`{c}`", c, zero, "plain", "plain") for c in ("dqn_mlp", "dqn_best") if zero]
    said = [
        _told(results, "of the DQN with a new head, changing one part at a time, decoded plainly,", ("score",), second_paper.dqn_pairs(results)),
        _told(results, "beside PPO", ("score",), second_paper.ppo_pairs(results)),
        _told(results, "beside the untrained model", ("repetition",), text),
    ]
    return [first, "; ".join(s for s in said if s)]


def _beating(found: Sequence[second_paper.Better]) -> str:
    """ "by dqn_best (...)", or by none and which comes nearest."""
    if found[0].holds is None:
        return "a question that so few seeds cannot answer"
    won = [f for f in found if f.holds]
    told = [
        f"`{f.condition}` (score {signed(f.score.difference, f.score.low, f.score.high)}, log-perplexity "
        f"{signed(f.perplexity.difference, f.perplexity.low, f.perplexity.high)})"
        for f in (won or [max(found, key=lambda f: f.score.difference)])
    ]
    return f"by {join(told)}" if won else f"by none of {len(found)} (of them {told[0]} scores highest)"


def _family(results: Results) -> list[str]:
    pairs = [(said.removesuffix(" − PPO"), *rest) for said, *rest in second_paper.family_pairs(results)]
    metrics = ("score", "generation_log_perplexity", "kl_deployed", "wobble")
    first = _told(results, "on reviews, against PPO, decoded plainly,", metrics, pairs)
    finals = second_paper.finals(results)
    usual_reward = finals[finals.paid == second_paper.PAYMENT[second_paper.DEFAULT["numbers"]]]
    parts = []
    for kind, rows in (("paid token by token", usual_reward), ("paid otherwise", finals.drop(usual_reward.index))):
        for reached, word in ((True, "reach"), (False, "do not reach")):
            own = rows[(rows["median"] >= second_paper.GOAL) == reached]
            names = [f"{r.learner}{f' ({r.paid})' if kind != 'paid token by token' else ''} {r['median']:.3f}" for _, r in own.iterrows()]
            parts += [f"{kind}, {join(names)} {word} {second_paper.GOAL:g}"] if names else []
    second = f"on numbers, median score over seeds with the own sampler: {'; '.join(parts)}" if parts else ""
    return [first, second or "no learner was run on numbers in this profile"] if first or second else []


_ANSWERS = {
    "gamma": _gamma, "dropout": _dropout, "mask": _mask, "budget": _budget, "warm_start": _warm_start, "sampling": _sampling,
    "vocabulary": _vocabulary, "samplers": _samplers, "dqn": _dqn, "family": _family,
}  # fmt: skip
