"""The two rules by which settings are chosen on draws that nothing is counted on: learning rates, and the strength of
the KL penalty. The report `choices` says them in words.

    rates(results)                               # {"ppo": 0.0008, ...}
    strengths(results), strength(results)        # {beta: share of the gain that is left}, the beta chosen
"""

from __future__ import annotations

from workbook.results.design import trained, untrained, usual
from workbook.results.results import Results

SHARE = ((0.605 - 0.489) / (0.847 - 0.489) + (0.637 - 0.489) / (0.859 - 0.489)) / 2  # arXiv:2210.01241v2, Table 5
WORSE = 0.1  # nats per token
FEWEST = 3  # betas, of which the smallest and the largest may not be chosen
GUARDED = ("generation_log_perplexity", "human_log_perplexity")


def tried(results: Results, kl_coef: float | None = None) -> dict[str, dict[float, str]]:
    """Algorithm -> learning rate -> condition, at the usual length and discount; kl_coef: None = the usual beta."""
    beta, found = usual(results, "kl_coef") if kl_coef is None else kl_coef, {}
    for condition, row in trained(results, "", kl_coef=beta).iterrows():
        if not {"gamma", "min_new_tokens"} & set(results.params.all_runs[condition]):  # it says nothing else of them
            found.setdefault(row.algorithm, {})[results.configs[condition]["learner"]["learning_rate"]] = condition
    return {name: dict(sorted(runs.items())) for name, runs in found.items()}


def rates(results: Results) -> dict[str, float]:
    """Algorithm -> the learning rate that the rule chooses. Raises ValueError where none is allowed, or where it is the
    grid's first or last."""
    limits, found = {m: _mean(results, untrained(results), m) + WORSE for m in GUARDED}, {}
    for algorithm, runs in tried(results).items():
        allowed = {r: c for r, c in runs.items() if all(_mean(results, c, m) <= most for m, most in limits.items())}
        best = max(allowed, key=lambda r, own=allowed: _mean(results, own[r], "score"), default=None)
        if best in (None, min(runs), max(runs)):
            said = ", ".join(f"{r:g}" for r in runs)
            raise ValueError(f"{algorithm}: expected a choice within the rates tried, {said}; found {best}")
        found[algorithm] = best
    return found


def at_ppos_rate(results: Results) -> dict[float, str]:
    """beta -> PPO at the rate chosen. Raises ValueError for fewer than three above 0: those runs lack."""
    rate, every = rates(results)["ppo"], sorted(set(trained(results, "").kl_coef))
    found = {b: c for b in every if (c := tried(results, b).get("ppo", {}).get(rate))}
    if len(found) < 1 + FEWEST or 0.0 not in found:
        raise ValueError(
            f"PPO at {rate:g}: expected runs without a penalty and with {FEWEST} betas or more, found {list(found)}"
        )
    return found


def strengths(results: Results) -> dict[float, float]:
    """beta -> share of the gain of PPO without a penalty that is left with it, at PPO's rate."""
    scores = {b: _mean(results, c, "score") for b, c in at_ppos_rate(results).items()}
    start = _mean(results, untrained(results), "score")
    return {b: (score - start) / (scores[0.0] - start) for b, score in scores.items() if b}


def strength(results: Results) -> float:
    """The beta whose share is the closest to that of the paper's runs. Raises ValueError where it is the smallest or
    the largest that was tried."""
    shares = strengths(results)
    best = min(shares, key=lambda b: abs(shares[b] - SHARE))
    if best in (min(shares), max(shares)):
        raise ValueError(
            f"beta: expected a choice within those tried, {', '.join(f'{b:g}' for b in shares)}; found {best:g}"
        )
    return best


def _mean(results: Results, condition: str, metric: str) -> float:
    return float(results.values(condition, metric).mean())
