"""From the rounds of all systems: medians, ratios within rounds, and whether they did equal work."""

from __future__ import annotations

import math
import statistics

from bench import work
from bench.cases import PEER, SYSTEMS, TARGETS


def seconds(row: dict, part: str, clock: str, scale: float) -> float:
    """Seconds of a part of one iteration of five epochs; ``scale`` = 5 / timed epochs multiplies the epochs only."""
    spans = {span: value[clock] for span, value in row["seconds"].items()}
    update = spans["update"] * scale + spans["rest"]
    return {"rollout": spans["rollout"], "update": update, "iteration": spans["rollout"] + update}[part]


def median_interval(values: list[float], level: float = 0.95) -> tuple[float, float, float, float]:
    """(median, low, high, coverage): the narrowest pair of order statistics that covers the median at ``level``.

    Distribution-free: k-th smallest and k-th largest of n cover it with probability 1 - 2 P(Binomial(n, 1/2) < k). With
    too few values for the level (n < 6 at 95 %) these are the smallest and the largest; coverage says what they give.
    """
    ordered, n = sorted(values), len(values)
    missed = [2 * sum(math.comb(n, i) for i in range(k)) / 2**n for k in range(1, n // 2 + 1)] or [1.0]
    k = max((k for k, miss in enumerate(missed, 1) if miss <= 1 - level), default=1)
    return statistics.median(ordered), ordered[k - 1], ordered[-k], 1 - missed[k - 1]


def summarise(name: str, case: dict, measured: dict, peer: dict | None) -> list[dict]:
    """One record per system: medians, tokens per second, peak memory, and the ratio to the peer within rounds."""
    scale, records = work.EPOCHS / case["epochs"], []
    for system, data in measured.items():
        rows = data["rows"]
        record = {"case": name, "system": system, "rounds": len(rows), **data["facts"], "peak_mb": rows[-1]["peak_mb"]}
        record["loaded_mb"] = data["facts"]["peak_mb"]  # before the first iteration
        for clock in ("cpu", "wall"):
            medians = {
                part: statistics.median(seconds(r, part, clock, scale) for r in rows)
                for part in ("rollout", "update", "iteration")
            }
            record[clock] = {
                "seconds": medians,
                "tokens_per_s": {part: work.TOKENS / value for part, value in medians.items()},
            }
            if peer and system != PEER:
                ratios = [
                    seconds(p, "iteration", clock, scale) / seconds(r, "iteration", clock, scale)
                    for p, r in zip(peer["rows"], rows)
                ]
                record[clock]["ratio"] = dict(zip(("median", "low", "high", "coverage"), median_interval(ratios)))
        if peer and system != PEER:
            record["peak_ratio"] = record["peak_mb"] / peer["rows"][-1]["peak_mb"]
            target = TARGETS.get((name, system))
            record["target"] = target
            record["met"] = target and record["cpu"]["ratio"]["median"] >= target
        record["rows"] = rows
        records.append(record)
    return records


def equal_work(case: dict, measured: dict) -> list[tuple[str, bool, str]]:
    """(what was checked, held, what was found per system) for every iteration of every system."""
    shared = {system: SYSTEMS[system]["value"] == "shared" for system in measured}

    def counted(name: str):
        return {s: sorted({row["checks"].get(name, 0) for row in data["rows"]}) for s, data in measured.items()}

    def check(what: str, found: dict, expected: dict | int | list):
        wanted = expected if isinstance(expected, dict) else {s: expected for s in measured}
        held = all(found[s] == (v if isinstance(v, list) else [v]) for s, v in wanted.items())
        values = ["/".join(f"{v:,}" if isinstance(v, int) else str(v) for v in found[s]) for s in measured]
        each = "; ".join(f"{s} {v}" for s, v in zip(measured, values))
        return what, held, values[0] if len(set(values)) == 1 else each

    facts = {s: data["facts"] for s, data in measured.items()}
    size = next(iter(facts.values()))["policy_parameters"]
    rows = work.EPISODES * case["epochs"]
    networks = {s: SYSTEMS[s]["networks"] for s in measured}
    value_rows = {s: 0 if shared[s] else rows for s in measured}
    return [
        check("episodes given to the reward function", counted("episodes"), work.EPISODES),
        check("response tokens (20 in every episode)", counted("tokens"), work.TOKENS),
        check("EOS among them", counted("eos_tokens"), 0),
        check("optimizer steps", counted("optimizer_steps"), work.MINIBATCHES * case["epochs"]),
        check("episodes trained on by the policy", counted("policy_rows_trained"), rows),
        check("episodes trained on by a value network", counted("value_rows_trained"), value_rows),
        check("networks", {s: [f["networks"]] for s, f in facts.items()}, networks),
        check("precision of all weights", {s: f["precision"] for s, f in facts.items()}, ["float32"]),
        check("policy parameters", {s: [f["policy_parameters"]] for s, f in facts.items()}, size),
    ]


def positions(case: dict, measured: dict) -> str:
    """Positions per episode in a training pass: not equal, and said so."""
    rows = work.EPISODES * case["epochs"]
    counts = {system: data["rows"][0]["checks"]["policy_positions_trained"] for system, data in measured.items()}
    return ", ".join(f"{system} {count / rows:g}" for system, count in counts.items())
